#include "ckpt/store/run_folder.h"

#include <algorithm>
#include <charconv>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/lock_record.h"

namespace ferry {
namespace {

constexpr std::string_view kPrefix = "iter_";
constexpr std::string_view kManifestFile =
    "ferry.manifest.json";  // of ckpt/integrity/manifest/manifest.h
constexpr uint64_t kTrackerLimit = 4096;
constexpr uint64_t kMetadataLimit = uint64_t{256} << 20;

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && !text.empty() && number >= 0 ? std::optional(number) : std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80)) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

bool is_there(const FileSystem& file_system, const std::string& folder, std::string_view name) {
  return file_system.status(join(folder, std::string(name))).kind == PathKind::file;
}

// Megatron-LM's own objects in the pickle distinguish its torch_dist from a plain PyTorch
// checkpoint, which has no metadata.json.
bool is_torch_dist(const FileSystem& file_system, const std::string& folder) {
  if (is_there(file_system, folder, "common.pt")) return true;
  const std::string path = join(folder, ".metadata");
  if (file_system.status(path).bytes > kMetadataLimit) return false;
  return read_file(file_system, path, kMetadataLimit).find("/shard_") != std::string::npos;
}

// Whether metadata.json names no other backend, as zarr.
bool is_of_torch_dist(const FileSystem& file_system, const std::string& folder) {
  const std::string path = join(folder, "metadata.json");
  if (file_system.status(path).bytes > kMetadataLimit) return true;
  return read_file(file_system, path, kMetadataLimit).find("\"zarr\"") == std::string::npos;
}

// By the files that each format writes last.
std::string what_is_missing(const FileSystem& file_system, const std::string& folder) {
  bool has_data = false, has_legacy = false, has_manifest = false;
  const std::vector<std::string> names = file_system.list(folder);
  if (names.empty()) return "the folder is empty";
  // slime with FSDP keeps model and optimizer in checkpoints of their own.
  if (is_there(file_system, join(folder, "model"), ".metadata")) return {};
  for (const std::string& name : names) {
    if (name.ends_with(".distcp") || name == "common.pt") has_data = true;
    if (name == kManifestFile) has_manifest = true;
    if (!name.starts_with("mp_rank_")) continue;
    has_legacy = true;
    const std::string rank = join(folder, name);
    if (!is_there(file_system, rank, "model_optim_rng.pt") &&
        !is_there(file_system, rank, "model_rng.pt")) {
      return fmt::format("no model_optim_rng.pt in {}", name);
    }
  }
  if (has_legacy) return {};
  const bool has_metadata = is_there(file_system, folder, ".metadata");
  const bool has_config = is_there(file_system, folder, "metadata.json");
  // ferry's manifest is the last file of all.
  if (has_metadata && (has_config || has_manifest || !is_torch_dist(file_system, folder))) {
    return {};
  }
  if (has_metadata) return "no metadata.json, which is written last";
  // Another backend's store has no .metadata; who opens it says what it is.
  if (has_config) return is_of_torch_dist(file_system, folder) ? "no .metadata" : "";
  return has_data ? "neither .metadata nor metadata.json, which are written last"
                  : "no checkpoint in it";
}

// What keeps an iteration folder from being loadable.
std::string why_unfinished(const FileSystem& file_system, const std::string& folder) {
  try {
    return what_is_missing(file_system, folder);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::not_found) throw;
    return "removed meanwhile";
  }
}

Tracker read_tracker(const FileSystem& file_system, const std::string& path) {
  const PathStatus status = file_system.status(path);
  if (status.kind == PathKind::missing) return {};
  if (status.kind != PathKind::file) return {Tracker::State::unreadable, 0, "(not a file)"};
  if (status.bytes > kTrackerLimit) return {Tracker::State::unreadable, 0, "(too long)"};
  return parse_tracker(read_file(file_system, path, kTrackerLimit));
}

std::string argument(const IterationFolder& folder) {
  return folder.iteration ? std::to_string(*folder.iteration) : std::string(kReleaseName);
}

