#include "ckpt/integrity/checks/failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace ferry {
namespace {

bool is_inside(const ByteCheck& inner, const ByteCheck& outer) {
  return inner.file == outer.file && inner.offset >= outer.offset &&
         inner.offset + inner.bytes <= outer.offset + outer.bytes;
}

// The narrowest first; of equal ones, that of ferry's manifest, which names what it is of.
bool describes_better(const CheckList& list, uint32_t a, uint32_t b) {
  if (list.checks[a].bytes != list.checks[b].bytes)
    return list.checks[a].bytes < list.checks[b].bytes;
  return list.origins[a].item && !list.origins[b].item;
}

// Positions of the failed checks that locate damage, in the given order. Checks inside another one
// follow it, or begin where it does: comparing neighbours is enough, as a damaged file has few
// failed checks, or all of them failed.
std::vector<size_t> telling(const CheckList& list, std::span<const FailedCheck> failed) {
  std::vector<size_t> kept;
  for (size_t i = 0; i < failed.size(); ++i) {
    const ByteCheck& check = list.checks[failed[i].check];
    const auto outdone_by = [&](const FailedCheck& other) {
      return other.check != failed[i].check && is_inside(list.checks[other.check], check) &&
             describes_better(list, other.check, failed[i].check);
    };
    // In order of offset: what is inside comes right after, or before at the same offset.
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

// Finds the tensors with bytes in a run of a file's bytes.
class StoredTensors {
 public:
  explicit StoredTensors(const Catalog* stored) {
    if (!stored) return;
    for (const Entry& entry : stored->entries) {
      for (const Chunk& chunk : entry.chunks) {
        const Extent& extent = chunk.extent;
        by_file_[stored->files.at(extent.file).path].push_back(
            {extent.offset, extent.offset + extent.length, &entry, &chunk});
      }
    }
    for (auto& [path, places] : by_file_) {
      std::sort(places.begin(), places.end(),
                [](const Place& a, const Place& b) { return a.begin < b.begin; });
    }
  }

  // "tensor a.b [0:2, 0:32] and 3 more"; empty: none.
  std::string in(const std::string& path, const ByteCheck& check) const {
    const auto file = by_file_.find(path);
    if (file == by_file_.end()) return {};
    const std::vector<Place>& places = file->second;
    const auto begin = std::partition_point(places.begin(), places.end(), [&](const Place& place) {
      return place.begin < check.offset;
    });
    const auto end = std::partition_point(begin, places.end(), [&](const Place& place) {
      return place.begin < check.offset + check.bytes;
    });
    // One that begins before reaches in, too.
    auto first = begin;
    if (begin != places.begin() && std::prev(begin)->end > check.offset) --first;
    if (first == end) return {};
    const std::string name =
        fmt::format("tensor {} {}", first->entry->name, to_string(first->chunk->box));
    return end - first == 1 ? name : fmt::format("{} and {} more", name, end - first - 1);
  }

 private:
  struct Place {
    uint64_t begin = 0, end = 0;  // bytes
    const Entry* entry = nullptr;
    const Chunk* chunk = nullptr;
  };
  std::unordered_map<std::string, std::vector<Place>> by_file_;
};

std::string which_checksum(const ByteCheck& check, const CheckOrigin& origin) {
  if (origin.item) return "the manifest's digest";
  if (origin.blob) return "the SHA-256 that the blob is named by";
  if (std::holds_alternative<Sha256>(check.expected)) return "the SHA-256 of integrity.json";
  return fmt::format("the CRC-32 of zip record {}", origin.record);
}

std::string sentence(const FailedCheck& failed, const ByteCheck& check, const CheckOrigin& origin,
                     const std::string& path, const std::string& holds) {
  if (std::holds_alternative<Sha256>(check.expected) && failed.problem.empty()) {
    return fmt::format("{}: damaged somewhere in its {} bytes{}: {} does not match", path,
                       check.bytes, holds.empty() ? "" : ", which hold " + holds,
                       which_checksum(check, origin));
  }
  const std::string what = failed.problem.empty() ? fmt::format("are damaged: {} does not match",
                                                                which_checksum(check, origin))
                                                  : "cannot be read: " + failed.problem;
  return fmt::format("{} at byte {}: {}{} bytes {}", path, check.offset,
                     holds.empty() ? "" : holds + ": ", check.bytes, what);
}

}  // namespace

std::vector<Problem> problems_of(const CheckList& list, std::span<const FailedCheck> failed,
                                 std::span<const FileInfo> files, const std::string& folder,
                                 const Catalog* stored) {
  std::vector<Problem> problems;
  if (failed.empty()) return problems;
  const StoredTensors tensors(stored);
  for (const size_t i : telling(list, failed)) {
    const uint32_t number = failed[i].check;
    const ByteCheck& check = list.checks[number];
    const CheckOrigin& origin = list.origins[number];
    const std::string& path = files[check.file].path;
    Problem problem{inside(folder, path), check.offset, check.bytes, {}, {}};
    if (origin.item) problem.holds = describe(*origin.item);
    if (origin.archive) problem.holds = *origin.archive;
    if (problem.holds.empty()) problem.holds = tensors.in(path, check);
    problem.what = sentence(failed[i], check, origin, path, problem.holds);
    problems.push_back(std::move(problem));
  }
  return problems;
}

}  // namespace ferry
