#include "ops/convert/to_hugging_face.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "convert/base_only.h"
#include "convert/check/model_check.h"
#include "convert/rewrite/rewrite.h"
#include "convert/state_dict/without_arguments.h"
#include "convert/tokenizer.h"
#include "ops/convert/source.h"

namespace ferry {
namespace {

constexpr uint64_t kMaxCopiedBytes = uint64_t{1} << 30;  // a tokenizer's file

ExportOptions export_options(const ConvertOptions& options) {
  ExportOptions model;
  model.family = options.family;
  model.vocab_size = options.vocab_size;
  model.cut_tokens = options.cut_tokens;
  model.keep_padding = options.keep_padding;
  model.dtype = options.dtype;
  model.quantise = options.quantise;
  model.as_is = options.as_is;
  model.ignore_index = options.ignore_index;
  model.max_shard_bytes = options.max_shard_bytes;
  model.tokenizer_folder = options.tokenizer_folder;
  return model;
}

// A model in transformers' names keeps its vocabulary.
void check_new_form(const Checkpoint& checkpoint, const ExportOptions& options) {
  const std::pair<std::string_view, bool> refused[] = {
      {"vocab_size", options.vocab_size.has_value()}, {"keep_padding", options.keep_padding}};
  for (const auto& [name, given] : refused) {
    if (!given) continue;
    fail(ErrorKind::invalid,
         "{}: is a model in Hugging Face's names, for which {} cannot be used with {}",
         checkpoint.path, option(name), option("to", "hugging_face"));
  }
}

// Options that describe a state dict apply to no other checkpoint.
void check_no_state_dict(const Checkpoint& checkpoint, const ConvertOptions& options,
                         bool made_arguments) {
  if (options.as_is && checkpoint.format != Format::hugging_face) {
    fail(ErrorKind::invalid, "{}: {} is for Hugging Face models, this is {}", checkpoint.path,
         option("as_is"), name(checkpoint.format));
  }
  const bool given = (!options.config_folder.empty() && !made_arguments) || !options.only.empty() ||
                     !options.renames.empty() || options.drop_unknown;
  if (!given) return;
  fail(ErrorKind::invalid,
       "{}: {}, {}, {} and {} are for state dicts and Hugging Face folders; the arguments of this "
       "checkpoint ({}) describe its model",
       checkpoint.path, option("config_folder"), option("only"), option("renames"),
       option("drop_unknown"), name(checkpoint.format));
}

ModelPlan plan_of(Export model, const Checkpoint& checkpoint) {
  ModelPlan result;
  result.planned.plan = std::move(model.plan);
  result.planned.small_files = std::move(model.small_files);
  for (const CopiedFile& file : model.tokenizer_files) {
    result.planned.small_files.emplace_back(
        file.name, read_file(*checkpoint.catalog->file_system, file.from, kMaxCopiedBytes));
  }
  result.planned.warnings = std::move(model.warnings);
  result.family = std::move(model.family);
  result.count = model.count;
  result.constants = std::move(model.constants);
  return result;
}

// Gives a checkpoint of Megatron-LM's format without arguments those of the config.json that goes
// with it, and `model` the tokenizer next to that.
void add_arguments(Checkpoint& checkpoint, const std::string& config_folder, ExportOptions& model,
                   std::vector<std::string>& warnings) {
  const std::string folder = find_config_folder(checkpoint, config_folder);
  give_arguments(checkpoint, folder, warnings);
  const FileSystem& files = *checkpoint.catalog->file_system;
  const std::vector<CopiedFile> found = files_of_model(files, folder, {}, true).files;
  const bool has_tokenizer = std::ranges::any_of(
      found, [](const CopiedFile& file) { return is_tokenizer_file(file.name); });
  if (model.tokenizer_folder.empty() && has_tokenizer) model.tokenizer_folder = folder;
}

// What becomes of an adapter inside; of what is copied as it is, nothing.
std::string apply_adapter(Checkpoint& checkpoint, const ConvertOptions& options) {
  if (options.as_is) return {};
  const bool unknown =
      checkpoint.format == Format::hugging_face && recognise(checkpoint).family.empty();
  return resolve_adapter(checkpoint, options.base_only, unknown);
}

}  // namespace

ModelPlan plan_hugging_face(Checkpoint& checkpoint, const ConvertOptions& options) {
  ExportOptions model = export_options(options);
  std::optional<Checkpoint> original;
  if (!options.fill_from.empty()) {
    original = open_source(checkpoint.catalog->file_system, options.fill_from, options);
    resolve_adapter(*original, false, false);
    model.original = &*original;
  }
  if (is_read_as_state_dict(checkpoint, options)) {
    const StateDict state_dict = open_state_dict(checkpoint, options);
    check_new_form(checkpoint, model);
    return plan_of(plan_state_dict(state_dict, model), checkpoint);
  }
  std::vector<std::string> warnings;
  if (std::string warning = apply_adapter(checkpoint, options); !warning.empty()) {
    warnings.push_back(std::move(warning));
  }
  const bool lacking = lacks_arguments(checkpoint);
  if (lacking) add_arguments(checkpoint, options.config_folder, model, warnings);
  check_no_state_dict(checkpoint, options, lacking);
  if (!options.ignored_members.empty()) {
    fail(ErrorKind::invalid,
         "{}: {} is for a config.json that is read, with {} and {} and of state dicts",
         checkpoint.path, option("ignored_members"), option("to", "torch_dist"), "torch");
  }
  const bool named = checkpoint.format == Format::hugging_face;
  if (named) check_new_form(checkpoint, model);
  ModelPlan result =
      plan_of(named ? plan_rewrite(checkpoint, model) : plan_export(checkpoint, model), checkpoint);
  if (options.base_only) {
    std::erase_if(result.planned.small_files,
                  [](const auto& file) { return is_adapter_file(file.first); });
  }
  result.planned.warnings.insert(result.planned.warnings.begin(), warnings.begin(), warnings.end());
  return result;
}

}  // namespace ferry
