#include "tools/train/train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "tools/terminal/exit_code.h"
#include "tools/terminal/flags.h"
#include "tools/terminal/output.h"
#include "tools/train/rank_threads.h"
#include "tools/train/run_check.h"
#include "trainer/arguments/agreement.h"
#include "trainer/arguments/argument_row.h"
#include "trainer/arguments/parse.h"
#include "trainer/checkpoint/staging_memory.h"
#include "trainer/language/language_model.h"
#include "trainer/language/memory_plan.h"
#include "trainer/language/options.h"
#include "trainer/language/source.h"
#include "trainer/loop/training_loop.h"

namespace ferry::tool {
namespace {

// What all ranks of this process have in common.
struct Run {
  const TrainArguments& arguments;
  const ExitWatch& watch;
  const TrainLaunch& launch;
  int threads;  // of each rank
  int gpus;     // of this process; 0: ranks compute on the processor
};

// The log of a run on standard output. If that fails, on a full disk or because its reader has
// ended, the run, which may have computed for days, goes on after one warning.
class RunOutput {
 public:
  RunOutput() { ::signal(SIGPIPE, SIG_IGN); }  // then writing gives an error

  void print(std::string_view text) {
    const std::lock_guard lock(mutex_);
    try {
      tool::print(in_flags(text));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::io) throw;
      if (!has_failed_) {
        print_aside(
            fmt::format("ferry: warning: {}: the run continues without its log\n", error.what()));
      }
      has_failed_ = true;
    }
  }

