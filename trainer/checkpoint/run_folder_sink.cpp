#include "trainer/checkpoint/run_folder_sink.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "ckpt/io/staging/write_lock.h"
#include "ckpt/memory/transfer/staging_buffers.h"
#include "ckpt/store/prune.h"
#include "ckpt/store/run_folder.h"
#include "trainer/arguments/complete.h"
#include "trainer/checkpoint/free_space.h"
#include "trainer/checkpoint/run_checkpoint.h"
#include "trainer/checkpoint/staging_memory.h"
#include "trainer/log/log_lines.h"

namespace ferry {

namespace {

constexpr std::string_view kNonPersistent = "non_persistent";

std::string timed(const std::string& text) {
  return fmt::format("[{}] {}\n", date_and_time(now_microseconds()), text);
}

// Two runs in one folder would overwrite and remove each other's checkpoints. A run on a host that
// died must not lock out the next job.
std::unique_ptr<WriteLock> lock_run(const std::shared_ptr<const FileSystem>& files,
                                    const std::string& path) {
  try {
    return std::make_unique<WriteLock>(files, join(path, "training"),
                                       WriteLockOptions{.take_over = true});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::busy) throw;
    fail(error.kind(), "another run saves in {}: {}", path, error.what());
  }
}

// Where locks are not visible, the next job may have taken this one for dead.
void check_run(const WriteLock& lock, const std::string& path) {
  try {
    lock.check();
  } catch (const Error& error) {
    fail(error.kind(), "another run saves in {}: {}", path, error.what());
  }
}

// Takes the path of an iteration's folder.
ProblemOf reason_to_stay(const std::vector<int64_t>& others, const std::vector<int64_t>& past,
                         const std::vector<int64_t>& written) {
  return [others, past, written](const std::string& path) -> std::string {
    const auto iteration = iteration_of(split_path(path).name);
    const auto is_among = [&](const std::vector<int64_t>& numbers) {
      return iteration && std::ranges::find(numbers, *iteration) != numbers.end();
    };
    if (is_among(written)) return "being written";
    if (is_among(past)) return "of this run, saved before this process";
    return is_among(others) ? "of another run" : "";
  };
}

// An unwritable folder is reported at startup, not by the first save hours later.
void check_writable(const FileSystem& files, const std::string& path) {
  const std::string probe = join(path, fmt::format(".ferry-probe-{}", ::getpid()));
  try {
    files.create(probe, 0)->close();
    files.remove_all(probe);
  } catch (const Error& error) {
    fail(error.kind(), "cannot save in {}: {}", path, error.what());
  }
}

}  // namespace

std::string non_persistent_folder(const TrainArguments& arguments, const std::string& run) {
  if (!arguments.non_persistent_save_interval && arguments.non_persistent_ckpt_type.empty()) {
    return {};
  }
  if (!arguments.non_persistent_global_ckpt_dir.empty()) {
    return arguments.non_persistent_global_ckpt_dir;
  }
  return run.empty() ? run : join(run, std::string(kNonPersistent));
}

struct RunFolderSink::Folder {
  std::string path;
  bool is_persistent = true;
  SaveOptions options;
  std::unique_ptr<WriteLock> lock;  // rank 0's
  std::optional<Retention> retention;
  std::vector<int64_t> others;        // iterations outside this run's history; rank 0's
  std::vector<int64_t> past;          // iterations of earlier processes that are kept; rank 0's
  std::shared_ptr<Group> group;       // not shared: the saver's thread uses it
  std::unique_ptr<AsyncSaver> saver;  // with --async-save, or for device memory
  AsyncSaver::Ticket ticket;
  std::deque<int64_t> pending;  // not yet known to be on disk
};

