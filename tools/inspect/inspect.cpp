#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/commands.h"
#include "tools/inspect/inspect_report.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

struct Flags {
  std::string path;
  OpenOptions open;
  std::vector<std::string> tensors;  // none, or one pattern
  std::string stats;
  std::string memory = "512MiB";
  bool args = false, objects = false, json = false;
};

constexpr const char* kExamples = R"(Examples:
  ferry inspect runs/llama                          the latest iteration of a run
  ferry inspect runs/llama --iteration 500 --args   another one, with the run's arguments
  ferry inspect llama-hf --tensors '*layers.0.*'    names, dtypes and shapes
  ferry inspect runs/llama --stats '*norm*'         minimum, maximum, mean, deviation, NaN, Inf
  ferry inspect runs/llama --json | jq .layout      everything, for scripts
)";

// A bare --tensors gives an empty pattern: all.
std::string pattern_of(const Flags& flags) {
  return flags.tensors.empty() || flags.tensors.front().empty() ? "*" : flags.tensors.front();
}

InspectOptions options_of(const Flags& flags, bool list_tensors) {
  InspectOptions options;
  if (list_tensors) options.tensors = pattern_of(flags);
  if (!flags.stats.empty()) options.stats = flags.stats;
  options.args = flags.args;
  options.objects = flags.objects;
  options.memory_bytes = parse_memory(flags.memory);
  return options;
}

void run(Flags flags, bool list_tensors) {
  if (flags.path.empty() && !flags.tensors.empty()) {  // ferry inspect --tensors PATH
    flags.path = flags.tensors.front();
    flags.tensors.clear();
  }
  if (flags.path.empty()) fail(ErrorKind::invalid, "which checkpoint? Give a PATH");
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), flags.path, flags.open);
  InspectOptions options = options_of(flags, list_tensors);
  InspectReport report;
  {
    ProgressLine line("reading");
    options.progress = [&](const Progress& progress) { line.show(progress); };
    report = make_report(checkpoint, options);
  }
  print(flags.json ? json_text(to_json(report)) : to_text(report));
}

}  // namespace

void add_inspect(CLI::App& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = program.add_subcommand("inspect", "Tell what a checkpoint is and holds");
  command
      ->add_option("PATH", flags->path,
                   "A run folder, an iteration folder, a Hugging Face or NeMo folder, or a file")
      ->type_name("");
  command
      ->add_option("--iteration", flags->open.iteration,
                   "Of a run folder: a number or 'release' (default: what the tracker says)")
      ->type_name("N");
  const CLI::Option* tensors =
      command->add_option("--tensors", flags->tensors, "List tensors, all or those that match")
          ->type_name("[GLOB]")
          ->expected(0, 1);
  command->add_option("--stats", flags->stats, "Read tensors that match and describe their values")
      ->type_name("GLOB");
  command->add_flag("--args", flags->args, "Print the arguments of the run");
  command->add_flag("--objects", flags->objects,
                    "Print what is stored besides tensors: scheduler, random state, ...");
  command->add_flag("--raw", flags->open.raw,
                    "The tensors as stored, before Megatron's meaning is applied");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->add_option("--memory", flags->memory, "Memory to read values with")
      ->type_name("SIZE")
      ->capture_default_str();
  command->footer(kExamples);
  command->callback([flags, tensors] { run(*flags, tensors->count() > 0); });
}

}  // namespace ferry::tool