// "Complete there: 5, 10. Unfinished: 15 (no .metadata). Choose one with --iteration 10"
std::string what_is_there(const RunFolder& run) {
  std::vector<const IterationFolder*> complete;
  std::string unfinished;
  size_t unfinished_count = 0;
  for (const IterationFolder& folder : run.iterations) {
    if (folder.complete()) {
      complete.push_back(&folder);
    } else if (unfinished_count++ < 4) {
      unfinished += fmt::format("{}{} ({})", unfinished.empty() ? "" : ", ", argument(folder),
                                folder.unfinished());
    }
  }
  if (run.iterations.empty()) return "It holds no iteration folder (iter_0000100 or release)";
  std::string text;
  if (complete.empty()) {
    text = "No iteration there is complete";
  } else {
    text = "Complete there: ";
    // The latest are the ones that are asked for.
    const size_t skipped = complete.size() > 10 ? complete.size() - 10 : 0;
    if (skipped > 0) text += fmt::format("{} older ones, ", skipped);
    for (size_t i = skipped; i < complete.size(); ++i) {
      text += (i > skipped ? ", " : "") + argument(*complete[i]);
    }
  }
  if (!unfinished.empty()) {
    text += ". Unfinished: " + unfinished;
    if (unfinished_count > 4) text += fmt::format(" and {} more", unfinished_count - 4);
  }
  if (!complete.empty()) {
    text += fmt::format("; choose one with {}", option("iteration", argument(*complete.back())));
  }
  return text;
}

const IterationFolder& require(const RunFolder& run, const IterationFolder* folder,
                               const std::string& named, std::string_view who_asks) {
  if (!folder) {
    fail(ErrorKind::not_found, "{}: {} {}, which is not there. {}", run.path, who_asks, named,
         what_is_there(run));
  }
  if (!folder->complete()) {
    fail(ErrorKind::not_found, "{}: {} {}, which is unfinished ({}). {}", run.path, who_asks, named,
         folder->unfinished(), what_is_there(run));
  }
  return *folder;
}

const IterationFolder& choose_requested(const RunFolder& run, std::string_view requested) {
  const std::string named(requested);
  const std::string who = fmt::format("{} asks for", option("iteration"));
  if (requested == kReleaseName) return require(run, run.find_release(), named, who);
  auto number = iteration_of(requested);
  if (!number) number = parse_number(requested);
  if (!number) {
    fail(ErrorKind::invalid, "{} takes a number or the word release, not '{}'", option("iteration"),
         printable(requested));
  }
  return require(run, run.find(*number), named, who);
}

const IterationFolder& choose_without_tracker(const RunFolder& run, std::string* note) {
  const IterationFolder* only = nullptr;
  size_t complete = 0;
  for (const IterationFolder& folder : run.iterations) {
    if (folder.complete()) ++complete, only = &folder;
  }
  if (complete != 1) {
    fail(ErrorKind::not_found, "{}: no {} in it, so the iteration is open. {}", run.path,
         kTrackerName, what_is_there(run));
  }
  if (note)
    *note = fmt::format("no {}: took {}, the only complete iteration", kTrackerName, only->name);
  return *only;
}

}  // namespace

std::string iteration_folder_name(int64_t iteration) {
  return fmt::format("iter_{:07d}", iteration);
}

std::optional<int64_t> iteration_of(std::string_view folder_name) {
  if (!folder_name.starts_with(kPrefix)) return std::nullopt;
  return parse_number(folder_name.substr(kPrefix.size()));
}

const IterationFolder* RunFolder::find(int64_t iteration) const {
  const IterationFolder* found = nullptr;
  for (const IterationFolder& folder : iterations) {
    if (folder.iteration != iteration) continue;
    if (folder.name == iteration_folder_name(iteration)) return &folder;
    found = &folder;
  }
  return found;
}

const IterationFolder* RunFolder::find_release() const {
  for (const IterationFolder& folder : iterations) {
    if (!folder.iteration) return &folder;
  }
  return nullptr;
}

const IterationFolder* RunFolder::latest() const {
  const IterationFolder* release = nullptr;
  for (auto folder = iterations.rbegin(); folder != iterations.rend(); ++folder) {
    if (folder->iteration && folder->complete()) return &*folder;
    if (!folder->iteration) release = &*folder;
  }
  return release && release->complete() ? release : nullptr;
}