RunFolderSink::RunFolderSink(const TrainArguments& arguments,
                             std::shared_ptr<const FileSystem> files, Group& group,
                             std::shared_ptr<Stager> stager, Print print)
    : arguments_(arguments),
      files_(std::move(files)),
      group_(group),
      stager_(stager),
      print_(std::move(print)) {
  if (arguments.save.empty()) return;
  persistent_ = make_folder(arguments.save, true);
  if (!arguments.after_save.empty() && group_.rank() == 0) {
    const auto seconds = static_cast<double>(arguments.after_save_seconds);
    hook_ = std::make_unique<SaveHook>(SaveHookOptions{arguments.after_save, seconds}, print_);
  }
  if (arguments.save_retain_interval || arguments.keep_last) {
    persistent_->retention.emplace();
    persistent_->retention->keep_last = arguments.keep_last.value_or(1);
    persistent_->retention->keep_every = arguments.save_retain_interval;
  }
  if (!arguments.non_persistent_save_interval) return;
  other_ = make_folder(non_persistent_folder(arguments, arguments.save), false);
  other_->retention.emplace();
  other_->retention->keep_last = 1;
}

RunFolderSink::~RunFolderSink() = default;

std::unique_ptr<RunFolderSink::Folder> RunFolderSink::make_folder(const std::string& path,
                                                                  bool is_persistent) {
  auto folder = std::make_unique<Folder>();
  folder->path = path;
  folder->is_persistent = is_persistent;
  folder->options.begin.overwrite = true;
  folder->options.begin.tracker = TrackerMove::always;  // a run may restart from an earlier one
  folder->options.integrity.sha256 = arguments_.verify_integrity;
  folder->options.files_per_rank = static_cast<int>(arguments_.dist_ckpt_workers);
  folder->group = group_.split(0, group_.rank());
  if (group_.rank() == 0) {
    make_folders(*files_, path);
    check_writable(*files_, path);
    folder->lock = lock_run(files_, path);
  }
  return folder;
}

// Called once it is known what will be saved and how much memory the run leaves. Each folder has
// its own staging buffers.
void RunFolderSink::open_savers(std::span<const ConstRegion> regions) {
  if (room_ || !stages() || !persistent_) return;
  const uint64_t folders = other_ ? 2 : 1;
  room_ = staging_room(group_, folders * staged_bytes(regions), staging_bytes(arguments_),
                       available_host_memory());
  if (room_->most_needed > 0) print_(staging_text(*room_));
  for (Folder* const each : {persistent_.get(), other_.get()}) {
    if (each == nullptr) continue;
    AsyncSaverOptions options;
    options.stager = stager_;
    options.save = each->options;
    // No limit if there is enough: the shapes that a program saves may change.
    if (room_->bytes < room_->needed) options.staging_bytes = room_->bytes / folders;
    each->saver = std::make_unique<AsyncSaver>(files_, each->path, each->group, options);
  }
}

// Reports memory that could not be allocated, which was not known before.
void RunFolderSink::report_pieces(const Folder& folder) {
  if (has_reported_pieces_ || !folder.saver || room_->bytes < room_->needed) return;
  const AsyncSaver::Status status = folder.saver->status();
  if (status.in_pieces == 0) return;
  has_reported_pieces_ = true;
  print_(
      fmt::format("WARNING: only {:.3f} GiB of memory for staging: saves go in pieces, and a step "
                  "waits until the last piece is copied\n",
                  static_cast<double>(status.staging_bytes) / (1 << 30)));
}

RunFolderSink::Folder& RunFolderSink::folder(SaveKind kind) {
  return kind == SaveKind::non_persistent ? *other_ : *persistent_;
}

