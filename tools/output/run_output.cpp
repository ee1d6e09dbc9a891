#include "tools/output/run_output.h"

#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include "ckpt/engine/compressed_run.h"
#include "ckpt/group/group_run.h"
#include "ckpt/group/together.h"
#include "ckpt/integrity/plan_manifest.h"
#include "ckpt/io/staging/staging.h"
#include "ckpt/store/run_folder.h"
#include "ckpt/store/run_store.h"
#include "tools/output/target_folder.h"
#include "tools/terminal/interrupt.h"

namespace ferry::tool {
namespace {

void create_inner_folders(const FileSystem& file_system, const std::string& folder,
                          const PlannedOutput& planned) {
  std::set<std::string> folders;
  for (const auto& [name, bytes] : files_of(planned)) {
    const size_t slash = name.find_last_of('/');
    if (slash != std::string::npos) folders.insert(name.substr(0, slash));
  }
  for (const std::string& inner : folders) file_system.create_folder(join(folder, inner));
}

// Rank 0 stages, all write, rank 0 commits. `begin` puts a StagedFolder or a StagedIteration into
// the optional that it gets. Returns what is worth telling, on rank 0.
template <typename Staged>
std::vector<std::string> write_staged(const FileSystem& file_system, PlannedOutput& planned,
                                      const WriteOptions& options,
                                      const std::function<void(std::unique_ptr<Staged>&)>& begin) {
  Group& group = *options.group;
  const bool leads = group.rank() == 0;
  const InterruptScope interrupt;
  EngineOptions engine = options.engine;
  engine.cancel = interrupt.flag();
  std::unique_ptr<Staged> staged;
  const std::string folder = together(group, [&] {
    if (!leads) return std::string();
    begin(staged);
    create_inner_folders(file_system, staged->path(), planned);
    return staged->path();
  })[0];
  std::vector<Digest> digests;
  if (!options.zstd_level) digests = run_together(planned.plan, file_system, folder, group, engine);
  together(group, [&] {
    if (!leads) return std::string();
    if (options.zstd_level) {
      digests = run_compressed(planned.plan, file_system, folder, *options.zstd_level, engine);
    }
    if (const PlannedOutput::LateFile& late = planned.late_file; !late.name.empty()) {
      planned.small_files.emplace_back(late.name, late.content(planned.plan.target));
    }
    write_small_files(planned, digests, options.vouchers, file_system, folder, engine);
    interrupt.check();
    if (options.mark) options.mark->check();
    staged->commit();
    return std::string();
  });
  return leads ? staged->notes() : std::vector<std::string>();
}

}  // namespace

std::string RunOutput::folder() const {
  return join(run_folder,
              iteration ? iteration_folder_name(*iteration) : std::string(kReleaseName));
}

void check_run_output(const FileSystem& file_system, const RunOutput& output,
                      const std::string& source) {
  const bool new_run = file_system.status(output.run_folder).kind == PathKind::missing;
  TargetFolder target;
  target.source = source;
  target.target = new_run ? output.run_folder : output.folder();
  target.overwrite = output.overwrite;
  target.is_replaceable = [&](const std::string& folder) {
    return holds_checkpoint(file_system, folder);
  };
  target.replaceable_are = "checkpoint";
  check_target(file_system, target);
}

void prepare(PlannedOutput& planned, const VoucherOptions& vouchers) {
  if (vouchers.manifest) complete_items(planned.plan);
  check(planned.plan);
}

std::vector<std::string> write_iteration(std::shared_ptr<const FileSystem> file_system,
                                         const RunOutput& output, PlannedOutput& planned,
                                         const WriteOptions& options) {
  const RunStore store(file_system, output.run_folder);
  BeginOptions begin;
  begin.overwrite = output.overwrite;
  return write_staged<StagedIteration>(*file_system, planned, options, [&](auto& staged) {
    staged.reset(new StagedIteration(store.begin(output.iteration, begin)));
  });
}

std::vector<std::string> write_folder(std::shared_ptr<const FileSystem> file_system,
                                      const std::string& folder, bool overwrite,
                                      PlannedOutput& planned, const WriteOptions& options) {
  return write_staged<StagedFolder>(*file_system, planned, options, [&](auto& staged) {
    staged = std::make_unique<StagedFolder>(file_system, folder, overwrite);
  });
}

bool holds_checkpoint(const FileSystem& file_system, const std::string& folder) {
  for (const std::string& name : file_system.list(folder)) {
    if (name == ".metadata" || name == "metadata.json" || name.starts_with("mp_rank_") ||
        name.ends_with(".distcp")) {
      return true;
    }
  }
  return false;
}

std::vector<std::pair<std::string, uint64_t>> files_of(const PlannedOutput& planned) {
  std::vector<std::pair<std::string, uint64_t>> files;
  for (const FileInfo& file : planned.plan.target.files) files.emplace_back(file.path, file.bytes);
  for (const auto& [name, content] : planned.small_files) files.emplace_back(name, content.size());
  return files;
}

}  // namespace ferry::tool
