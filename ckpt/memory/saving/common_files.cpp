#include "ckpt/memory/saving/common_files.h"

#include <optional>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/group/group_run.h"
#include "ckpt/group/together.h"
#include "ckpt/group/wire.h"
#include "ckpt/integrity/checks/small_files.h"
#include "ckpt/integrity/manifest/plan_manifest.h"
#include "ckpt/memory/saving/own_files.h"

namespace ferry {
namespace {

void check_no_objects(const Snapshot& own) {
  if (own.objects.empty()) return;
  fail(ErrorKind::invalid, "{}: this format has no place for the caller's own objects",
       own.objects.front().name);
}

// The places of what is written: what ranks must agree on.
std::string places_in(const Plan& plan) {
  Packer packer;
  for (const FileInfo& file : plan.target.files) packer.text(file.path).number(file.bytes);
  for (const Entry& entry : plan.target.entries) {
    packer.text(entry.name).choice(entry.dtype);
    for (const Chunk& chunk : entry.chunks) {
      packer.number(static_cast<uint64_t>(chunk.rank)).number(chunk.extent.file);
      packer.number(chunk.extent.offset).number(chunk.extent.length);
    }
  }
  return packer.take();
}

void check_ranks(const Plan& plan, int ranks) {
  for (const Entry& entry : plan.target.entries) {
    for (const Chunk& chunk : entry.chunks) {
      if (chunk.rank >= 0 && chunk.rank < ranks) continue;
      fail(ErrorKind::mismatch,
           "{} is for rank {} of the layout that the arguments name, and {} ranks save", entry.name,
           chunk.rank, ranks);
    }
  }
}

}  // namespace

std::vector<std::string> save_common_files(const FileSystem& file_system, const RunStore& store,
                                           const Snapshot& own, const CommonFilesFormat& format,
                                           Group& group, const SaveOptions& options) {
  PlannedOutput planned;
  const std::vector<std::string> places = together(group, [&] {
    check_no_objects(own);
    planned = format.plan(catalog_of(own.tensors), own.iteration);
    check_ranks(planned.plan, group.size());
    if (options.integrity.manifest) complete_items(planned.plan);
    if (group.rank() == 0) check(planned.plan);
    const std::string text = places_in(planned.plan);
    return Packer().digest(digest_of(std::as_bytes(std::span(text)))).take();
  });
  for (size_t rank = 1; rank < places.size(); ++rank) {
    if (places[rank] == places[0]) continue;
    throw SharedError(ErrorKind::mismatch,
                      fmt::format("rank {} saves a run of another layout than rank 0", rank));
  }
  std::optional<StagedIteration> staged;  // on rank 0
  const std::string folder = from_first_together(group, [&] {
    staged = store.begin(own.iteration, options.begin);
    create_inner_folders(planned, file_system, staged->path());
    return staged->path();
  });
  const std::vector<Digest> digests =
      run_by_ranks(planned.plan, file_system, folder, group, options.engine);
  from_first_together(group, [&] {
    write_small_files(planned, digests, options.integrity, file_system, folder, options.engine);
    if (options.engine.cancel && *options.engine.cancel) {
      fail(ErrorKind::cancelled, "stopped on request");
    }
    staged->commit();
    return std::string();
  });
  return staged ? staged->notes() : std::vector<std::string>();
}

}  // namespace ferry
