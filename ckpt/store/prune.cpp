#include "ckpt/store/prune.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <span>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/leftovers.h"
#include "ckpt/io/staging/processes.h"
#include "ckpt/io/staging/reader_lock.h"
#include "ckpt/io/staging/write_lock.h"
#include "ckpt/store/run_store.h"

namespace ferry {
namespace {

constexpr size_t kBatch = 64;  // iterations locked at once: each holds a lock file open
constexpr int kMostDepth = 16;

struct File {
  std::string path;
  uint64_t bytes = 0;
};

// The files at and below a path; links and what is too deep count as one file without bytes.
void walk(const FileSystem& file_system, const std::string& path, int depth,
          std::vector<File>& files) {
  const PathStatus status = file_system.status(path);
  if (status.kind != PathKind::folder || status.link || depth == 0) {
    files.push_back({path, status.link ? 0 : status.bytes});
    return;
  }
  try {
    for (const std::string& name : file_system.list(path)) {
      walk(file_system, join(path, name), depth - 1, files);
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::not_found) throw;  // renamed or removed meanwhile
  }
}

uint64_t bytes_below(const FileSystem& file_system, const std::string& path) {
  std::vector<File> files;
  walk(file_system, path, kMostDepth, files);
  uint64_t bytes = 0;
  for (const File& file : files) bytes += file.bytes;
  return bytes;
}

class Pruner {
 public:
  Pruner(std::shared_ptr<const FileSystem> file_system, const std::string& path,
         const Retention& retention, const PruneOptions& options)
      : file_system_(std::move(file_system)),
        store_(file_system_, path),
        retention_(retention),
        options_(options) {}

  PruneReport prune() {
    report_.dry_run = options_.dry_run;
    require_run();
    list_leftovers();
    if (!options_.dry_run) remove_leftovers();
    list_iterations();
    if (!options_.dry_run) remove_or_say_what();
    for (const PrunedItem& item : report_.iterations) report_.bytes += item.goes ? item.bytes : 0;
    for (const PrunedItem& item : report_.leftovers) report_.bytes += item.goes ? item.bytes : 0;
    return std::move(report_);
  }

 private:
  struct Victim {
    PrunedItem* item;
    std::unique_ptr<WriteLock> write_lock;
    bool others_may_lock = false;
  };

  std::string path_of(const std::string& name) const { return join(store_.path(), name); }

  void require_run() const {
    if (file_system_->status(store_.path()).kind != PathKind::folder) {
      fail(ErrorKind::not_found, "{} is not a folder", store_.path());
    }
    if (!is_run_folder(*file_system_, store_.path())) {
      fail(ErrorKind::not_found, "{} is not a run folder (no {}, no iter_* folder in it)",
           store_.path(), kTrackerName);
    }
  }

  void list_leftovers() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
    for (const Leftover& left : find_leftovers(*file_system_, store_.path(), {}, seconds)) {
      for (const std::string& name : left.names) {
        // The former iteration of an interrupted exchange is put back, not removed.
        const auto aside = parse_aside(name);
        const bool put_back =
            aside && aside->kind == Aside::old &&
            file_system_->status(path_of(left.target_name)).kind == PathKind::missing;
        const bool goes = left.removable() && !put_back;
        std::string reason = "left by " + left.who;
        if (left.life == Life::alive) reason = "of " + left.who + ", which runs";
        if (left.life == Life::unknown && !goes) reason += ", which may still run";
        if (put_back) reason = "put back as " + left.target_name;
        report_.leftovers.push_back({name, std::nullopt, goes, std::move(reason),
                                     bytes_below(*file_system_, path_of(name))});
      }
    }
  }

  void remove_leftovers() {
    report_.notes = store_.clean();
    for (PrunedItem& item : report_.leftovers) {
      const bool stands = file_system_->status(path_of(item.name)).kind != PathKind::missing;
      if (item.goes && stands) spare(item, item.reason + ", could not be removed");
    }
  }

