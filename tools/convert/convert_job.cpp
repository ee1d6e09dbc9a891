#include "tools/convert/convert_job.h"

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/safetensors_plan.h"
#include "ckpt/group/together.h"
#include "ckpt/megatron/optimizer/masters/weights.h"
#include "convert/base_only.h"
#include "convert/check/model_check.h"
#include "convert/check/names.h"
#include "convert/rewrite/rewrite.h"
#include "convert/state_dict/without_arguments.h"
#include "convert/tokenizer.h"
#include "tools/convert/import_job.h"
#include "tools/convert/state_dict_options.h"
#include "tools/output/write_output.h"

namespace ferry::tool {
namespace {

constexpr uint64_t kMaxCopiedBytes = uint64_t{1} << 30;  // a tokenizer's file

std::string_view spelling(ConvertTarget to) {
  switch (to) {
    case ConvertTarget::hugging_face:
      return "hf";
    case ConvertTarget::safetensors:
      return "safetensors";
    case ConvertTarget::torch_dist:
      return "torch_dist";
    case ConvertTarget::torch:
      return "torch";
  }
  return "";
}

// What is to be written, whatever it was made from.
struct Job {
  PlannedOutput planned;
  std::string family;
  ParameterCount count;
};

// Options that only some targets heed.
void check_options(const ConvertOptions& options) {
  const ConvertTarget to = options.to;
  const bool hf = to == ConvertTarget::hugging_face, plain = to == ConvertTarget::safetensors;
  const bool megatron = !hf && !plain;
  const ExportOptions& model = options.model;
  struct Option {
    std::string_view flag;
    bool given;
    bool heeded;
  };
  const Option all[] = {
      {"--family", model.family.has_value(), !plain},
      {"--ignore-member", !options.import.ignored_members.empty(), !plain},
      {"--vocab-size", model.vocab_size.has_value(), hf},
      {"--force", model.cut_tokens, hf},
      {"--keep-padding", model.keep_padding, hf},
      {"--quantize", model.quantise_fp8, hf},
      {"--fill-from", !options.fill_from.empty(), hf},
      {"--tokenizer", !model.tokenizer_folder.empty(), !plain},
      {"--max-shard-size", model.max_shard_bytes != ExportOptions().max_shard_bytes, !megatron},
      {"--as-is", model.as_is, hf},
      {"--optimizer", options.optimizer, !hf},
      {"--raw", options.open.raw, plain},
      {"--from-masters", options.from_masters, !megatron},
      {"--drop-unknown", options.import.drop_unknown, !plain},
      {"--config", !options.config_folder.empty(), !plain},
      {"--only", !options.only.empty(), !plain},
      {"--rename", !options.renames.empty(), !plain},
      {"--base-only", options.base_only, !plain},
      {"--core-release", options.write.release != kNewestCore, to == ConvertTarget::torch_dist},
      {"--compress", options.write.zstd_level.has_value(), to == ConvertTarget::torch_dist},
      {"a layout", options.import.layout != ParallelTarget(), megatron},
      {"--make-vocab-size-divisible-by",
       options.import.make_vocab_size_divisible_by != ImportOptions().make_vocab_size_divisible_by,
       megatron}};
  for (const Option& option : all) {
    if (option.given && !option.heeded) {
      fail(ErrorKind::invalid, "{} means nothing with --to {}", option.flag, spelling(to));
    }
  }
  if (model.cut_tokens && !model.vocab_size) {
    fail(ErrorKind::invalid, "--force means nothing without --vocab-size");
  }
  if (!plain && model.dtype && size_bytes(*model.dtype) == 1) {
    fail(ErrorKind::invalid, "--dtype {} means nothing with --to {}: 8-bit floats need scales{}",
         torch_name(*model.dtype), spelling(to),
         hf ? "; --quantize fp8 makes them" : ", which Megatron-LM's formats have not");
  }
  if (model.as_is &&
      (model.dtype || model.quantise_fp8 || !options.fill_from.empty() || options.base_only)) {
    fail(ErrorKind::invalid,
         "--as-is copies tensors; it excludes --dtype, --quantize, --fill-from and --base-only");
  }
  if (model.quantise_fp8 && options.write.group->size() > 1) {
    fail(ErrorKind::invalid, "--quantize is done by one process, not by {}",
         options.write.group->size());
  }
}

// Of a model in transformers' names the vocabulary stays as it is.
void check_new_form(const Checkpoint& checkpoint, const ExportOptions& options) {
  const std::pair<std::string_view, bool> refused[] = {
      {"--vocab-size", options.vocab_size.has_value()}, {"--keep-padding", options.keep_padding}};
  for (const auto& [flag, given] : refused) {
    if (!given) continue;
    fail(ErrorKind::invalid,
         "{}: is a model in Hugging Face's names, of which {} means nothing with --to hf",
         checkpoint.path, flag);
  }
}

// What the options say of a state dict mean nothing for other checkpoints.
void check_no_state_dict(const Checkpoint& checkpoint, const ConvertOptions& options,
                         bool made_arguments) {
  if (options.model.as_is && checkpoint.format != Format::hugging_face) {
    fail(ErrorKind::invalid, "{}: --as-is is for Hugging Face models, this is {}", checkpoint.path,
         name(checkpoint.format));
  }
  const bool given = (!options.config_folder.empty() && !made_arguments) || !options.only.empty() ||
                     !options.renames.empty() || options.import.drop_unknown;
  if (!given) return;
  fail(ErrorKind::invalid,
       "{}: --config, --only, --rename and --drop-unknown are for state dicts and Hugging "
       "Face folders; the arguments of this checkpoint ({}) describe its model",
       checkpoint.path, name(checkpoint.format));
}

Job job_of(Export model, const Checkpoint& checkpoint) {
  Job job;
  job.planned.plan = std::move(model.plan);
  job.planned.small_files = std::move(model.small_files);
  for (const CopiedFile& file : model.tokenizer_files) {
    job.planned.small_files.emplace_back(
        file.name, read_file(*checkpoint.catalog->file_system, file.from, kMaxCopiedBytes));
  }
  job.planned.warnings = std::move(model.warnings);
  job.family = std::move(model.family);
  job.count = model.count;
  return job;
}

// Gives a checkpoint of Megatron-LM's format without arguments those of the config.json that goes
// with it, and the tokenizer beside that.
ExportOptions add_arguments(Checkpoint& checkpoint, const ConvertOptions& options,
                            std::vector<std::string>& warnings) {
  ExportOptions model = options.model;
  const std::string folder = find_config_folder(checkpoint, options.config_folder);
  give_arguments(checkpoint, folder, warnings);
  const FileSystem& files = *checkpoint.catalog->file_system;
  const std::vector<CopiedFile> found = files_of_model(files, folder, {}, true).files;
  const bool has_tokenizer = std::ranges::any_of(
      found, [](const CopiedFile& file) { return is_tokenizer_file(file.name); });
  if (model.tokenizer_folder.empty() && has_tokenizer) model.tokenizer_folder = folder;
  return model;
}

// What becomes of an adapter inside; of what is copied as it is, nothing.
std::string settle(Checkpoint& checkpoint, const ConvertOptions& options) {
  if (options.model.as_is) return {};
  const bool unknown =
      checkpoint.format == Format::hugging_face && recognise(checkpoint).family.empty();
  return settle_adapter(checkpoint, options.base_only, unknown);
}

Job plan_hugging_face(Checkpoint& checkpoint, const ConvertOptions& options) {
  std::optional<Checkpoint> original;  // that the checkpoint is filled up from
  if (!options.fill_from.empty()) {
    original = open_source(checkpoint.catalog->file_system, options.fill_from, options);
    settle_adapter(*original, false, false);
  }
  if (is_read_as_state_dict(checkpoint, options)) {
    ExportOptions model = options.model;
    model.original = original ? &*original : nullptr;
    const StateDict state_dict = open_state_dict(checkpoint, options);
    check_new_form(checkpoint, model);
    return job_of(plan_state_dict(state_dict, model), checkpoint);
  }
  std::vector<std::string> warnings;
  if (std::string settled = settle(checkpoint, options); !settled.empty()) {
    warnings.push_back(std::move(settled));
  }
  const bool lacking = lacks_arguments(checkpoint);
  ExportOptions model = lacking ? add_arguments(checkpoint, options, warnings) : options.model;
  check_no_state_dict(checkpoint, options, lacking);
  if (!options.import.ignored_members.empty()) {
    fail(
        ErrorKind::invalid,
        "{}: --ignore-member is for a config.json that is read, with --to torch_dist and torch and "
        "of state dicts",
        checkpoint.path);
  }
  model.original = original ? &*original : nullptr;
  if (checkpoint.format == Format::hugging_face) check_new_form(checkpoint, model);
  Job job = job_of(checkpoint.format == Format::hugging_face ? plan_rewrite(checkpoint, model)
                                                             : plan_export(checkpoint, model),
                   checkpoint);
  if (options.base_only) {
    std::erase_if(job.planned.small_files,
                  [](const auto& file) { return is_adapter_file(file.first); });
  }
  job.planned.warnings.insert(job.planned.warnings.begin(), warnings.begin(), warnings.end());
  return job;
}

Job plan_tensors(const Checkpoint& checkpoint, const ConvertOptions& options) {
  SafetensorsExport plain = plan_safetensors(
      checkpoint.catalog, {options.optimizer, options.model.dtype, options.model.max_shard_bytes});
  Job job;
  job.planned.plan = std::move(plain.plan);
  job.count = plain.count;
  if (!plain.index_json.empty()) {
    job.planned.small_files.emplace_back(kSafetensorsIndexName, std::move(plain.index_json));
  }
  if (options.optimizer && !checkpoint.optimizer_problem.empty()) {
    job.planned.warnings.push_back(checkpoint.optimizer_problem);
  }
  return job;
}

ConvertReport describe(const Checkpoint& checkpoint, const Job& job,
                       const ConvertOptions& options) {
  ConvertReport report;
  report.source = checkpoint.path;
  report.target = options.target;
  report.source_format = name(checkpoint.format);
  report.iteration = checkpoint.iteration;
  report.family = job.family;
  report.tensors = static_cast<int64_t>(job.planned.plan.target.entries.size());
  report.parameters = job.count.parameters;
  report.integers = job.count.integers;
  return report;
}

}  // namespace

Checkpoint open_source(const std::shared_ptr<const FileSystem>& file_system,
                       const std::string& path, const ConvertOptions& options) {
  const bool keeps_names = options.model.as_is || options.to == ConvertTarget::safetensors;
  Checkpoint checkpoint = keeps_names ? open_checkpoint(file_system, path, options.open)
                                      : open_model(file_system, path, options.open);
  const bool is_checked = options.to != ConvertTarget::safetensors;  // when it is planned
  if (!is_checked && !options.model.ignore_index) require_index(checkpoint);
  return checkpoint;
}

ConvertReport convert(const ConvertOptions& options) {
  check_options(options);
  if (options.to == ConvertTarget::torch_dist || options.to == ConvertTarget::torch) {
    return convert_to_megatron(options);
  }
  const std::shared_ptr<const FileSystem> file_system = posix_file_system();
  const Output output = {OutputKind::model_folder, options.target, {}};
  Checkpoint checkpoint;
  Job job;
  together(*options.write.group, [&] {
    check_output(*file_system, output, options.source, options.write.overwrite);
    checkpoint = open_source(file_system, options.source, options);
    if (options.from_masters) use_masters_as_weights(checkpoint);
    job = options.to == ConvertTarget::hugging_face ? plan_hugging_face(checkpoint, options)
                                                    : plan_tensors(checkpoint, options);
    prepare(job.planned, options.write.integrity);
    return std::string();
  });
  ConvertReport report = describe(checkpoint, job, options);
  report.written = write_output(file_system, output, job.planned, options.write);
  report.warnings = job.planned.warnings;
  return report;
}

}  // namespace ferry::tool
