#include "tools/launch/check.h"

#include <fmt/format.h>

#include "ckpt/base/error.h"
#include "tools/terminal/text.h"
#include "tools/train/run_check.h"
#include "trainer/arguments/argument_row.h"
#include "trainer/arguments/parse.h"
#include "trainer/language/source.h"
#include "trainer/schedule/batch_size.h"

namespace ferry::tool {
namespace {

bool is_of_ferry(const LaunchConfiguration& configuration) {
  return configuration.program == "ferry";
}

// Whether the job finds the files that are found here; in a container there may be others.
bool finds_files_of(LaunchPlace place, const LaunchConfiguration& configuration) {
  return place == LaunchPlace::here_and_now && configuration.container == "none" &&
         is_of_ferry(configuration);
}

// Whether the job may find what is not found here. Megatron-LM also knows tokenizers by the names
// of the hub; ferry train reads files alone, and asks for --vocab-size where none are named.
bool may_have_tokenizer(const LaunchConfiguration& configuration, const TrainArguments& arguments,
                        const Error& problem) {
  if (problem.kind() == ErrorKind::not_found) return true;
  if (arguments.vocab_size || arguments.padded_vocab_size) return false;
  return !is_of_ferry(configuration) || arguments.tokenizer_model.starts_with('/');
}

// False, with a note, where the tokenizer is on other machines and nothing else gives its size.
bool complete_vocabulary_size(const LaunchConfiguration& configuration, TrainArguments& arguments,
                              LaunchPlace place, LaunchCheck& check) {
  std::string why;
  try {
    TrainArguments completed = arguments;
    complete_with_tokenizer(completed);
    arguments = std::move(completed);
    return true;
  } catch (const Error& error) {
    const bool is_final = finds_files_of(place, configuration) ||
                          !may_have_tokenizer(configuration, arguments, error);
    if (is_final) throw;
    why = error.what();
  }
  if (configuration.vocab_size > 0) {
    arguments.vocab_size = configuration.vocab_size;
    if (!arguments.end_of_document) arguments.end_of_document = configuration.vocab_size - 1;
    complete_with_tokenizer(arguments);
    check.notes.push_back(
        fmt::format("not checked: the tokenizer is not on this machine; "
                    "check.vocab_size says that it has {} tokens",
                    configuration.vocab_size));
    return true;
  }
  check.notes.push_back("not checked: sizes that depend on the vocabulary (" + why +
                        "). check.vocab_size sets it");
  return false;
}

void plan_launch(const LaunchConfiguration& configuration, TrainArguments& arguments,
                 LaunchPlace place, LaunchCheck& check) {
  if (!complete_vocabulary_size(configuration, arguments, place, check)) return;
  const RunPlan plan = plan_run(arguments, configuration.gpus_per_node > 0);
  for (const std::string& warning : loop_warnings(arguments)) {
    check.notes.push_back("WARNING: " + warning);
  }
  if (!plan.note.empty()) check.notes.push_back(plan.note);
  check.plan = plan_text(arguments, plan.model, plan.stages) +
               staging_plan_text(plan.stages, 1, UINT64_MAX);  // hosts are elsewhere
  // The first job of a chain finds nothing in --load.
  if (finds_files_of(place, configuration)) check_inputs(posix_file_system(), arguments);
}

// What Megatron-LM has and ferry has not says nothing of the rest.
std::vector<std::string> words_that_can_be_checked(std::span<const std::string> words,
                                                   std::vector<std::string>& notes) {
  std::vector<std::string> known;
  std::string dropped;
  bool is_dropping = false;
  for (const std::string& word : words) {
    if (word.starts_with("--")) {
      const ArgumentRow* row = find_flag(word.substr(0, word.find('=')));
      is_dropping = row == nullptr || row->status == ArgumentStatus::unsupported;
      if (is_dropping) dropped += (dropped.empty() ? "" : ", ") + printable(word);
    }
    if (!is_dropping) known.push_back(word);
  }
  if (!dropped.empty()) notes.push_back("not checked: arguments of Megatron-LM alone: " + dropped);
  return known;
}

int64_t last_iteration_of(const TrainArguments& arguments) {
  if (arguments.train_samples) {
    return iterations_for(batch_sizes(arguments), *arguments.train_samples);
  }
  return arguments.train_iters.value_or(0);
}

}  // namespace

LaunchCheck check_launch(const LaunchConfiguration& c, std::span<const std::string> words,
                         LaunchPlace place) {
  LaunchCheck check;
  const bool is_ferry = is_of_ferry(c);
  try {
    const Launch launch{c.ranks() > 1 ? "this launch" : "", c.ranks(), 0};
    std::vector<std::string> known(words.begin(), words.end());
    if (!is_ferry) known = words_that_can_be_checked(words, check.notes);
    TrainArguments arguments = read_arguments_alone(known, launch, check.notes);
    check.last_iteration = last_iteration_of(arguments);
    plan_launch(c, arguments, place, check);
    for (const std::string& note : {no_effect_note(arguments, c.gpus_per_node > 0),
                                    unfused_note(arguments, c.gpus_per_node > 0)}) {
      if (is_ferry && !note.empty()) check.notes.push_back(note);
    }
  } catch (const Error& error) {
    if (is_ferry || error.kind() != ErrorKind::unsupported) throw;
    check.notes.push_back(fmt::format("not checked: what ferry itself has not ({})", error.what()));
  }
  return check;
}

}  // namespace ferry::tool
