// plan_export: from a checkpoint to a plan and the small files that go with it.
#include "convert/export.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "convert/arguments/arguments.h"
#include "convert/base_only.h"
#include "convert/config/expressible.h"
#include "convert/config_json.h"
#include "convert/config_value.h"
#include "convert/export/export_tensors.h"
#include "convert/export/lay_out.h"
#include "convert/export/quantise.h"
#include "convert/language_part.h"
#include "convert/recognise.h"
#include "convert/rewrite/rewrite.h"
#include "convert/tokenizer.h"
#include "convert/vocabulary.h"

namespace ferry {
namespace {

// Rows of the embedding, however it is spelled.
int64_t embedding_rows(const Checkpoint& checkpoint, const Architecture& architecture) {
  MegatronModel model(checkpoint.catalog, architecture);
  const auto found = model.find("embedding.word_embeddings.weight");
  if (!found || found->shape.size() != 2 || found->shape[0] < 1) {
    fail(ErrorKind::mismatch,
         "{}: tensor embedding.word_embeddings.weight is {}: this is not a Megatron language model",
         checkpoint.path, found ? "of shape " + to_string(found->shape) : "missing");
  }
  return found->shape[0];
}

// The family of the folder that the model came from, where that can express the model.
std::optional<std::string> family_of(const Checkpoint& original, const Architecture& architecture) {
  const auto config = read_hugging_face_config(*original.catalog->file_system, original.path);
  if (!config) return std::nullopt;
  const Family* family = find_family(text_of(language_config(*config), "model_type", ""));
  if (family == nullptr || !unsupported_reasons(*family, architecture).empty()) return std::nullopt;
  return family->name;
}

ReadArguments read_model(const Checkpoint& checkpoint) {
  if (checkpoint.format == Format::hugging_face || checkpoint.format == Format::safetensors) {
    fail(ErrorKind::unsupported,
         "{}: is not a checkpoint of Megatron-LM; a folder with config.json and weights becomes a "
         "new "
         "Hugging Face model ({}), tensors of a file alone {}",
         checkpoint.path, option("to", "hugging_face"), option("to", "safetensors"));
  }
  ReadArguments read = read_arguments(checkpoint.args.value, checkpoint.path);
  if (read.problems.empty()) return read;
  std::string text;
  for (const std::string& problem : read.problems) text += "\n  " + problem;
  fail(ErrorKind::unsupported, "{}: cannot become a Hugging Face model:{}", checkpoint.path, text);
}

}  // namespace

Export plan_export(const Checkpoint& checkpoint, const ExportOptions& options) {
  if (options.dtype && !is_floating_point(*options.dtype)) {
    fail(ErrorKind::invalid, "dtype {} is not a floating-point type", torch_name(*options.dtype));
  }
  check_no_adapter(checkpoint);
  ReadArguments read = read_model(checkpoint);
  Architecture& a = read.architecture;
  std::optional<std::string> requested = options.family;
  if (!requested && options.original != nullptr) requested = family_of(*options.original, a);
  const Family& family = choose_family(a, requested, checkpoint.path);

  Export result;
  result.family = family.name;
  result.warnings = std::move(read.warnings);
  Tokenizer tokenizer =
      find_tokenizer(*checkpoint.catalog->file_system, checkpoint, options.tokenizer_folder);
  result.warnings.insert(result.warnings.end(), tokenizer.warnings.begin(),
                         tokenizer.warnings.end());
  result.tokenizer_files = std::move(tokenizer.files);
  if (!tokenizer.found) {
    result.warnings.push_back(
        fmt::format("the checkpoint holds no tokenizer files; {} copies them from elsewhere",
                    option("tokenizer_folder", "DIR")));
  }
  a.padded_vocab = embedding_rows(checkpoint, a);
  a.vocab =
      true_vocabulary(checkpoint.args.value, tokenizer, a.padded_vocab, options, result.warnings);

  ExportedTensors tensors =
      export_tensors(checkpoint.catalog, family, a, options.dtype, checkpoint.path);
  if (tensors.rounded > 0) {
    result.warnings.push_back(fmt::format(
        "{} elements of norms, which Megatron-LM and the family store less 1 and whole, "
        "are rounded to the precision that they are written in",
        tensors.rounded));
  }
  result.plan.source = checkpoint.catalog;
  if (options.original != nullptr) {
    fill_up(options, std::move(tensors), result);
    drop_unused(result.plan, Role::optimizer);
    return result;
  }
  SpecialTokens special = tokens_of_arguments(checkpoint.args.value);  // what a conversion kept
  complete_tokens(special, tokenizer, result.warnings);
  auto config = config_json(family, a, tensors.dtype, special, result.warnings);
  if (!options.quantise.empty()) {
    QuantisedFiles files =
        quantise(options.quantise, tensors,
                 {nullptr, are_experts_transposed(family.name), checkpoint.path}, result.warnings);
    config["quantization_config"] = std::move(files.config);
    if (!files.model_opt.empty()) {
      result.small_files.emplace_back(kModelOptConfig, std::move(files.model_opt));
    }
  }
  result.small_files.emplace_back("config.json", config.dump(2) + "\n");
  if (!tokenizer.has_generation_config) {
    result.small_files.emplace_back("generation_config.json",
                                    generation_config_json(special).dump(2) + "\n");
  }
  lay_out(std::move(tensors), options.max_shard_bytes, result);
  drop_unused(result.plan, Role::optimizer);
  return result;
}

}  // namespace ferry