  void list_iterations() {
    open_files_ = files_open_below(store_.path());
    const RunFolder run = store_.read();
    const std::string problem = problem_of_tracker(run);
    if (!problem.empty()) report_.notes.push_back(fmt::format("{} {}", kTrackerName, problem));
    for (const Retained& each : decide(*file_system_, run, retention_, options_.checks)) {
      PrunedItem item{each.folder.name, each.folder.iteration, each.goes, each.reason, 0};
      if (item.goes) {
        if (!each.folder.complete()) unfinished_.insert(item.name);
        item.bytes = bytes_below(*file_system_, path_of(item.name));
        if (std::string reason = why_in_use(item.name); !reason.empty()) spare(item, reason);
      }
      report_.iterations.push_back(std::move(item));
    }
  }

  // Who reads an iteration, or what was one, by ferry's locks and by what the system sees open.
  std::string why_in_use(const std::string& name) const {
    std::string unseen;
    if (is_being_read(*file_system_, path_of(name), &unseen)) return "being read";
    if (!unseen.empty()) return "it is unknown whether it is being read: " + unseen;
    const auto file =
        std::find_if(open_files_.begin(), open_files_.end(),
                     [&](const OpenFile& each) { return each.path.starts_with(join(name, "")); });
    if (file == open_files_.end()) return {};
    return fmt::format("in use: {} has {} open", file->who, split_path(file->path).name);
  }

  static void spare(PrunedItem& item, std::string reason) {
    item.goes = false;
    item.reason = std::move(reason);
  }

  // Each lock is a file of some hundred bytes.
  void remove_or_say_what() {
    try {
      remove();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::exhausted) throw;
      const auto first = std::ranges::find_if(report_.iterations, &PrunedItem::goes);
      if (first == report_.iterations.end()) throw;
      fail(error.kind(),
           "{}. prune needs a few hundred bytes itself; remove {}, which goes, by hand",
           error.what(), path_of(first->name));
    }
  }

  void remove() {
    std::vector<PrunedItem*> going;
    for (PrunedItem& item : report_.iterations) {
      if (item.goes) going.push_back(&item), progress_.bytes_total += item.bytes;
    }
    for (size_t begin = 0; begin < going.size() && !is_stopped(); begin += kBatch) {
      const size_t count = std::min(kBatch, going.size() - begin);
      auto victims = set_aside(std::span(going).subspan(begin, count));
      if (!victims.empty()) remove_or_put_back(victims);
    }
    if (stopped_) fail_stopped(going.size());
  }

  // Whoever stops it finds what was not begun where it was.
  void remove_or_put_back(std::span<Victim> victims) {
    if (!is_stopped()) {
      file_system_->sync_folder(store_.path());
      for (Victim& victim : victims) let_others_lock(victim);
    }
    size_t begun = 0;
    for (; begun < victims.size() && !is_stopped(); ++begun) {
      if (!remove_trash(victims[begun].write_lock->trash_path())) break;
      if (stopped_) remaining_.push_back(victims[begun].item->name);
    }
    removed_ += begun;
    if (begun == victims.size()) return;
    for (const Victim& victim : victims.subspan(begun)) put_back(victim);
    file_system_->sync_folder(store_.path());
  }

  static void let_others_lock(Victim& victim) {
    victim.write_lock->let_others_lock();
    victim.others_may_lock = true;
  }

  // Never over what another put there meanwhile.
  void put_back(const Victim& victim) {
    const std::string path = path_of(victim.item->name);
    try {
      std::optional<WriteLock> again;
      if (victim.others_may_lock) {
        again.emplace(file_system_, path, WriteLockOptions{.to_remove = true});
      }
      file_system_->rename(victim.write_lock->trash_path(), path);
    } catch (const Error&) {
      ++removed_;
      remaining_.push_back(victim.item->name);
    }
  }

