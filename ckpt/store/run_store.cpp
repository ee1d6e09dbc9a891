#include "ckpt/store/run_store.h"

#include <chrono>
#include <set>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/leftovers.h"
#include "ckpt/io/staging/publish.h"

namespace ferry {
namespace {

std::string folder_name(std::optional<int64_t> iteration) {
  return iteration ? iteration_folder_name(*iteration) : std::string(kReleaseName);
}

std::string word(std::optional<int64_t> iteration) {
  return iteration ? std::to_string(*iteration) : std::string(kReleaseName);
}

// Why the tracker should stay as it is; empty: it should name the new iteration.
std::string why_stay(const RunFolder& run, std::optional<int64_t> iteration, TrackerMove move) {
  if (move == TrackerMove::always || !problem_of_tracker(run).empty()) return {};
  const Tracker& tracker = run.tracker;
  if (tracker.state == Tracker::State::missing) return {};
  const bool later =
      tracker.state == Tracker::State::iteration && (!iteration || tracker.iteration > *iteration);
  if (!later) return {};
  return fmt::format("{} still names iteration {}, which is later than {}", kTrackerName,
                     tracker.iteration, word(iteration));
}

bool names(const Tracker& tracker, std::optional<int64_t> iteration) {
  if (!iteration) return tracker.state == Tracker::State::release;
  return tracker.state == Tracker::State::iteration && tracker.iteration == *iteration;
}

}  // namespace

struct StagedIteration::State {
  std::shared_ptr<const FileSystem> file_system;
  RunStore run;
  std::optional<int64_t> iteration;
  TrackerMove tracker = TrackerMove::forward;
  std::unique_ptr<StagedFolder> staged;
  bool whole_run = false;  // the staged folder is the run folder, which was missing
  std::string path, target;
  std::vector<std::string> notes;
};

StagedIteration::StagedIteration(std::unique_ptr<State> state) : state_(std::move(state)) {}
StagedIteration::StagedIteration(StagedIteration&&) noexcept = default;
StagedIteration& StagedIteration::operator=(StagedIteration&&) noexcept = default;
StagedIteration::~StagedIteration() = default;

const std::string& StagedIteration::path() const noexcept { return state_->path; }
const std::string& StagedIteration::target() const noexcept { return state_->target; }
const std::vector<std::string>& StagedIteration::notes() const noexcept { return state_->notes; }

void StagedIteration::write_file(const std::string& name, const std::string& content) {
  ferry::write_file(*state_->file_system, join(state_->path, name), content);
}

// The run folder as a whole. Where it is there by now, made by another first save, a logger or
// hand, the iteration alone, and its lock.
std::unique_ptr<WriteLock> StagedIteration::commit_run(State& state) {
  if (state.tracker != TrackerMove::never) {
    state.staged->write_file(std::string(kTrackerName), word(state.iteration));
  }
  try {
    state.staged->commit();
    return nullptr;
  } catch (const Error& error) {
    const bool is_there = state.file_system->status(state.run.path()).kind == PathKind::folder;
    if (error.kind() != ErrorKind::invalid || !is_there) throw;
  }
  auto write_lock = std::make_unique<WriteLock>(state.file_system, state.target);
  StagedFolder::check_target(*state.file_system, state.target, false);
  state.file_system->rename(state.path, state.target);
  state.file_system->sync_folder(state.run.path());
  return write_lock;
}

void StagedIteration::commit() {
  State& state = *state_;
  // Until the tracker moved: nobody prunes the iteration before.
  const auto write_lock = state.whole_run ? commit_run(state) : state.staged->commit();
  state.staged.reset();
  if (!write_lock) return;
  if (state.tracker == TrackerMove::never) return;
  try {
    std::string note = state.run.move_tracker(state.iteration, state.tracker);
    if (!note.empty()) state.notes.push_back(std::move(note));
  } catch (const Error& error) {
    fail(error.kind(), "{} is written and complete, but its tracker is not: {}", state.target,
         error.what());
  }
}

RunStore::RunStore(std::shared_ptr<const FileSystem> file_system, std::string path)
    : file_system_(std::move(file_system)), path_(std::move(path)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
}

RunFolder RunStore::read() const { return read_run_folder(*file_system_, path_); }

StagedIteration RunStore::begin(std::optional<int64_t> iteration,
                                const BeginOptions& options) const {
  if (iteration && *iteration < 0) {
    fail(ErrorKind::invalid, "{}: {} is not an iteration; the first is 0", path_, *iteration);
  }
  if (!options.folder.empty() && options.tracker != TrackerMove::never) {
    fail(ErrorKind::internal, "a tracker cannot name folder {}", options.folder);
  }
  const std::string name = options.folder.empty() ? folder_name(iteration) : options.folder;
  auto state = std::make_unique<StagedIteration::State>(StagedIteration::State{
      file_system_, *this, iteration, options.tracker, nullptr, false, {}, {}, {}});
  state->whole_run = file_system_->status(path_).kind == PathKind::missing;
  state->target = join(path_, name);
  if (state->whole_run) {
    try {
      state->staged = std::make_unique<StagedFolder>(file_system_, path_, false);
      state->path = join(state->staged->path(), name);
      file_system_->create_folder(state->path);
    } catch (const Error& error) {
      // There by now, of another first save or made by hand.
      const bool is_there = file_system_->status(path_).kind == PathKind::folder;
      if (error.kind() != ErrorKind::invalid || !is_there) throw;
      state->whole_run = false;
    }
  }
  if (!state->whole_run) {
    state->notes = clean();
    state->staged = std::make_unique<StagedFolder>(file_system_, state->target, options.overwrite);
    state->path = state->staged->path();
  }
  const auto& kept = state->staged->notes();
  state->notes.insert(state->notes.end(), kept.begin(), kept.end());
  return StagedIteration(std::move(state));
}

std::string RunStore::move_tracker(std::optional<int64_t> iteration, TrackerMove move) const {
  const std::string tracker = join(path_, std::string(kTrackerName));
  WriteLockOptions options;
  options.wait_seconds = kTrackerWaitSeconds;
  const WriteLock write_lock(file_system_, tracker, options);
  const RunFolder run = read();
  const IterationFolder* folder = iteration ? run.find(*iteration) : run.find_release();
  if (!folder || !folder->complete()) {
    fail(ErrorKind::not_found, "{}: the tracker cannot name {}, which is {}", path_,
         word(iteration), folder ? "unfinished (" + folder->unfinished() + ")" : "not there");
  }
  if (move == TrackerMove::never || names(run.tracker, iteration)) return {};
  const std::string stay = why_stay(run, iteration, move);
  if (!stay.empty()) return stay;
  publish_file(*file_system_, write_lock, tracker, word(iteration), Existing::replace,
               fmt::format("it names {} now", word(iteration)));
  return {};
}

std::vector<std::string> RunStore::clean() const {
  std::vector<std::string> notes;
  clean_around(path_, {}, notes);
  // For a first save, which stages the run folder itself.
  const SplitPath parts = split_path(path_);
  try {
    clean_around(parts.parent, parts.name, notes);
  } catch (const Error&) {
    // A parent that may not be listed.
  }
  return notes;
}

// Locks each target next to which a dead writer left something: that removes it.
void RunStore::clean_around(const std::string& folder, const std::string& target_name,
                            std::vector<std::string>& notes) const {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  std::set<std::string> targets;
  for (const Leftover& left : find_leftovers(*file_system_, folder, target_name, seconds)) {
    if (left.removable()) {
      targets.insert(left.target_name);
    } else if (left.life == Life::unknown && !left.names.empty()) {
      notes.push_back(fmt::format("{} of {} is kept: it is unknown whether that still runs",
                                  join(folder, left.names[0]), left.who));
    }
  }
  for (const std::string& target : targets) {
    try {
      const WriteLock write_lock(file_system_, join(folder, target), {.to_remove = true});
      notes.insert(notes.end(), write_lock.notes().begin(), write_lock.notes().end());
    } catch (const Error& error) {
      // busy: another process locked it meanwhile, and removes the same.
      if (error.kind() != ErrorKind::busy) notes.emplace_back(error.what());
    }
  }
}

}  // namespace ferry
