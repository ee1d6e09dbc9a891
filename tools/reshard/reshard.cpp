#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/commands.h"
#include "tools/convert/convert_job.h"
#include "tools/reshard/reshard_job.h"
#include "tools/terminal/layout_options.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

const std::map<std::string, ReshardFormat> kFormats = {{"torch_dist", ReshardFormat::torch_dist},
                                                       {"torch", ReshardFormat::torch},
                                                       {"dcp", ReshardFormat::dcp}};

const std::map<std::string, ReshardOptimizer> kOptimizers = {
    {"fully_reshardable", ReshardOptimizer::fully_reshardable},
    {"dp_reshardable", ReshardOptimizer::dp_reshardable},
    {"legacy", ReshardOptimizer::legacy},
    {"none", ReshardOptimizer::none}};

struct Flags {
  ReshardOptions options;
  std::string to = "torch_dist";
  std::string dtype, release, compress, memory = "512MiB";
  std::vector<std::string> renames;
  std::string integrity;
  bool json = false, no_manifest = false;
};

constexpr const char* kExamples = R"(Examples:
  ferry reshard runs/big runs/small --tp 1 --pp 4 --ep 2       the latest iteration, optimizer too
  ferry reshard runs/big runs/small --tp 4 --dry-run           what would be written
  ferry reshard runs/big runs/weights --optimizer none         the model alone
  ferry reshard runs/big runs/old --core-release 0.16          for an older Megatron-LM
)";

std::pair<std::string, std::string> parse_rename(const std::string& text) {
  const size_t equals = text.find('=');
  const auto stars = [](std::string_view part) {
    return std::count(part.begin(), part.end(), '*');
  };
  const std::string from = text.substr(0, equals);
  const std::string to = equals == std::string::npos ? "" : text.substr(equals + 1);
  if (from.empty() || to.empty() || stars(from) > 1 || stars(from) != stars(to)) {
    fail(ErrorKind::invalid,
         "--rename: '{}' is not OLD=NEW, two names of tensors (or patterns with one * each)",
         printable(text));
  }
  return {from, to};
}

// A Hugging Face model knows neither ranks nor optimizer: what convert does.
std::string converted(const Flags& flags) {
  const ReshardOptions& options = flags.options;
  const bool of_training = options.layout != ParallelTarget() || options.vocabulary_divisor ||
                           !flags.release.empty() || !options.only.empty() ||
                           !options.drop.empty() || !flags.renames.empty() || options.zstd_level ||
                           (options.optimizer != ReshardOptimizer::as_source &&
                            options.optimizer != ReshardOptimizer::none);
  if (of_training) {
    fail(ErrorKind::invalid,
         "a Hugging Face model has no parallel layout and no optimizer: of the options that say "
         "what is written, --to hf takes --dtype alone");
  }
  ConvertOptions convert_options;
  convert_options.source = options.source;
  convert_options.target = options.target;
  convert_options.open = options.open;
  convert_options.model.dtype = options.dtype;
  convert_options.overwrite = options.overwrite;
  convert_options.dry_run = options.dry_run;
  convert_options.vouchers = options.vouchers;
  convert_options.engine = options.engine;
  convert_options.group = options.group;
  const ConvertReport report = convert(convert_options);
  return flags.json ? json_text(to_json(report)) : to_text(report);
}

std::string resharded(const Flags& flags) {
  const ReshardReport report = reshard(flags.options);
  return flags.json ? json_text(to_json(report)) : to_text(report);
}

void run(Flags& flags, std::shared_ptr<Group> group) {
  ReshardOptions& options = flags.options;
  options.group = std::move(group);
  const bool hugging_face = flags.to == "hf";
  if (!hugging_face) options.to = kFormats.at(flags.to);
  if (!flags.dtype.empty()) options.dtype = parse_dtype(flags.dtype);
  if (!flags.release.empty()) options.release = parse_core_release(flags.release);
  if (!flags.compress.empty()) options.zstd_level = parse_compression(flags.compress);
  for (const std::string& text : flags.renames) options.renames.push_back(parse_rename(text));
  options.vouchers.manifest = !flags.no_manifest;
  options.vouchers.sha256 = flags.integrity == "sha256";
  options.engine.memory_bytes = parse_memory(flags.memory);
  std::string text;
  {
    ProgressLine line("resharding");
    options.engine.progress = [&](const Progress& progress) { line.show(progress); };
    text = hugging_face ? converted(flags) : resharded(flags);
  }
  print(text);
}

