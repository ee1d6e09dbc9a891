#include "trainer/language/sample_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "trainer/arguments/argument_row.h"
#include "trainer/language/options.h"
#include "trainer/language/sample_place.h"

namespace ferry {

namespace {

using Names = std::span<const std::string_view>;

// Arguments that belong together; the first groups determine the order of samples.
constexpr std::string_view kData[] = {
    "data_path",      "train_data_path",          "valid_data_path", "test_data_path",
    "data_args_path", "per_split_data_args_path", "mock_data",       "split"};
constexpr std::string_view kSampleSeed[] = {"seed"};
constexpr std::string_view kLength[] = {"seq_length"};
constexpr std::string_view kAmount[] = {"train_iters",
                                        "train_samples",
                                        "global_batch_size",
                                        "rampup_batch_size",
                                        "step_batch_size_schedule",
                                        "mid_level_dataset_surplus",
                                        "phase_transition_iterations"};
constexpr std::string_view kLoader[] = {"dataloader_type", "data_sharding", "micro_batch_size",
                                        "data_parallel_size"};
constexpr Names kOrderGroups[] = {kData, kSampleSeed, kLength, kAmount, kLoader};
constexpr std::string_view kMasks[] = {"eod_mask_loss", "reset_position_ids",
                                       "reset_attention_mask", "goldfish_loss"};
constexpr std::string_view kMaskDetails[] = {"create_attention_mask_in_dataloader", "goldfish_k",
                                             "goldfish_h"};
constexpr std::string_view kTokenizerNames[] = {"tokenizer_type", "tokenizer_model", "vocab_file",
                                                "merge_file"};

// Takes a group's arguments from a checkpoint; those that are None or missing there get their
// default. Empty if the checkpoint has none of them.
void restore(TrainArguments& arguments, const Value& checkpoint, Names names) {
  if (std::ranges::all_of(names, [&](auto name) { return checkpoint.get(name).is_none(); })) return;
  for (const std::string_view name : names) {
    const ArgumentRow& row = *find_argument(name);
    const Value value = checkpoint.get(name);
    set_value(arguments, row,
              value.is_none() ? parse_initial(row.kind, row.initial)
                              : read_argument(row.kind, name, value));
  }
}

std::string shown(const ArgumentRow& row, const ArgumentValue& value) {
  constexpr size_t kMostShown = 160;
  if (value.index() == 0) return "none";
  const auto* list = std::get_if<std::vector<std::string>>(&value);
  std::string text = list ? fmt::format("{}", fmt::join(*list, " ")) : python_text(row.kind, value);
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
  return text.empty() ? "none" : text;
}

// "--seed 1234 (now 5678)" for each argument that differs.
std::string changes(const TrainArguments& before, const TrainArguments& now, Names names) {
  std::string text;
  for (const std::string_view name : names) {
    const ArgumentRow& row = *find_argument(name);
    const ArgumentValue old_value = value_of(before, row), value = value_of(now, row);
    if (old_value == value) continue;
    const std::string name_or_flag =
        row.kind == ArgumentKind::negated ? row.name() : std::string(row.flag());
    text += fmt::format("{}{} {} (now {})", text.empty() ? "" : ", ", name_or_flag,
                        shown(row, old_value), shown(row, value));
  }
  return text;
}

// The checkpoint's values and the run's.
class SampleComparison {
 public:
  SampleComparison(const std::shared_ptr<const FileSystem>& files, const TrainArguments& arguments,
                   const Source& source)
      : files_(files),
        arguments_(arguments),
        before_(arguments),
        checkpoint_(source.state.args.value),
        path_(source.checkpoint.path),
        iteration_(source.state.iteration.value_or(0)),
        iteration_now_(arguments.override_ckpt_iteration.value_or(iteration_)),
        has_counted_(source.consumed.train.value_or(0) > 0) {
    for (const Names names : kOrderGroups) restore_order(before_, names);
    consumed_ =
        has_counted_ ? *source.consumed.train : iteration_ * before_.global_batch_size.value_or(1);
    const bool takes_count = has_counted_ && !arguments.override_ckpt_iteration;
    consumed_now_ =
        takes_count ? consumed_ : iteration_now_ * arguments.global_batch_size.value_or(1);
  }