// Finds iterations in the folder outside this run's history: another run's, or those of an
// abandoned branch. With --save-retain-interval alone, as in Megatron-LM, only the iteration that
// the tracker names counts as this process's own and may be removed.
void RunFolderSink::find_others(Folder& folder, const std::string& loaded) {
  const auto is_here = [&](const std::string& path) {
    return files_->status(path).kind == PathKind::folder &&
           files_->real_path(path) == files_->real_path(split_path(loaded).parent);
  };
  int64_t last = -1;  // of the run's history
  if (!loaded.empty() && (is_here(persistent_->path) || (other_ && is_here(other_->path)))) {
    last = iteration_of(split_path(loaded).name).value_or(-1);
  }
  const RunFolder run = read_run_folder(*files_, folder.path);
  const bool leaves_past = folder.is_persistent && !arguments_.keep_last;
  for (const IterationFolder& each : run.iterations) {
    if (!each.iteration) continue;
    const bool is_past = *each.iteration <= last;
    const bool is_named = run.tracker.iteration == *each.iteration;
    if (is_past && (!leaves_past || is_named)) continue;
    if (each.complete()) (is_past ? folder.past : folder.others).push_back(*each.iteration);
  }
  if (folder.others.empty()) return;
  print_(
      fmt::format("WARNING: {} has checkpoints outside this run's history, of iterations {}: they "
                  "are kept unless this run saves the same iterations\n",
                  folder.path, fmt::join(folder.others, ", ")));
}

void RunFolderSink::prepare(std::span<const ConstRegion> regions, const std::string& loaded) {
  if (group_.rank() == 0) {
    for (Folder* const each : {persistent_.get(), other_.get()}) {
      if (each != nullptr) find_others(*each, loaded);
    }
  }
  open_savers(regions);
  if (!arguments_.async_save) return;
  for (Folder* const each : {persistent_.get(), other_.get()}) {
    if (each != nullptr && each->saver) each->saver->prepare(regions);
  }
}

void RunFolderSink::save(SaveKind kind, std::vector<ConstRegion> tensors, RunState state) {
  save(kind, snapshot_of(arguments_, std::move(tensors), std::move(state)));
}

void RunFolderSink::save(SaveKind kind, Snapshot snapshot) {
  Folder& to = folder(kind);
  const int64_t iteration = snapshot.iteration;
  if (to.lock) check_run(*to.lock, to.path);
  // Pending writes count: they use space, and one may be the last good checkpoint.
  if (arguments_.free_space_for_saves) finish(to);
  // The pruner may be removing an earlier run's iteration of this number.
  if (pruner_.joinable()) pruner_.join();
  if (arguments_.free_space_for_saves) make_room(to);
  print_(timed(fmt::format("saving checkpoint at iteration {:7d} to {} in {} format", iteration,
                           to.path, arguments_.ckpt_format)));
  open_savers(snapshot.tensors);
  if (!to.saver) {
    ferry::save(files_, to.path, snapshot, *to.group, to.options);
    commit(to, iteration);
    return;
  }
  if (!arguments_.async_save) {
    to.ticket = to.saver->save(std::move(snapshot));
    to.ticket.wait();
    to.saver->finish();
    commit(to, iteration);
    return;
  }
  if (!to.pending.empty()) {
    print_(
        "WARNING: a checkpoint save starts before the previous one is on disk: consider a longer "
        "--save-interval\n");
  }
  to.ticket = to.saver->save(std::move(snapshot));
  to.pending.push_back(iteration);
  print_("  " + timed(fmt::format("scheduled an async checkpoint save at iteration {:7d} to {}",
                                  iteration, to.path)));
}

// An error of an earlier save ends the run, but later scheduled saves are completed first.
void RunFolderSink::complete_saves_on_error(const std::function<void()>& wait) {
  try {
    wait();
  } catch (const Error&) {
    for (Folder* const each : {persistent_.get(), other_.get()}) {
      if (each != nullptr && each->saver) finish_quietly(*each);
    }
    throw;
  }
}

void RunFolderSink::finish_quietly(Folder& folder) {
  try {
    folder.saver->finish();
  } catch (const Error&) {
    // Report only the first error.
  }
  const auto last = folder.saver->status().last_saved;
  if (last && std::ranges::find(folder.pending, *last) != folder.pending.end()) {
    commit(folder, *last);
  }
}

