#include "tools/train/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/open.h"
#include "tools/terminal/output.h"
#include "trainer/arguments/argument_row.h"
#include "trainer/arguments/complete.h"
#include "trainer/arguments/namespace.h"
#include "trainer/arguments/parse.h"
#include "trainer/run/rank_trainer.h"

namespace ferry::tool {
namespace {

// Ranks that are threads of this process. The first error is everyone's.
void train_in_threads(const TrainArguments& arguments, const ExitWatch& watch) {
  const auto world = static_cast<int>(arguments.world_size);
  const auto groups = thread_groups(world);
  const auto links = thread_links(groups);
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::exception_ptr> errors(groups.size());
  std::mutex mutex;
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < groups.size(); ++rank) {
      threads.emplace_back([&, rank] {
        RankSetup setup{groups[rank],
                        links[rank],
                        posix_file_system(),
                        &watch,
                        std::max(1, cores / world),
                        [&](std::string_view text) {
                          const std::lock_guard lock(mutex);
                          print(std::string(text));
                        }};
        try {
          train(arguments, setup);
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// --use-checkpoint-args: the model is the checkpoint's.
void adopt_from_checkpoint(TrainArguments& arguments, std::vector<std::string>& notes) {
  if (!arguments.use_checkpoint_args || arguments.load.empty()) return;
  OpenOptions options;
  if (arguments.ckpt_step) options.iteration = std::to_string(*arguments.ckpt_step);
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), arguments.load, options);
  if (!checkpoint.args.value) {
    fail(ErrorKind::mismatch, "{} has no arguments for --use-checkpoint-args", checkpoint.path);
  }
  adopt_checkpoint_arguments(arguments, checkpoint.args.value, checkpoint.path, notes);
}

// The names of the arguments that mean something here, with their defaults.
std::string help() {
  std::string text =
      "Train a language model, with Megatron-LM's arguments, data and checkpoints\n"
      "Usage: ferry train [ARGUMENTS] [@FILE]\n\n"
      "Ranks are threads of this process: tensor x pipeline x context x data of them.\n\n"
      "Arguments (others of Megatron-LM are known, and mean nothing here or are refused):\n";
  for (const ArgumentRow& row : argument_rows()) {
    const bool is_used = row.status == ArgumentStatus::used || row.status == ArgumentStatus::fork;
    if (!is_used || row.flags.empty()) continue;
    text += fmt::format("  {:<48} {}\n", row.flag(), row.initial);
  }
  return text +
         "\nExamples:\n"
         "  ferry train --load runs/a --use-checkpoint-args --data-path corpus --save runs/a ...\n"
         "  ferry train @arguments.txt --tensor-model-parallel-size 2\n";
}

}  // namespace

void run_train(std::span<const std::string> words) {
  for (const std::string& word : words) {
    if (word == "--help" || word == "-h") return print(help());
  }
  const Launch launch = detect_launch(launch_environment());
  if (!launch.is_alone()) {
    fail(ErrorKind::unsupported,
         "{} started {} processes, and ranks of ferry train are threads of one: start it alone",
         launch.launcher, launch.world_size);
  }
  TrainArguments arguments = parse_arguments(words, *posix_file_system());
  std::vector<std::string> notes;
  adopt_from_checkpoint(arguments, notes);
  complete_arguments(arguments, launch, notes);
  settle_vocabulary(arguments, arguments.vocab_size.value_or(0));
  for (const std::string& note : notes) print_aside(note + "\n");
  const std::string without_effect = no_effect_note(arguments);
  if (!without_effect.empty()) print_aside(without_effect + "\n");
  const ExitWatch watch(arguments, *posix_file_system());
  train_in_threads(arguments, watch);
}

}  // namespace ferry::tool