std::string problem_of_tracker(const RunFolder& run) {
  const auto problem_of = [](const std::string& named, const IterationFolder* folder) {
    if (!folder) return fmt::format("names {}, which is not there", named);
    if (folder->complete()) return std::string();
    return fmt::format("names {}, which is unfinished ({})", named, folder->unfinished());
  };
  switch (run.tracker.state) {
    case Tracker::State::missing:
      return {};
    case Tracker::State::unreadable:
      return run.tracker.content.empty() ? "is empty" : "holds '" + run.tracker.content + "'";
    case Tracker::State::release:
      return problem_of(std::string(kReleaseName), run.find_release());
    case Tracker::State::iteration:
      return problem_of("iteration " + std::to_string(run.tracker.iteration),
                        run.find(run.tracker.iteration));
  }
  return {};
}

bool is_run_folder(const FileSystem& file_system, const std::string& path) {
  const std::vector<std::string> names = file_system.list(path);
  const auto is_checkpoint_file = [](const std::string& name) {
    return name == ".metadata" || name == "metadata.json";
  };
  if (std::any_of(names.begin(), names.end(), is_checkpoint_file)) return false;
  for (const std::string& name : names) {
    if (name == kTrackerName) return true;
    if (!iteration_of(name) && name != kReleaseName) continue;
    const std::string folder = join(path, name);
    if (file_system.status(folder).kind != PathKind::folder) continue;
    // "release" is a common name: only one with a checkpoint in it makes a run.
    if (name != kReleaseName || why_unfinished(file_system, folder).empty()) return true;
  }
  return false;
}

RunFolder read_run_folder(const FileSystem& file_system, const std::string& path) {
  RunFolder run;
  run.path = path;
  run.tracker = read_tracker(file_system, join(path, std::string(kTrackerName)));
  for (const std::string& name : file_system.list(path)) {
    // While an iteration is replaced, or when its writer died then, the former one may be set
    // aside.
    const auto aside = parse_aside(name);
    if (aside && aside->kind != Aside::old) continue;
    const std::string own_name = aside ? aside->target_name : name;
    if (aside && file_system.status(join(path, own_name)).kind != PathKind::missing) continue;
    const auto iteration = iteration_of(own_name);
    if (!iteration && own_name != kReleaseName) continue;
    const std::string folder = join(path, name);
    if (file_system.status(folder).kind != PathKind::folder) continue;
    run.iterations.push_back(
        {name, iteration, [&file_system, folder] { return why_unfinished(file_system, folder); }});
  }
  std::stable_sort(run.iterations.begin(), run.iterations.end(),
                   [](const IterationFolder& a, const IterationFolder& b) {
                     return a.iteration.value_or(INT64_MAX) < b.iteration.value_or(INT64_MAX);
                   });
  return run;
}

Tracker parse_tracker(std::string_view content) {
  const std::string_view text = trimmed(content);
  Tracker tracker;
  tracker.content = printable(text);
  if (const auto number = parse_number(text)) {
    tracker.state = Tracker::State::iteration;
    tracker.iteration = *number;
  } else {
    tracker.state = text == kReleaseName ? Tracker::State::release : Tracker::State::unreadable;
  }
  return tracker;
}

const IterationFolder& choose_iteration(const RunFolder& run, std::string_view requested,
                                        std::string* note) {
  if (!requested.empty()) return choose_requested(run, requested);
  constexpr std::string_view kWho = "the tracker names iteration";
  switch (run.tracker.state) {
    case Tracker::State::missing:
      return choose_without_tracker(run, note);
    case Tracker::State::release:
      return require(run, run.find_release(), "release", kWho);
    case Tracker::State::unreadable:
      fail(ErrorKind::corrupt, "{}: {} should hold a number or the word release, but {}. {}",
           run.path, kTrackerName,
           run.tracker.content.empty() ? "is empty" : "holds '" + run.tracker.content + "'",
           what_is_there(run));
    case Tracker::State::iteration:
      break;
  }
  const std::string number = std::to_string(run.tracker.iteration);
  const IterationFolder& chosen = require(run, run.find(run.tracker.iteration), number, kWho);
  for (auto later = run.iterations.rbegin(); note && later != run.iterations.rend(); ++later) {
    if (!later->iteration) continue;
    if (*later->iteration <= *chosen.iteration) break;
    if (!later->complete()) continue;
    *note = fmt::format("{} is there and complete, but the tracker names iteration {}", later->name,
                        *chosen.iteration);
    break;
  }
  return chosen;
}

}  // namespace ferry