void RunFolderSink::wait_for_copy() {
  for (Folder* const each : {persistent_.get(), other_.get()}) {
    if (each == nullptr) continue;
    if (stager_ && !each->ticket.is_ready()) each->ticket.set_due(stager_->now());
    complete_saves_on_error([&] { each->ticket.wait(); });
  }
}

std::vector<int64_t> RunFolderSink::take_committed() {
  for (Folder* const each : {persistent_.get(), other_.get()}) {
    if (each == nullptr || !each->saver || each->pending.empty()) continue;
    const auto last = each->saver->status().last_saved;
    complete_saves_on_error([&] { each->saver->check(); });
    while (last && !each->pending.empty() && each->pending.front() <= *last) {
      commit(*each, each->pending.front());
      each->pending.pop_front();
    }
  }
  return std::exchange(committed_, {});
}

void RunFolderSink::finish(Folder& folder) {
  if (!folder.saver) return;
  complete_saves_on_error([&] {
    folder.ticket.wait();
    folder.saver->finish();
  });
  for (; !folder.pending.empty(); folder.pending.pop_front()) {
    commit(folder, folder.pending.front());
  }
}

void RunFolderSink::finish() {
  for (Folder* const each : {persistent_.get(), other_.get()}) {
    if (each != nullptr) finish(*each);
  }
  if (pruner_.joinable()) pruner_.join();
  if (!hook_) return;
  hook_->finish();
  // Iterations that were kept for the --after-save command.
  if (persistent_->retention && group_.rank() == 0) {
    prune(*persistent_, reason_to_stay(persistent_->others, persistent_->past, {}));
  }
}

void RunFolderSink::commit(Folder& folder, int64_t iteration) {
  report_pieces(folder);
  if (folder.is_persistent) committed_.push_back(iteration);
  print_("  " + timed(fmt::format("successfully saved checkpoint from iteration {:7d} to {} [ t "
                                  "1/{}, gtp_remat 1/1, p 1/{} ]",
                                  iteration, folder.path, arguments_.tensor_model_parallel_size,
                                  arguments_.pipeline_model_parallel_size)));
  if (hook_ && folder.is_persistent) hook_->saved(iteration, folder.path);
  if (group_.rank() != 0 || !folder.retention) return;
  if (pruner_.joinable()) pruner_.join();
  std::erase(folder.others, iteration);
  std::erase(folder.past, iteration);
  // Pending iterations may have the names of an earlier run's.
  std::vector<int64_t> written;
  for (const int64_t pending : folder.pending) {
    if (pending != iteration) written.push_back(pending);
  }
  const auto stays = [this, others = reason_to_stay(folder.others, folder.past, written)](
                         const std::string& path) -> std::string {
    const auto number = iteration_of(split_path(path).name);
    if (hook_ && number && hook_->uses(*number)) return "its --after-save command has not finished";
    return others(path);
  };
  // During the next steps: removing many large files takes time.
  pruner_ = std::jthread([this, &folder, stays] { prune(folder, stays); });
}

void RunFolderSink::make_room(const Folder& folder) {
  if (group_.rank() == 0) {
    ferry::make_room(files_, folder.path, arguments_.save_retain_interval,
                     reason_to_stay(folder.others, {}, {}), print_);
  }
  group_.barrier();  // the others start writing once there is space
}

// What cannot be removed now is tried again after a later save.
void RunFolderSink::prune(const Folder& folder, const ProblemOf& reason_to_stay) const {
  PruneOptions options;
  options.checks.reason_to_stay = reason_to_stay;
  try {
    ferry::prune(files_, folder.path, *folder.retention, options);
  } catch (const Error& error) {
    print_(
        fmt::format("WARNING: could not remove old checkpoints, will retry: {}\n", error.what()));
  }
}

}  // namespace ferry