void add_content_options(CLI::App& command, Flags& flags) {
  ReshardOptions& options = flags.options;
  command
      .add_option("--to", flags.to,
                  "Format: torch_dist, torch (rank folders), dcp (for PyTorch alone) or hf")
      ->type_name("FORMAT")
      ->capture_default_str()
      ->check(CLI::IsMember({"torch_dist", "torch", "dcp", "hf"}).description(""));
  command
      .add_option("--optimizer", options.optimizer,
                  "Optimizer state: fully_reshardable, dp_reshardable, legacy or none (default: a "
                  "tensor a parameter where the format can)")
      ->type_name("FORM")
      ->transform(CLI::CheckedTransformer(kOptimizers, CLI::ignore_case).description(""));
  command
      .add_option("--core-release", flags.release,
                  "Megatron Core that will load it (default: today's)")
      ->type_name("N");
  command
      .add_option("--iteration", options.open.iteration,
                  "Of a run folder: a number or 'release' (default: what the tracker says)")
      ->type_name("N");
  command
      .add_option("--make-vocab-size-divisible-by", options.vocabulary_divisor,
                  "Pad the vocabulary to a multiple of this times --tp")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31).description(""));
  command
      .add_option("--dtype", flags.dtype,
                  "Floating-point type of the model: bf16, fp16, fp32 (default: as stored)")
      ->type_name("TYPE");
  command.add_option("--only", options.only, "Only tensors that match, with their optimizer state")
      ->type_name("GLOB");
  command.add_option("--drop", options.drop, "Without tensors that match")->type_name("GLOB");
  command
      .add_option("--rename", flags.renames,
                  "A tensor's new name; '*' once in both stands for the same text")
      ->type_name("OLD=NEW");
}

void add_run_options(CLI::App& command, Flags& flags) {
  ReshardOptions& options = flags.options;
  command.add_flag("--overwrite", options.overwrite,
                   "Replace the iteration in OUT; the old one stays until the new is complete");
  command.add_flag("--no-manifest", flags.no_manifest,
                   "Leave out ferry.manifest.json, which ferry verify checks OUT with");
  command
      .add_option("--integrity", flags.integrity,
                  "sha256: write integrity.json too, as Megatron Core does; reads OUT once more")
      ->type_name("HASH")
      ->check(CLI::IsMember({"sha256"}).description(""));
  command
      .add_option("--compress", flags.compress,
                  "zstd or zstd:LEVEL (1 to 19): compress what is stored, as PyTorch's DCP can")
      ->type_name("HOW");
  command.add_option("--memory", flags.memory, "Memory to move tensors with")
      ->type_name("SIZE")
      ->capture_default_str();
  command
      .add_option("--threads", options.engine.threads, "Threads (default: one a core, at most 16)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024).description(""));
  command.add_flag("--dry-run", options.dry_run, "Check all and tell what would be written");
  command.add_flag("--json", flags.json, "Print the result as one JSON object");
}

}  // namespace

void add_reshard(CLI::App& program, std::shared_ptr<Group> group) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = program.add_subcommand(
      "reshard", "Write a training checkpoint at another parallel layout or in another format");
  command->add_option("PATH", flags->options.source, "The checkpoint, as for inspect")
      ->required()
      ->type_name("");
  command
      ->add_option("OUT", flags->options.target,
                   "Run folder to write the iteration into; made where it is missing")
      ->required()
      ->type_name("");
  add_content_options(*command, *flags);
  add_layout_options(*command, flags->options.layout, "stays as it is");
  add_run_options(*command, *flags);
  command->footer(kExamples);
  command->callback([flags, group = std::move(group)] { run(*flags, group); });
}

}  // namespace ferry::tool