  /// Data that are assumed to be the checkpoint's because of their names.
  std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    for (const auto& [before, now] : moved_) {
      notes.push_back(fmt::format(
          "the run's data at {} are not available; assuming that those at {} are the same", before,
          now));
    }
    return notes;
  }

  void add_to(std::vector<std::string>& warnings) {
    if (consumed_now_ == 0) return;
    const SamplePlace now = place_of(files_, arguments_, iteration_now_, consumed_now_);
    if (now.position <= 0 || now.position >= now.order.samples) return;
    if (!has_counted_ && !arguments_.override_ckpt_iteration) {
      warnings.push_back(fmt::format(
          "{}: the number of consumed samples is not stored: the run resumes after {}, {} "
          "iterations of --global-batch-size {}",
          path_, consumed_now_, iteration_now_, arguments_.global_batch_size.value_or(1)));
    }
    add_order(now, warnings);
    add_masks(warnings);
    add_tokenizer(warnings);
  }

 private:
  void restore_order(TrainArguments& arguments, Names names) const {
    restore(arguments, checkpoint_, names);
    for (const auto member : {&TrainArguments::data_path, &TrainArguments::train_data_path}) {
      for (std::string& word : arguments.*member) word = moved(word, arguments_.*member, ".idx");
    }
    for (const auto member :
         {&TrainArguments::data_args_path, &TrainArguments::per_split_data_args_path}) {
      arguments.*member = moved(arguments.*member, {&(arguments_.*member), 1}, "");
    }
  }

  // A run that moved to another machine has its data under other paths: files that no longer exist
  // are assumed to be those of the same name.
  std::string moved(const std::string& path, std::span<const std::string> here,
                    const char* ending) const {
    if (path.empty() || std::ranges::find(here, path) != here.end()) return path;
    if (files_->status(path + ending).kind != PathKind::missing) return path;
    const auto same = std::ranges::find_if(here, [&](const std::string& one) {
      return split_path(one).name == split_path(path).name &&
             files_->status(one + ending).kind != PathKind::missing;
    });
    if (same == here.end()) return path;
    if (std::ranges::find(moved_, std::pair(path, *same)) == moved_.end()) {
      moved_.emplace_back(path, *same);
    }
    return *same;
  }

  void add_order(const SamplePlace& now, std::vector<std::string>& warnings) const {
    std::string unknown;
    SampleChange change;
    try {
      change = change_between(*files_, place_of(files_, before_, iteration_, consumed_), now);
      if (!change.is_any(now.order.parts.size())) return;
    } catch (const Error& error) {
      unknown = error.what();
    }
    const std::string reasons = reasons_for(now);
    if (reasons.empty() && !unknown.empty()) return;
    const int64_t left = now.order.samples - now.position;
    std::string numbers;
    if (!unknown.empty()) {
      numbers =
          fmt::format("it is unknown how many of the {} samples that follow were seen before ({})",
                      left, unknown);
    } else if (change.seen_again >= static_cast<double>(left)) {
      numbers = fmt::format(
          "all of the {} that follow were seen before, and some occur more often than others",
          left);
    } else {
      numbers = fmt::format(
          "of the {} samples that follow about {:.0f} were seen before, and about {:.0f} unseen "
          "ones are skipped",
          left, change.seen_again, change.passed_over);
    }
    warnings.push_back(fmt::format(
        "{}: the run that saved it would have continued with other samples: {}. This run continues "
        "after the first {} samples of its own: {}; use the checkpoint's values to continue where "
        "that run stopped, or --finetune to start at iteration 0 with the first sample",
        path_, reasons.empty() ? "its arguments differ" : reasons, now.position, numbers));
  }