 private:
  std::mutex mutex_;
  bool has_failed_ = false;
};

// `number`: of the rank among those of its host that compute on GPUs.
RankSetup rank_setup(const Run& run, std::shared_ptr<Group> group, std::shared_ptr<Links> links,
                     int number, RunOutput& output) {
  RankSetup setup{std::move(group),    std::move(links),
                  posix_file_system(), &run.watch,
                  run.threads,         [&output](std::string_view text) { output.print(text); },
                  print_aside};
  if (run.gpus > 0) {
    setup.open_device = [&launch = run.launch, group = setup.group, links = setup.links,
                         gpu = number % run.gpus, fused = has_fused_attention(run.arguments)] {
      return launch.gpu_device(group, links, gpu, fused);
    };
  }
  return setup;
}

// Ranks that are threads of this process. The first error is everyone's.
RunEnd train_in_threads(const Run& run) {
  RunOutput output;
  std::atomic<RunEnd> end = RunEnd::finished;  // all ranks say the same
  on_rank_threads(
      static_cast<int>(run.arguments.world_size),
      [&](int rank, const std::shared_ptr<Group>& group, const std::shared_ptr<Links>& links) {
        end = train(run.arguments, rank_setup(run, group, links, rank, output));
      });
  return end;
}

// This process is one rank.
RunEnd train_as_rank(const Run& run, const std::shared_ptr<Group>& processes) {
  RunOutput output;
  return train(run.arguments, rank_setup(run, processes, run.launch.links(processes),
                                         number_on_host(*processes), output));
}

// How many GPUs the arguments let this process use.
int gpus_for(const TrainArguments& arguments, const TrainLaunch& launch) {
  if (arguments.device == "cpu") return 0;
  const int count = launch.gpu_count();
  if (arguments.device == "cuda" && count == 0) {
    fail(ErrorKind::unsupported,
         "--device cuda: this process cannot use a GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES, "
         "build with cmake --preset cuda, or give --device cpu");
  }
  return count;
}

constexpr const char* kSummary =
    "Train a language model, with Megatron-LM's arguments, data and checkpoints";
constexpr const char* kUsage = "ferry train [ARGUMENTS] [@FILE]";
constexpr const char* kRanks =
    "The number of ranks is the product of the tensor, pipeline, context and data parallel sizes.\n"
    "Ranks are threads of this process, or processes if mpirun or srun started several with the "
    "MPI\n"
    "that ferry was built with, or MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE are set. A rank\n"
    "uses a GPU if there is one and ferry was built for GPUs (--device), else its share of the\n"
    "host's cores; OMP_NUM_THREADS sets its threads.\n\n"
    "@FILE, or --args-file FILE, stands for the arguments in FILE, and --yaml-cfg FILE for those\n"
    "in a YAML file. Later arguments override earlier ones.\n";
constexpr const char* kExamples =
    "Examples:\n"
    "  ferry train --load runs/a --use-checkpoint-args --data-path corpus --save runs/a ...\n"
    "  ferry train @arguments.txt --tensor-model-parallel-size 2\n"
    "  mpirun -n 4 ferry train @arguments.txt --tensor-model-parallel-size 2\n";

// Whether the argument has an effect, unlike most of Megatron-LM's that are recognized.
bool is_used(const ArgumentRow& row) {
  const bool is_used = row.status == ArgumentStatus::used || row.status == ArgumentStatus::fork ||
                       row.status == ArgumentStatus::derived;  // --data-parallel-size
  return is_used && !row.flags.empty();
}

bool takes_value(const ArgumentRow& row) {
  return row.kind != ArgumentKind::flag && row.kind != ArgumentKind::negated &&
         row.kind != ArgumentKind::either;
}

// The words that a value is one of; empty where it may be any, or a number.
std::vector<std::string> words_of(const ArgumentRow& row) {
  if (row.choices.find("..") != std::string_view::npos) return {};
  std::istringstream choices{std::string(row.choices)};
  return {std::istream_iterator<std::string>(choices), {}};
}

bool has_default(const ArgumentRow& row) {
  return takes_value(row) && row.initial != "None" && row.initial != "[]";
}

// Its default, and what it may be: nothing of one that takes no value.
std::string help_of(const ArgumentRow& row) {
  std::string text(has_default(row) ? row.initial_word() : "");
  const std::vector<std::string> words = words_of(row);
  if (!words.empty()) {
    text += fmt::format("{}one of {}", text.empty() ? "" : "; ", fmt::join(words, ", "));
  }
  return text;
}

std::string train_help() {
  std::string text = fmt::format("{}\nUsage: {}\n\n{}\n", kSummary, kUsage, kRanks);
  text +=
      "Arguments and their defaults (Megatron-LM's other arguments are recognized, and either have "
      "no\n"
      "effect here or are refused):\n";
  for (const ArgumentRow& row : argument_rows()) {
    if (!is_used(row)) continue;
    const std::string help = help_of(row);
    text += help.empty() ? fmt::format("  {}\n", row.flag())
                         : fmt::format("  {:<48} {}\n", row.flag(), help);
  }
  return text + "\n" + kExamples;
}

// What a run uses of its tokenizer.
std::string tokens_of(const TrainArguments& arguments) {
  const DataOptions data = data_options(arguments);
  const MaskOptions& masks = data.masks;
  const bool uses_end = masks.eod_mask_loss || masks.reset_position_ids ||
                        masks.reset_attention_mask || data.mock_data;
  return fmt::format("{} tokens, of which {} ends documents and {} pads (-1: none, or no matter)",
                     data.vocabulary_size, uses_end ? masks.end_of_document : -1, masks.padding);
}

void check_same_arguments(Group& processes, const TrainArguments& arguments) {
  if (processes.size() == 1) return;
  const std::string own = agreement_text(arguments);
  const std::string first = from_first_together(processes, [&] { return own; });
  together(processes, [&] {
    check_agreement(own, first, processes.rank());
    return std::string();
  });
}

// Each process reads the tokenizer for itself. Where its files are on some hosts alone, ranks would
// read other samples than the rest. `tokens`: tokens_of() each.
void check_alike(const std::vector<std::string>& tokens, const std::string& tokenizer) {
  const auto other =
      std::ranges::find_if(tokens, [&](const auto& one) { return one != tokens[0]; });
  if (other == tokens.end()) return;
  throw SharedError(ErrorKind::mismatch,
                    fmt::format("--tokenizer-model {}: process {} finds {}, and the first one {}: "
                                "put the same files on all hosts",
                                tokenizer, other - tokens.begin(), *other, tokens[0]));
}

}  // namespace

