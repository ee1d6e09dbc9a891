#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "convert/export.h"
#include "convert/export/quantise.h"
#include "tools/commands.h"
#include "tools/convert/convert_report.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/layout_options.h"
#include "tools/terminal/other_formats.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"
#include "tools/terminal/validators.h"
#include "tools/terminal/write_options.h"
#include "tools/verify/verify_source.h"

namespace ferry::tool {
namespace {

struct ConvertFlags {
  ConvertOptions options;
  bool verify = false, json = false, progress = false;
};

constexpr const char* kConvertExamples = R"(Examples:
  ferry convert runs/llama llama-hf --to hf                     the latest iteration of a run
  ferry convert runs/llama llama-hf --to hf --iteration 500 --tokenizer ./llama-tokenizer
  ferry convert runs/llama llama-hf --to hf --dry-run           what would be written
  ferry convert deepseek-fp8 deepseek-bf16 --to hf --dtype bf16  a Hugging Face model in another form
  ferry convert qwen3 qwen3-fp8 --to hf --quantize fp8           its weights in blocks of fp8
  ferry convert runs/llama tensors --to safetensors --optimizer   all tensors, under their own names
  ferry convert llama-hf runs/new --to torch_dist --tp 2 --pp 2   a Hugging Face model for Megatron-LM
  ferry convert model.pt llama-hf --to hf --config ./llama-config   a state dict of another program
)";

const std::map<std::string, ConvertTarget> kTargets = {{"hf", ConvertTarget::hugging_face},
                                                       {"safetensors", ConvertTarget::safetensors},
                                                       {"torch_dist", ConvertTarget::torch_dist},
                                                       {"torch", ConvertTarget::torch}};

std::map<std::string, std::string> quantisations() {
  std::map<std::string, std::string> names;
  for (const std::string_view name : quantised_forms()) names.emplace(name, name);
  return names;
}

const std::map<std::string, bool> kIndexUses = {{"ignore", true}};

void run(const ConvertFlags& flags, std::shared_ptr<Group> group) {
  ConvertOptions options = flags.options;
  options.write.group = std::move(group);
  if (flags.verify) {
    verify_source(*options.write.group, options.source, options.open.iteration,
                  options.write.engine, flags.progress);
  }
  ConvertReport report;
  {
    const InterruptScope interrupt;
    ProgressLine line("converting", flags.progress);
    options.write.engine.cancel = interrupt.flag();
    options.write.engine.progress = [&](const Progress& progress) { line.show(progress); };
    report = convert(options);
  }
  const std::string text = flags.json ? json_text(to_json(report)) : to_text(report);
  if (options.write.dry_run) return print(text);
  print_done(text, report.target + " is complete");
}

void add_places(Command& command, ConvertOptions& options) {
  add_path(command, options.source);
  command
      .add_option("OUT", options.target,
                  "Folder to create; for Megatron-LM, the run folder that gets a release (with "
                  "--optimizer, the iteration)")
      .required()
      .type_name("");
  command
      .add_choice("--to", options.to, kTargets,
                  "hf: a Hugging Face model; safetensors: the tensors as stored; torch_dist, "
                  "torch: a Megatron-LM run, from a Hugging Face model or a state dict",
                  other_formats())
      .required()
      .type_name("FORMAT");
}

void add_model_options(Command& command, ConvertOptions& options) {
  add_iteration_option(command, options.open.iteration);
  command
      .add_option("--family", options.family,
                  "Model family (default: detected): " +
                      fmt::format("{}", fmt::join(export_families(), ", ")))
      .type_name("NAME");
  command
      .add_list_option(
          "--ignore-member",
          [&](const std::vector<std::string>& names) { options.ignored_members = names; },
          "Ignore this config.json member: one that has no effect but that the family does not "
          "read")
      .type_name("NAME");
  command
      .add_option("--vocab-size", options.vocab_size,
                  "Rows to keep in the embedding and output layer")
      .type_name("N")
      .check(whole_number(1, INT64_MAX));
  command.add_flag(
      "--force", options.cut_tokens,
      "Let --vocab-size remove rows of tokens that the arguments or the tokenizer define");
  command.add_flag("--keep-padding", options.keep_padding,
                   "Keep the padding rows of the vocabulary");
  add_dtype_option(command, options.dtype);
  command.add_flag("--from-masters", options.from_masters,
                   "Write the optimizer's fp32 master weights (as fp32, or as --dtype) instead of "
                   "the rounded weights");
  command
      .add_choice("--quantize", options.quantise, quantisations(),
                  "Quantize linear layers (with --to hf): fp8 in 128 x 128 blocks (DeepSeek-V3, "
                  "Qwen), by channel or tensor; MXFP8; MXFP4; NVFP4 of ModelOpt or (packed) of "
                  "compressed-tensors; int4 in groups of 32 or 128, with zero points or without")
      .type_name("FORM");
  command
      .add_option("--fill-from", options.fill_from,
                  "Hugging Face model to take missing tensors (a vision tower, MTP layers), "
                  "config.json and other files from (with --to hf)")
      .type_name("DIR");
  command.add_flag(
      "--base-only", options.base_only,
      "Drop the adapter (LoRA) inside the model; write the base model under its own names");
  command
      .add_option("--tokenizer", options.tokenizer_folder,
                  "Folder of tokenizer files to copy (default: the checkpoint's)")
      .type_name("DIR");
  command
      .add_choice("--index", options.ignore_index, kIndexUses,
                  "ignore: use the shards where a Hugging Face folder's index disagrees with them")
      .type_name("ignore");
  command.add_flag("--as-is", options.as_is,
                   "Copy a Hugging Face model's tensors without checking them against config.json");
  command
      .add_option(
          "--max-shard-size",
          [&](const std::string& text) {
            options.max_shard_bytes = parse_size(text, "--max-shard-size");
          },
          "Maximum tensor bytes per file")
      .type_name("SIZE")
      .default_text("5GB");
}

void add_state_dict_options(Command& command, ConvertOptions& options) {
  const char* group = "Reading a state dict (torch.save, PyTorch DCP, FSDP, DeepSpeed)";
  command
      .add_option("--config", options.config_folder,
                  "Folder of the model's config.json and tokenizer files (default: next to PATH)")
      .type_name("DIR")
      .group(group);
  command
      .add_option("--only", options.only,
                  "Use only tensors that match, by the names that inspect prints")
      .type_name("GLOB")
      .group(group);
  command
      .add_list_option(
          "--rename",
          [&](const std::vector<std::string>& all) {
            for (const std::string& text : all) options.renames.push_back(parse_rename(text));
          },
          "Rename a tensor; one '*' on each side matches the same text")
      .type_name("OLD=NEW")
      .group(group);
  command
      .add_flag("--drop-unknown", options.drop_unknown,
                "Drop tensors that the family does not have, instead of refusing them")
      .group(group);
}

void add_tensor_options(Command& command, ConvertOptions& options) {
  command.add_flag("--optimizer", options.optimizer,
                   "Also convert optimizer state. safetensors: copied; torch_dist, torch: Adam "
                   "only (from DeepSpeed, FSDP, torchtitan, Trainer, Accelerate), written as an "
                   "iteration instead of a release");
  const char* group = "With --to safetensors";
  add_raw_option(command, options.open.raw).group(group);
}

void add_import_options(Command& command, ConvertOptions& options) {
  const char* group = "For Megatron-LM (--to torch_dist, torch)";
  command
      .add_option("--make-vocab-size-divisible-by", options.make_vocab_size_divisible_by,
                  "Pad the vocabulary to a multiple of this times --tp (default: 128)")
      .type_name("N")
      .check(whole_number(1, int64_t{1} << 31))
      .group(group);
  add_megatron_options(command, options.write, group);
  add_layout_options(command, options.layout, "is 1");
  add_modules_option(command, options.transformer_engine).group(group);
}

}  // namespace

void add_convert(Command& program, const Processes& processes) {
  auto flags = std::make_shared<ConvertFlags>();
  Command command = program.add_command(
      "convert", "Convert a model between Megatron-LM, Hugging Face and other formats");
  add_places(command, flags->options);
  add_model_options(command, flags->options);
  add_state_dict_options(command, flags->options);
  add_tensor_options(command, flags->options);
  add_import_options(command, flags->options);
  add_write_options(command, flags->options.write, "OUT");
  add_verify_option(command, flags->verify);
  add_json_option(command, flags->json);
  add_progress_option(command, flags->progress);
  command.footer(kConvertExamples);
  command.action([flags, processes] { run(*flags, processes()); });
}

}  // namespace ferry::tool