  // The groups of arguments that change the order.
  std::string reasons_for(const SamplePlace& now) const {
    std::string reasons;
    const auto add = [&](const std::string& reason) {
      if (!reason.empty()) reasons += (reasons.empty() ? "" : ", ") + reason;
    };
    for (const Names names : kOrderGroups) {
      TrainArguments one = arguments_;
      restore_order(one, names);
      const std::string differing = changes(one, arguments_, names);
      if (differing.empty()) continue;
      try {
        const SamplePlace other = place_of(files_, one, iteration_now_, consumed_now_);
        if (!change_between(*files_, other, now).is_any(now.order.parts.size())) continue;
      } catch (const Error&) {
        // Its data are not available for comparison.
      }
      add(differing);
    }
    if (arguments_.override_ckpt_iteration && consumed_now_ != consumed_) {
      add(fmt::format("--override-ckpt-iteration {} (it consumed {} samples)", iteration_now_,
                      consumed_));
    }
    return reasons;
  }

  void add_masks(std::vector<std::string>& warnings) const {
    TrainArguments before = arguments_;
    for (const Names names : {Names(kMasks), Names(kMaskDetails)}) {
      restore(before, checkpoint_, names);
    }
    before.reset_attention_mask = data_options(before).masks.reset_attention_mask;
    TrainArguments now = arguments_;
    now.reset_attention_mask = data_options(now).masks.reset_attention_mask;
    std::string differing = changes(before, now, kMasks);
    if (before.goldfish_loss && now.goldfish_loss) {
      differing += changes(before, now, Names(kMaskDetails).subspan(1));
    }
    if (differing.empty()) return;
    warnings.push_back(
        fmt::format("{}: other parts of a sample have a loss than before: {}", path_, differing));
  }

  void add_tokenizer(std::vector<std::string>& warnings) const {
    TrainArguments before = arguments_;
    restore(before, checkpoint_, kTokenizerNames);
    const auto is_null = [](const TrainArguments& a) {
      return a.tokenizer_type.starts_with("Null");
    };
    if (is_null(before) || is_null(arguments_)) return;  // which does not tokenize
    const bool is_same = before.tokenizer_type == arguments_.tokenizer_type &&
                         is_same_file(before.tokenizer_model, arguments_.tokenizer_model) &&
                         is_same_file(before.vocab_file, arguments_.vocab_file) &&
                         is_same_file(before.merge_file, arguments_.merge_file);
    if (is_same) return;
    warnings.push_back(
        fmt::format("{}: it was trained with another tokenizer: {}. Unless both give the same ids, "
                    "the model misreads the tokens of this run's data",
                    path_, changes(before, arguments_, kTokenizerNames)));
  }

  // The same path, the same bytes, or a file of the same name whose original is not available: a
  // run that moved to another machine.
  bool is_same_file(const std::string& before, const std::string& now) const {
    if (before == now || before.empty()) return true;
    const auto kind_of = [&](const std::string& path) { return files_->status(path).kind; };
    if (kind_of(before) == PathKind::missing || kind_of(now) == PathKind::missing) {
      return split_path(before).name == split_path(now).name;
    }
    if (kind_of(before) == PathKind::file) return have_same_bytes(*files_, before, now);
    for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json"}) {
      if (kind_of(join(before, name)) != PathKind::file) continue;
      return have_same_bytes(*files_, join(before, name), join(now, name));
    }
    return false;
  }

  const std::shared_ptr<const FileSystem>& files_;
  const TrainArguments& arguments_;
  TrainArguments before_;  // with the checkpoint's order of samples
  Value checkpoint_;
  std::string path_;
  int64_t iteration_, iteration_now_, consumed_ = 0, consumed_now_ = 0;
  bool has_counted_;
  mutable std::vector<std::pair<std::string, std::string>> moved_;  // paths before, and now
};

}  // namespace

std::vector<std::string> sample_warnings(const std::shared_ptr<const FileSystem>& files,
                                         const TrainArguments& arguments, const Source& source,
                                         std::vector<std::string>* notes) {
  std::vector<std::string> warnings;
  const bool goes_on = !source.weights_only && source.state.iteration.value_or(0) > 0;
  if (!goes_on || arguments.skip_train) return warnings;
  try {
    SampleComparison comparison(files, arguments, source);
    comparison.add_to(warnings);
    if (notes != nullptr) *notes = comparison.notes();
  } catch (const Error& error) {
    warnings.push_back(
        fmt::format("{}: cannot determine whether this run continues with the samples that the run "
                    "which saved it would have taken: {}",
                    source.checkpoint.path, error.what()));
  }
  return warnings;
}

}  // namespace ferry
