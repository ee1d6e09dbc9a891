#include "ckpt/integrity/run_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// Where choose_iteration() found none to open.
const IterationFolder* best_there(const RunFolder& run) {
  if (const IterationFolder* latest = run.latest()) return latest;
  const IterationFolder* tracked =
      run.tracker.state == Tracker::State::iteration ? run.find(run.tracker.iteration) : nullptr;
  if (tracked) return tracked;
  const auto numbered =
      std::find_if(run.iterations.rbegin(), run.iterations.rend(),
                   [](const IterationFolder& folder) { return folder.iteration; });
  return numbered != run.iterations.rend() ? &*numbered : run.find_release();
}

const IterationFolder* requested_there(const RunFolder& run, const std::string& requested) {
  for (const IterationFolder& folder : run.iterations) {
    const std::string number = folder.iteration ? std::to_string(*folder.iteration) : "";
    if (requested == folder.name || requested == number) return &folder;
  }
  return &choose_iteration(run, requested, nullptr);  // says what is wrong
}

}  // namespace

// The tracker is checked even where the iteration is chosen otherwise.
RunChoice choose_to_verify(const FileSystem& file_system, const std::string& path,
                           const std::string& requested) {
  const RunFolder run = read_run_folder(file_system, path);
  const IterationFolder* chosen = nullptr;
  std::vector<Problem> problems;
  std::vector<std::string> notes;
  try {
    std::string note;
    chosen = &choose_iteration(run, {}, &note);
    if (!note.empty()) notes.push_back(std::move(note));
  } catch (const Error& error) {
    chosen = best_there(run);
    if (!chosen) throw;
    problems.push_back({std::string(kTrackerName), 0, 0, {}, error.what()});
    if (requested.empty()) notes.push_back("checked: " + chosen->name);
  }
  if (!requested.empty()) chosen = requested_there(run, requested);
  for (const IterationFolder& folder : run.iterations) {
    if (folder.complete()) continue;
    std::string what =
        fmt::format("{} is unfinished: {}", join(path, folder.name), folder.unfinished());
    if (&folder == chosen) {
      problems.push_back({{}, 0, 0, {}, std::move(what)});
    } else {
      notes.push_back(std::move(what));
    }
  }
  return {*chosen, std::move(problems), std::move(notes)};
}

}  // namespace ferry