  // Renames a batch while nobody else can move the tracker, so that it cannot come to name one.
  std::vector<Victim> set_aside(std::span<PrunedItem* const> batch) {
    WriteLockOptions wait;
    wait.wait_seconds = kTrackerWaitSeconds;
    const WriteLock tracker(file_system_, path_of(std::string(kTrackerName)), wait);
    const RunFolder run = store_.read();
    std::vector<Victim> victims;
    for (PrunedItem* item : batch) {
      if (is_stopped()) return victims;
      const IterationFolder* latest = run.latest();
      if (latest && latest->name == item->name) {
        spare(*item, "the latest by now");
      } else if (run.tracker.state == Tracker::State::iteration &&
                 run.tracker.iteration == item->iteration) {
        spare(*item, "the tracker names it by now");
      } else if (auto write_lock = rename_to_trash(*item)) {
        victims.push_back({item, std::move(write_lock)});
      }
    }
    // Those who came between the look and the renaming hold on to what they opened.
    open_files_ = files_open_below(store_.path());
    std::erase_if(victims, [&](const Victim& victim) { return put_back_if_in_use(victim); });
    return victims;
  }

  bool put_back_if_in_use(const Victim& victim) {
    const std::string trash = victim.write_lock->trash_path();
    std::string reason = why_in_use(split_path(trash).name);
    if (reason.empty()) return false;
    file_system_->rename(trash, path_of(victim.item->name));
    spare(*victim.item, std::move(reason));
    return true;
  }

  bool is_complete(const std::string& name) const {
    const RunFolder run = store_.read();
    return std::ranges::any_of(run.iterations, [&](const IterationFolder& each) {
      return each.name == name && each.complete();
    });
  }

  // The lock, or nothing when the iteration has to stay.
  std::unique_ptr<WriteLock> rename_to_trash(PrunedItem& item) {
    const std::string path = path_of(item.name);
    try {
      auto write_lock =
          std::make_unique<WriteLock>(file_system_, path, WriteLockOptions{.to_remove = true});
      if (unfinished_.contains(item.name) && is_complete(item.name)) {
        spare(item, "finished meanwhile");
        return nullptr;
      }
      if (std::string reason = why_in_use(item.name); !reason.empty()) {
        spare(item, std::move(reason));
        return nullptr;
      }
      file_system_->rename(path, write_lock->trash_path());
      return write_lock;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::busy && error.kind() != ErrorKind::not_found) throw;
      spare(item, error.kind() == ErrorKind::busy ? std::string(error.what()) : "gone already");
    }
    return nullptr;
  }

  // False where it is stopped before anything is deleted; where it is later, a part stays.
  bool remove_trash(const std::string& trash) {
    std::vector<File> files;
    walk(*file_system_, trash, kMostDepth, files);
    for (const File& file : files) {
      if (is_stopped()) return &file != &files.front();
      file_system_->remove_all(file.path);
      progress_.bytes_done += file.bytes;
      if (options_.progress) options_.progress(progress_);
    }
    file_system_->remove_all(trash);
    return true;
  }

  // Asked only where something is still to be done: once it is true, something was not.
  bool is_stopped() {
    stopped_ = stopped_ || (options_.cancel && *options_.cancel);
    return stopped_;
  }

  [[noreturn]] void fail_stopped(size_t count) const {
    if (removed_ == 0) fail(ErrorKind::cancelled, "stopped on request: no iteration was removed");
    std::string rest;
    if (!remaining_.empty()) {
      rest = fmt::format("; what is left of {} goes with the next prune or save",
                         fmt::join(remaining_, ", "));
    }
    fail(ErrorKind::cancelled,
         "stopped on request: {} of the {} iterations that were to go {} removed{}", removed_,
         count, removed_ == 1 ? "is" : "are", rest);
  }

  std::shared_ptr<const FileSystem> file_system_;
  RunStore store_;
  const Retention& retention_;
  const PruneOptions& options_;
  std::set<std::string> unfinished_;  // when it was decided what goes
  std::vector<OpenFile> open_files_;  // of other processes, when it was last looked
  PruneReport report_;
  Progress progress_;
  bool stopped_ = false;
  size_t removed_ = 0;                  // iterations, also those of which a part is still set aside
  std::vector<std::string> remaining_;  // those
};

}  // namespace

PruneReport prune(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                  const Retention& retention, const PruneOptions& options) {
  return Pruner(std::move(file_system), path, retention, options).prune();
}

}  // namespace ferry
