#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/commands.h"
#include "tools/convert/convert_job.h"
#include "tools/terminal/layout_options.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

struct Flags {
  std::string path, out, to;
  std::string iteration, family, dtype, tokenizer;
  std::string max_shard_size = "5GB", memory = "512MiB";
  std::optional<int64_t> vocab_size;
  bool keep_padding = false, raw = false, optimizer = false, drop_unknown = false;
  ParallelTarget layout;
  std::string release, compress;
  std::optional<int64_t> vocabulary_divisor;
  std::string integrity;
  bool no_manifest = false;
  bool overwrite = false, dry_run = false, json = false;
  int threads = 0;
};

constexpr const char* kExamples = R"(Examples:
  ferry convert runs/llama llama-hf --to hf                     the latest iteration of a run
  ferry convert runs/llama llama-hf --to hf --iteration 500 --tokenizer ./llama-tokenizer
  ferry convert runs/llama llama-hf --to hf --dry-run           what would be written
  ferry convert runs/llama tensors --to safetensors --optimizer   all tensors, under their own names
  ferry convert llama-hf runs/new --to torch_dist --tp 2 --pp 2   a Hugging Face model for Megatron-LM
)";

const std::map<std::string, ConvertTarget> kTargets = {{"hf", ConvertTarget::hugging_face},
                                                       {"safetensors", ConvertTarget::safetensors},
                                                       {"torch_dist", ConvertTarget::torch_dist},
                                                       {"torch", ConvertTarget::torch}};

void set_import(const Flags& flags, ConvertOptions& options) {
  ImportOptions& import = options.import;
  import.family = options.model.family;
  import.layout = flags.layout;
  import.dtype = options.model.dtype;
  import.drop_unknown = flags.drop_unknown;
  import.tokenizer_folder = flags.tokenizer;
  if (flags.vocabulary_divisor) import.make_vocab_size_divisible_by = *flags.vocabulary_divisor;
  if (!flags.release.empty()) options.release = parse_core_release(flags.release);
  if (!flags.compress.empty()) options.zstd_level = parse_compression(flags.compress);
}

ConvertOptions options_of(const Flags& flags) {
  ConvertOptions options;
  options.source = flags.path;
  options.target = flags.out;
  options.to = kTargets.at(flags.to);
  options.open.iteration = flags.iteration;
  options.open.raw = flags.raw;
  if (!flags.family.empty()) options.model.family = flags.family;
  options.model.vocab_size = flags.vocab_size;
  options.model.keep_padding = flags.keep_padding;
  if (!flags.dtype.empty()) options.model.dtype = parse_dtype(flags.dtype);
  options.model.max_shard_bytes = parse_size(flags.max_shard_size, "--max-shard-size");
  options.model.tokenizer_folder = flags.tokenizer;
  options.optimizer = flags.optimizer;
  set_import(flags, options);
  options.overwrite = flags.overwrite;
  options.dry_run = flags.dry_run;
  options.vouchers.manifest = !flags.no_manifest;
  options.vouchers.sha256 = flags.integrity == "sha256";
  options.engine.memory_bytes = parse_memory(flags.memory);
  options.engine.threads = flags.threads;
  return options;
}

void run(const Flags& flags, std::shared_ptr<Group> group) {
  ConvertOptions options = options_of(flags);
  options.group = std::move(group);
  ConvertReport report;
  {
    ProgressLine line("converting");
    options.engine.progress = [&](const Progress& progress) { line.show(progress); };
    report = convert(options);
  }
  print(flags.json ? json_text(to_json(report)) : to_text(report));
}