void start_with_short_spins(char** argv) noexcept {
  constexpr const char* kSpins = "GOMP_SPINCOUNT";
  if (std::getenv(kSpins) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // Some ten microseconds, less than an operation that is worth sharing takes.
  if (::setenv(kSpins, "10000", 1) != 0) return;
  // By its own path: a process has the name of the file that was asked for, by which pgrep finds
  // it.
  constexpr const char* kSelf = "/proc/self/exe";
  std::array<char, PATH_MAX> path{};
  if (::readlink(kSelf, path.data(), path.size() - 1) > 0) ::execv(path.data(), argv);
  ::execv(kSelf, argv);  // where the file was replaced meanwhile
}

void let_streams_overlap() noexcept {
  // As many queues as CUDA has by default; trainer/communicator/nccl/nccl_world.h says what for.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1);
}

CommandDescription describe_train() {
  CommandDescription described;
  described.words = {"ferry", "train"};
  described.help = kSummary;
  described.usage = kUsage;
  described.text = train_help();
  described.footer = fmt::format("{}\n{}", kRanks, kExamples);
  for (const ArgumentRow& row : argument_rows()) {
    if (!is_used(row)) continue;
    OptionDescription option;
    option.names = {std::string(row.flag())};
    option.help = (has_default(row) ? "By default " : "") + help_of(row);
    option.words = words_of(row);
    if (takes_value(row)) option.value = "VALUE";
    option.heading = "Arguments";
    described.options.push_back(std::move(option));
  }
  return described;
}

int run_train(std::span<const std::string> words, const TrainLaunch& launch) {
  for (const std::string& word : words) {
    if (word != "--help" && word != "-h") continue;
    print(train_help());
    return kExitOk;
  }
  const std::shared_ptr<Group> processes = launch.processes();
  TrainArguments arguments;
  std::vector<std::string> notes;
  const std::vector<std::string> tokens = together(*processes, [&] {
    const int count = processes->size();
    const std::string launcher = count > 1 ? launch.launcher(count) : "";
    arguments = read_run_arguments(words, {launcher, count, processes->rank()}, notes);
    return tokens_of(arguments);
  });
  check_same_arguments(*processes, arguments);
  check_alike(tokens, arguments.tokenizer_model);
  for (const std::string& note : notes) print_aside(note + "\n");
  const bool on_gpus = arguments.device == "cuda" || gpus_for(arguments, launch) > 0;
  const std::string without_effect = no_effect_note(arguments, on_gpus);
  if (!without_effect.empty()) print_aside(without_effect + "\n");
  const std::string unfused = unfused_note(arguments, on_gpus);
  if (!unfused.empty()) print_aside(unfused + "\n");
  const bool is_rank = processes->size() > 1;
  const int ranks = is_rank ? 1 : static_cast<int>(arguments.world_size);
  if (arguments.dry_run || !is_rank) {
    const RunPlan plan = plan_run(arguments, on_gpus);
    if (arguments.dry_run) {
      const int64_t here = is_rank ? processes_on_host(*processes) : ranks;
      if (processes->rank() == 0) {
        for (const std::string& warning : check_inputs(posix_file_system(), arguments)) {
          print_aside("WARNING: " + warning + "\n");
        }
        if (!plan.note.empty()) print_aside(plan.note + "\n");
        print(plan_text(arguments, plan.model, plan.stages) +
              staging_plan_text(plan.stages, here, available_host_memory()));
      }
      return kExitOk;
    }
    if (!on_gpus) check_machine_memory(plan.stages, ranks);
  }
  const auto files = posix_file_system();  // for as long as triggers are looked for
  const ExitWatch watch(arguments, *files);
  const Run run{arguments, watch, launch, rank_threads(*processes, ranks, launch.threads),
                gpus_for(arguments, launch)};
  const RunEnd end = is_rank ? train_as_rank(run, processes) : train_in_threads(run);
  return end == RunEnd::stopped ? static_cast<int>(arguments.stopped_exit_code) : kExitOk;
}

}  // namespace ferry::tool
