#include "tools/output/run_output.h"

#include <set>
#include <string_view>
#include <utility>

#include "ckpt/engine/compressed_run.h"
#include "ckpt/integrity/plan_manifest.h"
#include "ckpt/io/staging.h"
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

// `staged` is a StagedFolder or a StagedIteration.
template <typename Staged>
void fill_and_commit(const FileSystem& file_system, Staged& staged, PlannedOutput& planned,
                     const WriteOptions& options) {
  const InterruptScope interrupt;
  create_inner_folders(file_system, staged.path(), planned);
  EngineOptions engine = options.engine;
  engine.cancel = interrupt.flag();
  const std::vector<Digest> digests =
      options.zstd_level
          ? run_compressed(planned.plan, file_system, staged.path(), *options.zstd_level, engine)
          : run(planned.plan, file_system, staged.path(), engine);
  if (const PlannedOutput::LateFile& late = planned.late_file; !late.name.empty()) {
    planned.small_files.emplace_back(late.name, late.content(planned.plan.target));
  }
  Manifest manifest;
  if (options.vouchers.manifest) manifest = manifest_of(planned.plan, digests);
  for (const auto& [name, content] : planned.small_files) {
    staged.write_file(name, content);
    manifest.add_file(name, content);
  }
  const auto last =
      vouchers(options.vouchers, std::move(manifest), file_system, staged.path(), engine);
  for (const auto& [name, content] : last) staged.write_file(name, content);
  interrupt.check();
  if (options.mark) options.mark->check();
  staged.commit();
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
  StagedIteration staged = store.begin(output.iteration, begin);
  fill_and_commit(*file_system, staged, planned, options);
  return staged.notes();
}

std::vector<std::string> write_folder(std::shared_ptr<const FileSystem> file_system,
                                      const std::string& folder, bool overwrite,
                                      PlannedOutput& planned, const WriteOptions& options) {
  StagedFolder staged(file_system, folder, overwrite);
  fill_and_commit(*file_system, staged, planned, options);
  return staged.notes();
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