void add_model_options(CLI::App& command, Flags& flags) {
  command
      .add_option("--iteration", flags.iteration,
                  "Of a run folder: a number or 'release' (default: what the tracker says)")
      ->type_name("N");
  command
      .add_option("--family", flags.family,
                  "Model family, instead of recognising it: " +
                      fmt::format("{}", fmt::join(export_families(), ", ")))
      ->type_name("NAME");
  command
      .add_option("--vocab-size", flags.vocab_size,
                  "Rows to keep of the embedding and the output layer")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, INT64_MAX).description(""));
  command.add_flag("--keep-padding", flags.keep_padding, "Keep the padding rows of the vocabulary");
  command
      .add_option("--dtype", flags.dtype,
                  "Floating-point type to write: bf16, fp16, fp32 (default: as stored)")
      ->type_name("TYPE");
  command
      .add_option("--tokenizer", flags.tokenizer,
                  "Folder of tokenizer files to copy (default: those of the checkpoint)")
      ->type_name("DIR");
  command.add_flag("--optimizer", flags.optimizer,
                   "With --to safetensors: the optimizer's tensors too");
  command.add_flag("--raw", flags.raw,
                   "With --to safetensors: the tensors as stored, before Megatron's meaning");
}

void add_import_options(CLI::App& command, Flags& flags) {
  const char* group = "For Megatron-LM (--to torch_dist, torch)";
  command
      .add_option("--make-vocab-size-divisible-by", flags.vocabulary_divisor,
                  "Pad the vocabulary to a multiple of this times --tp (default: 128)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20).description(""))
      ->group(group);
  command
      .add_option("--core-release", flags.release,
                  "Megatron Core that will load it (default: today's)")
      ->type_name("N")
      ->group(group);
  command
      .add_option("--compress", flags.compress,
                  "zstd or zstd:LEVEL (1 to 19), of torch_dist: compress what is stored")
      ->type_name("HOW")
      ->group(group);
  command
      .add_flag("--drop-unknown", flags.drop_unknown,
                "Leave out tensors that the family has not, instead of refusing them")
      ->group(group);
  add_layout_options(command, flags.layout, "is 1");
}

void add_run_options(CLI::App& command, Flags& flags) {
  command.add_option("--max-shard-size", flags.max_shard_size, "Tensor bytes in one file")
      ->type_name("SIZE")
      ->capture_default_str();
  command.add_flag("--overwrite", flags.overwrite,
                   "Replace OUT; the old one stays until the new is complete");
  command.add_flag("--no-manifest", flags.no_manifest,
                   "Leave out ferry.manifest.json, which ferry verify checks OUT with");
  command
      .add_option("--integrity", flags.integrity,
                  "sha256: write integrity.json too, as Megatron Core does; reads OUT once more")
      ->type_name("HASH")
      ->check(CLI::IsMember({"sha256"}).description(""));
  command.add_option("--memory", flags.memory, "Memory to move tensors with")
      ->type_name("SIZE")
      ->capture_default_str();
  command.add_option("--threads", flags.threads, "Threads (default: one a core, at most 16)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024).description(""));
  command.add_flag("--dry-run", flags.dry_run, "Check all and tell what would be written");
  command.add_flag("--json", flags.json, "Print the result as one JSON object");
}

}  // namespace

void add_convert(CLI::App& program, std::shared_ptr<Group> group) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      program.add_subcommand("convert", "Write a checkpoint's model in a new format");
  command->add_option("PATH", flags->path, "The checkpoint, as for inspect")
      ->required()
      ->type_name("");
  command
      ->add_option("OUT", flags->out,
                   "Folder to create; for Megatron-LM a run folder, which gets a release")
      ->required()
      ->type_name("");
  command
      ->add_option(
          "--to", flags->to,
          "hf: a Hugging Face model; safetensors: tensors as they are; torch_dist, torch: a "
          "Megatron-LM run, of a Hugging Face model")
      ->required()
      ->type_name("FORMAT")
      ->check(CLI::IsMember(kTargets).description(""));
  add_model_options(*command, *flags);
  add_import_options(*command, *flags);
  add_run_options(*command, *flags);
  command->footer(kExamples);
  command->callback([flags, group = std::move(group)] { run(*flags, group); });
}

}  // namespace ferry::tool
