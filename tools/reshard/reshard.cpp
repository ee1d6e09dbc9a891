#include "ops/reshard.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/commands.h"
#include "tools/convert/convert_report.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/flags.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/layout.h"
#include "tools/terminal/layout_options.h"
#include "tools/terminal/other_formats.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/text.h"
#include "tools/terminal/validators.h"
#include "tools/terminal/write_options.h"
#include "tools/terminal/written.h"
#include "tools/verify/verify_source.h"

namespace ferry::tool {
namespace {

const std::map<std::string, ReshardFormat> kFormats = {
    {"torch_dist", ReshardFormat::torch_dist},
    {"torch", ReshardFormat::torch},
    {"fsdp_dtensor", ReshardFormat::fsdp_dtensor},
    {"dcp", ReshardFormat::dcp}};

const std::map<std::string, ReshardOptimizer> kOptimizers = {
    {"fully_reshardable", ReshardOptimizer::fully_reshardable},
    {"dp_reshardable", ReshardOptimizer::dp_reshardable},
    {"legacy", ReshardOptimizer::legacy},
    {"none", ReshardOptimizer::none}};

const std::map<std::string, MasterForm> kMasters = {{"fp32", MasterForm::fp32},
                                                    {"remainders", MasterForm::remainders}};

const std::map<std::string, ModelClass> kModels = {{"gpt", ModelClass::gpt},
                                                   {"hybrid", ModelClass::hybrid}};

struct ReshardFlags {
  ReshardOptions options;
  bool hugging_face = false;  // --to hf
  bool verify = false, json = false, progress = false;
};

constexpr const char* kReshardExamples = R"(Examples:
  ferry reshard runs/big runs/small --tp 1 --pp 4 --ep 2       the latest iteration, optimizer too
  ferry reshard runs/big runs/small --tp 4 --dry-run           what would be written
  ferry reshard runs/big runs/weights --optimizer none         the model alone
  ferry reshard runs/big runs/old --core-release 0.16          for an older Megatron-LM
)";

std::string side_text(const ReshardReport::Side& side) {
  std::string text = fmt::format("{} ({}", printable(side.path), side.format);
  if (const std::string layout = layout_text(side.layout); !layout.empty()) text += "; " + layout;
  if (!side.optimizer.empty()) text += "; optimizer " + side.optimizer;
  if (side.remainders) text += ", masters as 16-bit remainders";
  return text + ")";
}

nlohmann::json side_json(const ReshardReport::Side& side) {
  using nlohmann::json;
  return {{"path", side.path},
          {"format", side.format},
          {"optimizer", side.optimizer.empty() ? json(nullptr) : json(side.optimizer)},
          {"masters", side.optimizer.empty() ? json(nullptr)
                      : side.remainders      ? json("remainders")
                                             : json("fp32")},
          {"layout", layout_json(side.layout)}};
}

std::string reshard_text(const ReshardReport& report) {
  std::string text = side_text(report.source) + "\n  -> " + side_text(report.target) + "\n";
  text += written_text(report.written, report.tensors, report.parameters);
  return text + note_lines(report.warnings);
}

nlohmann::json reshard_json(const ReshardReport& report) {
  using nlohmann::json;
  return {
      {"source", side_json(report.source)},
      {"target", side_json(report.target)},
      {"iteration", report.iteration ? json(*report.iteration) : json(nullptr)},
      {"tensors", report.tensors},
      {"parameters", report.parameters},
      {"bytes", report.written.bytes()},
      {"free_bytes", report.written.free_bytes ? json(*report.written.free_bytes) : json(nullptr)},
      {"files", written_json(report.written)},
      {"warnings", report.warnings},
      {"dry_run", report.written.dry_run},
      {"seconds", report.written.seconds}};
}

// A Hugging Face model knows neither ranks nor optimizer: what convert does.
std::string converted(const ReshardFlags& flags) {
  const ReshardOptions& options = flags.options;
  const bool of_training = options.layout != ParallelTarget() || options.vocabulary_divisor ||
                           options.transformer_engine || options.write.release != kNewestCore ||
                           !options.only.empty() || !options.drop.empty() ||
                           !options.renames.empty() || options.write.zstd_level ||
                           options.repair_masters || options.masters != MasterForm::as_source ||
                           options.model != ModelClass::as_source ||
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
  convert_options.config_folder = options.config_folder;
  convert_options.dtype = options.dtype;
  convert_options.write = options.write;
  const ConvertReport report = convert(convert_options);
  return flags.json ? json_text(tool::to_json(report)) : to_text(report);
}

std::string resharded(const ReshardFlags& flags) {
  const ReshardReport report = reshard(flags.options);
  return flags.json ? json_text(reshard_json(report)) : reshard_text(report);
}

void run(ReshardFlags flags, std::shared_ptr<Group> group) {
  ReshardOptions& options = flags.options;
  options.write.group = std::move(group);
  if (flags.verify) {
    verify_source(*options.write.group, options.source, options.open.iteration,
                  options.write.engine, flags.progress,
                  options.repair_masters ? Masters::not_compared : Masters::compared);
  }
  std::string text;
  {
    const InterruptScope interrupt;
    ProgressLine line("resharding", flags.progress);
    options.write.engine.cancel = interrupt.flag();
    options.write.engine.progress = [&](const Progress& progress) { line.show(progress); };
    text = flags.hugging_face ? converted(flags) : resharded(flags);
  }
  if (flags.options.write.dry_run) return print(text);
  print_done(text, flags.options.target + " is complete");
}

void add_places(Command& command, ReshardFlags& flags) {
  add_path(command, flags.options.source);
  command
      .add_option("OUT", flags.options.target,
                  "Run folder to write the iteration into; created if missing")
      .required()
      .type_name("");
  command
      .add_option(
          "--to",
          [&](const std::string& text) {
            flags.hugging_face = text == "hf";
            if (!flags.hugging_face) flags.options.to = kFormats.at(text);
          },
          "Format: torch_dist, torch (legacy), fsdp_dtensor (Megatron-FSDP), dcp (plain PyTorch) "
          "or hf")
      .type_name("FORMAT")
      .default_text("torch_dist")
      .one_of({"torch_dist", "torch", "fsdp_dtensor", "dcp", "hf"}, other_formats());
}

void add_content_options(Command& command, ReshardOptions& options) {
  add_iteration_option(command, options.open.iteration);
  command
      .add_choice("--optimizer", options.optimizer, kOptimizers,
                  "Optimizer state: fully_reshardable, dp_reshardable, legacy or none (default: "
                  "one tensor per parameter where the format allows it)")
      .type_name("FORM");
  command
      .add_choice("--masters", options.masters, kMasters,
                  "Form of the optimizer's master weights: fp32, or 16-bit remainders, which "
                  "--use-precision-aware-optimizer needs with dp_reshardable (default: remainders "
                  "if the source has them, else fp32)")
      .type_name("FORM");
  command
      .add_choice("--model", options.model, kModels,
                  "Megatron-LM's class of the model: gpt (a layer is attention and an MLP or "
                  "experts) or hybrid (a layer is one of them; pretrain_hybrid.py)")
      .type_name("CLASS")
      .default_text("stays as it is");
  command.add_flag("--repair-masters", options.repair_masters,
                   "Repair optimizer state that Megatron Core 0.15 to 0.19 misplaced; checks every "
                   "fp32 master weight against its weight");
  command
      .add_option("--config", options.config_folder,
                  "For a run saved without Megatron-LM's arguments (verl): folder of its "
                  "config.json (default: next to PATH)")
      .type_name("DIR");
  command
      .add_option("--make-vocab-size-divisible-by", options.vocabulary_divisor,
                  "Pad the vocabulary to a multiple of this times --tp")
      .type_name("N")
      .check(whole_number(1, int64_t{1} << 31));
  add_dtype_option(command, options.dtype);
  add_megatron_options(command, options.write, "Options");
  command
      .add_option("--only", options.only,
                  "Keep only tensors that match, with their optimizer state")
      .type_name("GLOB");
  command.add_option("--drop", options.drop, "Leave out tensors that match").type_name("GLOB");
  command
      .add_list_option(
          "--rename",
          [&](const std::vector<std::string>& all) {
            for (const std::string& text : all) options.renames.push_back(parse_rename(text));
          },
          "Rename a tensor; one '*' on each side matches the same text")
      .type_name("OLD=NEW");
}

}  // namespace

void add_reshard(Command& program, const Processes& processes) {
  auto flags = std::make_shared<ReshardFlags>();
  Command command =
      program.add_command("reshard", "Change a training checkpoint's parallel layout or format");
  add_places(command, *flags);
  add_content_options(command, flags->options);
  add_layout_options(command, flags->options.layout, "stays as it is");
  add_modules_option(command, flags->options.transformer_engine);
  add_write_options(command, flags->options.write, "the iteration in OUT");
  add_verify_option(command, flags->verify);
  add_json_option(command, flags->json);
  add_progress_option(command, flags->progress);
  command.footer(kReshardExamples);
  command.action([flags, processes] { run(*flags, processes()); });
}

}  // namespace ferry::tool
