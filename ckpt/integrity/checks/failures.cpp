#include "ckpt/integrity/checks/failures.h"

#include <fmt/format.h>

#include <algorithm>

namespace ferry {
namespace {

bool is_inside(const ByteCheck& inner, const ByteCheck& outer) {
  return inner.file == outer.file && inner.offset >= outer.offset &&
         inner.offset + inner.bytes <= outer.offset + outer.bytes;
}

// The narrowest first; of equal ones, that of ferry's manifest, which names what it is of.
bool tells_better(const CheckList& list, uint32_t a, uint32_t b) {
  if (list.checks[a].bytes != list.checks[b].bytes)
    return list.checks[a].bytes < list.checks[b].bytes;
  return list.origins[a].item && !list.origins[b].item;
}

// Positions of the failed checks that tell a place, in the given order. Checks inside of another
// one follow it, or begin where it does: a look at the neighbours is enough, but a damaged file
// has few failed checks, or all of them failed.
std::vector<size_t> telling(const CheckList& list, std::span<const FailedCheck> failed) {
  std::vector<size_t> kept;
  for (size_t i = 0; i < failed.size(); ++i) {
    const ByteCheck& check = list.checks[failed[i].check];
    const auto outdone_by = [&](const FailedCheck& other) {
      return other.check != failed[i].check && is_inside(list.checks[other.check], check) &&
             tells_better(list, other.check, failed[i].check);
    };
    // In order of offset: what lies inside stands right behind, or before at the same offset.
    bool outdone = false;
    for (size_t j = i + 1; j < failed.size() && !outdone; ++j) {
      const ByteCheck& next = list.checks[failed[j].check];
      if (next.file != check.file || next.offset >= check.offset + check.bytes) break;
      outdone = outdone_by(failed[j]);
    }
    for (size_t j = i; j-- > 0 && !outdone;) {
      const ByteCheck& before = list.checks[failed[j].check];
      if (before.file != check.file || before.offset != check.offset) break;
      outdone = outdone_by(failed[j]);
    }
    if (!outdone) kept.push_back(i);
  }
  return kept;
}

std::string inside(const std::string& folder, const std::string& path) {
  const std::string prefix = join(folder, "");
  return path.starts_with(prefix) ? path.substr(prefix.size()) : path;
}

// Tensors of the catalog whose bytes lie there: "tensor a.b [0:2, 0:32] and 3 more".
std::string stored_there(const Catalog& stored, const std::string& path, const ByteCheck& check) {
  std::string first;
  size_t more = 0;
  for (const Entry& entry : stored.entries) {
    for (const Chunk& chunk : entry.chunks) {
      const Extent& extent = chunk.extent;
      if (stored.files.at(extent.file).path != path) continue;
      if (extent.offset >= check.offset + check.bytes) continue;
      if (extent.offset + extent.length <= check.offset) continue;
      if (first.empty()) {
        first = fmt::format("tensor {} {}", entry.name, to_string(chunk.box));
      } else {
        ++more;
      }
    }
  }
  return more == 0 ? first : fmt::format("{} and {} more", first, more);
}

std::string which_checksum(const ByteCheck& check, const CheckOrigin& origin) {
  if (origin.item) return "the manifest's digest";
  if (std::holds_alternative<Sha256>(check.expected)) return "the SHA-256 of integrity.json";
  return fmt::format("the CRC-32 of zip record {}", origin.record);
}

}  // namespace

std::vector<Problem> problems_of(const CheckList& list, std::span<const FailedCheck> failed,
                                 std::span<const FileInfo> files, const std::string& folder,
                                 const Catalog* stored) {
  std::vector<Problem> problems;
  for (const size_t i : telling(list, failed)) {
    const uint32_t number = failed[i].check;
    const ByteCheck& check = list.checks[number];
    const CheckOrigin& origin = list.origins[number];
    const std::string& path = files[check.file].path;
    Problem problem{inside(folder, path), check.offset, check.bytes, {}, {}};
    if (origin.item) problem.holds = describe(*origin.item);
    if (origin.archive) problem.holds = *origin.archive;
    const bool is_whole = check.offset == 0 && check.bytes == files[check.file].bytes;
    if (problem.holds.empty() && stored && !is_whole) {
      problem.holds = stored_there(*stored, path, check);
    }
    problem.what = fmt::format("{} at byte {}: {}{} bytes are damaged: {} is of other bytes", path,
                               check.offset, problem.holds.empty() ? "" : problem.holds + ": ",
                               check.bytes, which_checksum(check, origin));
    if (!failed[i].problem.empty()) {
      problem.what = fmt::format("{} at byte {}: {}{} bytes cannot be read: {}", path, check.offset,
                                 problem.holds.empty() ? "" : problem.holds + ": ", check.bytes,
                                 failed[i].problem);
    }
    problems.push_back(std::move(problem));
  }
  return problems;
}

}  // namespace ferry
