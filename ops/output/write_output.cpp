#include "ops/output/write_output.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/core/passing_values.h"
#include "ckpt/engine/compressed_run.h"
#include "ckpt/group/group.h"
#include "ckpt/group/group_run.h"
#include "ckpt/integrity/checks/small_files.h"
#include "ckpt/integrity/manifest/plan_manifest.h"
#include "ckpt/io/staging/reader_lock.h"
#include "ckpt/io/staging/staging.h"
#include "ckpt/store/run_folder.h"
#include "ckpt/store/run_store.h"
#include "ops/output/room.h"

namespace ferry {
namespace {

std::vector<std::pair<std::string, uint64_t>> files_of(const PlannedOutput& planned) {
  std::vector<std::pair<std::string, uint64_t>> files;
  for (const FileInfo& file : planned.plan.target.files) files.emplace_back(file.path, file.bytes);
  for (const auto& [name, content] : planned.small_files) files.emplace_back(name, content.size());
  return files;
}

uint64_t bytes_of(const PlannedOutput& planned) {
  uint64_t sum = 0;
  for (const auto& [name, bytes] : files_of(planned)) {
    sum = checked_add(sum, bytes, "size of all files");
  }
  return sum;
}

// In a dry run: checks what would otherwise fail only once the work begins.
std::optional<uint64_t> check_place(const FileSystem& file_system, const Output& output,
                                    PlannedOutput& planned, bool size_is_known) {
  const std::string folder = nearest_folder(file_system, split_path(output.folder()).parent);
  check_permission(file_system, folder);
  const uint64_t bytes = size_is_known ? bytes_of(planned) : 0;
  return check_room(file_system, folder, bytes, planned.warnings);
}

// Rank 0 stages, all write, rank 0 commits. `begin` returns a StagedFolder or a StagedIteration.
// Returns warnings, on rank 0.
template <typename Begin>
std::vector<std::string> write_staged(const FileSystem& file_system, PlannedOutput& planned,
                                      const WriteOptions& options, const Begin& begin) {
  Group& group = *options.group;
  const uint64_t bytes = bytes_of(planned);
  const bool leads = group.rank() == 0;
  EngineOptions engine = options.engine;
  decltype(begin()) staged;
  const std::string folder = together(group, [&] {
    if (!leads) return std::string();
    staged = begin();  // removes remains of an interrupted run
    if (!options.zstd_level)
      check_room(file_system, split_path(staged->path()).parent, bytes, planned.warnings);
    create_inner_folders(planned, file_system, staged->path());
    return staged->path();
  })[0];
  std::vector<Digest> digests;
  PassingValues values(planned.plan.target, planned.plan.target.files,
                       thread_count(engine.threads));
  engine.values = &values;
  if (!options.zstd_level) digests = run_together(planned.plan, file_system, folder, group, engine);
  together(group, [&] {
    if (!leads) return std::string();
    if (options.zstd_level) {
      digests = run_compressed(planned.plan, file_system, folder, *options.zstd_level, engine);
    }
    if (const PlannedOutput::LateFile& late = planned.late_file; !late.name.empty()) {
      planned.small_files.emplace_back(late.name, late.content(planned.plan.target));
    }
    engine.values = nullptr;  // digests of small files are not of the plan's items
    write_small_files(planned, digests, options.integrity, file_system, folder, engine);
    check_cancelled(options);
    check_reader_locks(planned.plan.source->reader_locks);
    staged->commit();
    return std::string();
  });
  for (std::string& note : gather_together(group, [&] { return to_text(values.found()); })) {
    if (!note.empty()) planned.warnings.push_back(std::move(note));
  }
  return leads ? staged->notes() : std::vector<std::string>();
}

std::vector<std::string> write(const std::shared_ptr<const FileSystem>& file_system,
                               const Output& output, PlannedOutput& planned,
                               const WriteOptions& options) {
  if (output.kind != OutputKind::iteration) {
    return write_staged(*file_system, planned, options, [&] {
      return std::make_unique<StagedFolder>(file_system, output.path, options.overwrite);
    });
  }
  BeginOptions begin;
  begin.overwrite = options.overwrite;
  return write_staged(*file_system, planned, options, [&] {
    const RunStore store(file_system, output.path);
    return std::make_unique<StagedIteration>(store.begin(output.iteration, begin));
  });
}

}  // namespace

std::string Output::folder() const {
  if (kind != OutputKind::iteration) return path;
  return join(path, iteration ? iteration_folder_name(*iteration) : std::string(kReleaseName));
}

uint64_t WrittenFiles::bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, bytes] : files) sum += bytes;
  return sum;
}

void prepare(PlannedOutput& planned, const IntegrityOptions& integrity) {
  if (integrity.manifest) complete_items(planned.plan);
  check(planned.plan);
}

void check_cancelled(const WriteOptions& options) {
  const std::atomic<bool>* cancel = options.engine.cancel;
  if (cancel && *cancel) fail(ErrorKind::cancelled, "stopped on request");
}

WrittenFiles carry_out(
    const WriteOptions& options,
    const std::function<Work(const std::shared_ptr<const FileSystem>& file_system)>& plan,
    std::vector<std::string>& warnings) {
  const std::shared_ptr<const FileSystem> file_system = posix_file_system();
  Work work;
  together(*options.group, [&] {
    check_cancelled(options);
    work = plan(file_system);
    check_cancelled(options);
    prepare(work.planned, options.integrity);
    check_cancelled(options);
    return std::string();
  });
  WrittenFiles written = write_output(file_system, work.output, work.planned, options);
  warnings = std::move(work.planned.warnings);
  return written;
}

WrittenFiles write_output(std::shared_ptr<const FileSystem> file_system, const Output& output,
                          PlannedOutput& planned, const WriteOptions& options) {
  if (options.dry_run) {
    if (options.zstd_level) planned.warnings.push_back("sizes are those before compression");
    const auto free_bytes = check_place(*file_system, output, planned, !options.zstd_level);
    return {files_of(planned), true, 0, free_bytes};
  }
  const auto start = std::chrono::steady_clock::now();
  const auto notes = write(file_system, output, planned, options);
  planned.warnings.insert(planned.warnings.end(), notes.begin(), notes.end());
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return {files_of(planned), false, taken.count(), {}};
}

}  // namespace ferry
