#include "trainer/language/source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "ckpt/integrity/soundness.h"
#include "ckpt/megatron/state/norm_names.h"
#include "ckpt/megatron/state/vocabulary.h"
#include "ckpt/megatron/state_of.h"
#include "ckpt/memory/load.h"
#include "ckpt/store/run_folder.h"
#include "convert/arguments/arguments.h"
#include "convert/check/names.h"
#include "convert/config/expressible.h"
#include "convert/import.h"
#include "trainer/arguments/namespace.h"
#include "trainer/arguments/option_words.h"
#include "trainer/arguments/parse.h"
#include "trainer/checkpoint/run_checkpoint.h"
#include "trainer/checkpoint/run_folder_sink.h"
#include "trainer/data/open_datasets.h"
#include "trainer/language/options.h"
#include "trainer/language/sample_warnings.h"

namespace ferry {

namespace {

bool is_there(const FileSystem& files, const std::string& path) {
  return files.status(path).kind != PathKind::missing;
}

// The latest complete iteration, if any.
std::optional<int64_t> latest_in(const FileSystem& files, const std::string& folder) {
  if (folder.empty() || !is_there(files, folder) || !is_run_folder(files, folder)) {
    return std::nullopt;
  }
  const RunFolder run = read_run_folder(files, folder);
  const IterationFolder* const latest = run.latest();
  return latest == nullptr ? std::nullopt : latest->iteration;
}

// "release": converted or published weights to start from.
bool is_release(const FileSystem& files, const std::string& path) {
  if (!is_run_folder(files, path)) return false;
  const RunFolder run = read_run_folder(files, path);
  if (run.tracker.state != Tracker::State::missing) {
    return run.tracker.state == Tracker::State::release;
  }
  return run.latest() != nullptr && !run.latest()->iteration;
}

// Whether there is something to open; a run folder may be empty or not exist yet.
bool holds_checkpoint(const FileSystem& files, const std::string& path) {
  if (path.empty() || !is_there(files, path)) return false;
  if (!is_run_folder(files, path)) return format_of_folder(files, path).has_value();
  return read_run_folder(files, path).latest() != nullptr;
}

bool is_hugging_face(const FileSystem& files, const std::string& path) {
  return !is_run_folder(files, path) && format_of_folder(files, path) == Format::hugging_face;
}

OpenOptions open_options(const SourcePlace& place) {
  OpenOptions options;
  options.iteration = place.iteration;
  return options;
}

ImportOptions import_options(const TrainArguments& arguments) {
  ImportOptions options;
  options.layout.tensor = arguments.tensor_model_parallel_size;
  options.make_vocab_size_divisible_by = arguments.make_vocab_size_divisible_by;
  return options;
}

// Runs `open` and rephrases its errors with arguments.
template <typename Open>
Checkpoint in_own_words(const Open& open) {
  try {
    return open();
  } catch (const Error& error) {
    const std::string message = in_arguments(error.what());
    if (message == error.what()) throw;
    throw SharedError(error.kind(), message);
  }
}

// Reports what is missing where a run was to start.
[[noreturn]] void fail_missing(const std::string& flag, const std::string& path,
                               const std::string& why) {
  fail(ErrorKind::not_found, "{} {}: there is no checkpoint{}", flag, path, why);
}

// --verify-integrity: reads all bytes and compares them with their recorded digests.
void check_bytes(const std::shared_ptr<const FileSystem>& files, const std::string& path,
                 Group& group) {
  from_first_together(group, [&] {
    const std::string problem = problem_by_bytes(files, path, {});
    if (!problem.empty()) {
      fail(ErrorKind::corrupt,
           "{}: {}; copy the checkpoint again, or start from an earlier one (--ckpt-step)", path,
           problem);
    }
    return std::string();
  });
}

RunState state_for(const Checkpoint& checkpoint, const TrainArguments& arguments) {
  const bool is_model = checkpoint.format == Format::hugging_face;
  RunState state =
      is_model ? import_state(checkpoint, import_options(arguments)) : state_of(checkpoint);
  if (!is_model) {
    set_vocabulary_rows(state, arguments.padded_vocab_size.value_or(0), checkpoint.path);
  }
  // Names under which Megatron-LM finds tensors in what the run saves. A run that keeps its modules
  // keeps its names: the program that saved it looks for those.
  const bool local = arguments.transformer_impl == "local";
  const bool other_modules = state.args.run.transformer_engine == local;
  const bool by_modules = arguments.ckpt_format == "torch";
  if (is_model || other_modules || by_modules) name_norms(state, !local);
  return state;
}

}  // namespace

std::optional<SourcePlace> find_source(const FileSystem& files, const TrainArguments& arguments) {
  const std::string& load = arguments.load;
  if (arguments.ckpt_step) {
    if (load.empty()) return std::nullopt;
    return SourcePlace{load, std::to_string(*arguments.ckpt_step), arguments.finetune};
  }
  if (!load.empty()) {
    const std::string other = non_persistent_folder(arguments, load);
    const auto later = latest_in(files, other);
    if (later && *later > latest_in(files, load).value_or(-1)) {
      return SourcePlace{other, std::to_string(*later), arguments.finetune};
    }
    if (holds_checkpoint(files, load)) {
      const bool is_model = is_hugging_face(files, load) || is_release(files, load);
      return SourcePlace{load, {}, arguments.finetune || is_model};
    }
  }
  if (!arguments.pretrained_checkpoint.empty()) {
    if (!holds_checkpoint(files, arguments.pretrained_checkpoint)) {
      fail_missing("--pretrained-checkpoint", arguments.pretrained_checkpoint, "");
    }
    return SourcePlace{arguments.pretrained_checkpoint, {}, true};
  }
  if (!load.empty() && arguments.exit_on_missing_checkpoint) {
    fail_missing("--load", load, ", and --exit-on-missing-checkpoint was given");
  }
  return std::nullopt;
}

void check_save_folder(const FileSystem& files, const std::string& folder) {
  const std::string_view path(folder.data(), folder.find_last_not_of('/') + 1);
  const auto refuse = [&](std::string_view what) {
    fail(ErrorKind::invalid, "--save {} {}; give a run folder, which contains iterations", folder,
         what);
  };
  if (path.empty()) return;
  if (iteration_of(split_path(std::string(path)).name)) refuse("is the folder of an iteration");
  if (files.status(std::string(path)).kind == PathKind::file) refuse("is a file");
  if (!is_there(files, folder) || is_run_folder(files, folder)) return;
  if (format_of_folder(files, folder)) refuse("holds a checkpoint that a run would hide");
}

namespace {

// Before single arguments of such a model are refused.
void check_trainable(const Value& args, const std::string& path) {
  if (args.is_none()) return;
  std::vector<std::string> reasons;
  try {
    reasons = untrainable_reasons(read_arguments(args, path).architecture);
  } catch (const Error&) {
    return;  // the arguments of the command line may complete them
  }
  if (reasons.empty()) return;
  fail(ErrorKind::unsupported, "{}: this model cannot be trained: {}", path,
       fmt::join(reasons, "; "));
}

}  // namespace

void adopt_source_arguments(const std::shared_ptr<const FileSystem>& files,
                            const std::vector<std::string>& words, TrainArguments& arguments,
                            std::vector<std::string>& notes) {
  const auto place = find_source(*files, arguments);
  if (!place) return;
  const bool is_model = is_hugging_face(*files, place->path);
  if (!is_model && !arguments.use_checkpoint_args) return;
  const Checkpoint checkpoint =
      in_own_words([&] { return open_model(files, place->path, open_options(*place)); });
  if (!is_model) {
    check_trainable(checkpoint.args.value, checkpoint.path);
    adopt_checkpoint_arguments(arguments, checkpoint.args.value, checkpoint.path, notes);
    return;
  }
  const Import import = import_model(checkpoint, import_options(arguments));
  check_trainable(import.state.args.value, checkpoint.path);
  std::vector<std::string> all;
  for (const std::string& flag : import.flags) {
    for (std::string& word : split_words(flag, checkpoint.path)) all.push_back(std::move(word));
  }
  all.insert(all.end(), words.begin(), words.end());
  arguments = parse_arguments(all, *files);
  adopt_checkpoint_arguments(arguments, import.state.args.value, checkpoint.path, notes);
  notes.insert(notes.end(), import.state.warnings.begin(), import.state.warnings.end());
}

namespace {

// A run folder below `folder`, which was given instead; empty if none is found.
std::string run_below(const FileSystem& files, const std::string& folder) {
  constexpr int kLevels = 3;
  size_t left = 1000;  // folders to search
  std::vector<std::string> level = {folder};
  for (int depth = 0; depth < kLevels; ++depth) {
    std::vector<std::string> next;
    for (const std::string& parent : level) {
      for (const std::string& name : files.list(parent)) {
        const std::string path = join(parent, name);
        if (left == 0 || files.status(path).kind != PathKind::folder) continue;
        --left;
        if (is_run_folder(files, path) && read_run_folder(files, path).latest()) return path;
        next.push_back(path);
      }
    }
    level = std::move(next);
  }
  return "";
}

}  // namespace

std::vector<std::string> folder_warnings(const FileSystem& files, const TrainArguments& arguments,
                                         bool is_found) {
  std::vector<std::string> warnings;
  if (!arguments.load.empty() && !is_found) {
    std::string run;
    try {
      if (files.status(arguments.load).kind == PathKind::folder) {
        run = run_below(files, arguments.load);
      }
    } catch (const Error&) {
      // Not readable.
    }
    warnings.push_back("there is no checkpoint in --load " + arguments.load +
                       ": the run will start from random weights (give "
                       "--exit-on-missing-checkpoint to stop instead)" +
                       (run.empty() ? "" : ". There is one in " + run));
  }
  if (arguments.save.empty() && arguments.save_interval) {
    warnings.push_back("--save-interval without --save: nothing will be saved");
  }
  return warnings;
}

std::vector<std::string> model_warnings(const TrainArguments& arguments, const Source& source) {
  const Value& args = source.state.args.value;
  if (args.is_none()) return {};
  const std::string& path = source.checkpoint.path;
  try {
    const LoadedValue own = namespace_of(arguments);
    const Architecture ours = read_arguments(own.value, "the arguments").architecture;
    Architecture theirs = read_arguments(args, path).architecture;
    theirs.positions = ours.positions;
    const std::vector<std::string> differences = different_features(ours, theirs);
    if (differences.empty()) return {};
    return {fmt::format(
        "the model is not that of {}: {}. Unless that is intended, give the arguments of the run "
        "that saved it, or --use-checkpoint-args",
        path, fmt::join(differences, "; "))};
  } catch (const Error&) {
    return {};  // of a program whose arguments say too little
  }
}

std::unique_ptr<const Source> open_source(const std::shared_ptr<const FileSystem>& files,
                                          const TrainArguments& arguments, Group& group) {
  // Rank 0 searches: others might see a folder that rank 0 does not see yet.
  const std::string found = from_first_together(group, [&] {
    const auto place = find_source(*files, arguments);
    if (!place) return std::string();
    return (place->weights_only ? "w" : "r") + place->iteration + "\n" + place->path;
  });
  if (found.empty()) return nullptr;
  const size_t end = found.find('\n');
  const SourcePlace place{found.substr(end + 1), found.substr(1, end - 1), found[0] == 'w'};
  auto source = std::make_unique<Source>();
  source->checkpoint =
      in_own_words([&] { return open_together(files, place.path, group, open_options(place)); });
  if (arguments.verify_integrity) check_bytes(files, source->checkpoint.path, group);
  source->weights_only = place.weights_only;
  source->state = state_for(source->checkpoint, arguments);
  if (!place.weights_only && !arguments.no_load_optim) {
    check_optimizer_state(source->checkpoint, source->state);
  }
  source->consumed = read_consumed_samples(source->state.args.value);
  if (!place.weights_only && source->state.args.value) {
    check_checkpoint_arguments(arguments, source->state.args.value, source->checkpoint.path);
  }
  return source;
}

void check_train_data(const TrainArguments& arguments, bool has_train_split) {
  if (has_train_split || arguments.skip_train) return;
  const bool is_divided = !arguments.data_path.empty() || !arguments.data_args_path.empty();
  fail(ErrorKind::invalid, "there is nothing to train on: {}",
       is_divided
           ? fmt::format("the train split, the first number of --split {}, is empty; give it a "
                         "share, or --skip-train",
                         arguments.split)
           : std::string(
                 "data are given for other splits only; give --train-data-path, or --skip-train"));
}

void check_outputs(const FileSystem& files, const TrainArguments& arguments) {
  check_save_folder(files, arguments.save);
  const std::string& metrics = arguments.metrics_json;
  if (!metrics.empty() && files.status(metrics).kind == PathKind::folder) {
    fail(ErrorKind::invalid, "--metrics-json {} is a folder; give the path of a file", metrics);
  }
}

std::vector<std::string> check_inputs(const std::shared_ptr<const FileSystem>& files,
                                      const TrainArguments& arguments) {
  check_outputs(*files, arguments);
  TrainArguments metadata_alone = arguments;
  metadata_alone.verify_integrity = false;  // which would read all bytes
  const auto source = open_source(files, metadata_alone, *thread_groups(1).front());
  check_train_data(arguments, check_datasets(files, data_options(arguments)).train);
  std::vector<std::string> warnings = loop_warnings(arguments);
  const auto add = [&](std::vector<std::string> more) {
    for (std::string& warning : more) warnings.push_back(std::move(warning));
  };
  add(folder_warnings(*files, arguments, source != nullptr));
  if (source) add(model_warnings(arguments, *source));
  if (source) add(sample_warnings(files, arguments, *source));
  return warnings;
}

}  // namespace ferry
