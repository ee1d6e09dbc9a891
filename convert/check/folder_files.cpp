#include "convert/check/folder_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "convert/check/embedding.h"
#include "convert/config_value.h"
#include "convert/language_part.h"
#include "convert/model/family.h"
#include "convert/model/types.h"
#include "convert/tokenizer.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr const char* kProcessors[] = {"preprocessor_config.json", "processor_config.json",
                                       "image_processor_config.json"};

// Modules of code in {"AutoModel": "modeling_x.Class"}; those of another repository ("a/b--x.C")
// are fetched from there.
void add_code_files(const json& value, std::set<std::string>& files) {
  if (value.is_structured()) {
    for (const json& each : value) add_code_files(each, files);
  } else if (value.is_string()) {
    const std::string name = value.get<std::string>();
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos || dot == 0 || name.find("--") != std::string::npos) return;
    std::string file = name.substr(0, dot);
    std::ranges::replace(file, '.', '/');
    files.insert(file + ".py");
  }
}

// transformers has a class of its own for types that are known here, and asks for the code only
// where the user trusts it.
bool is_known_type(const std::string& type) {
  return find_family(type) != nullptr || same_type(type) != nullptr || computes_otherwise(type);
}

void check_code(const std::vector<CopiedFile>& files, const json& config, Findings& findings) {
  const auto map = config.find("auto_map");
  if (map == config.end()) return;
  std::set<std::string> code;
  add_code_files(*map, code);
  for (const std::string& name : code) {
    const bool is_there =
        std::ranges::any_of(files, [&](const CopiedFile& file) { return file.name == name; });
    if (is_there) continue;
    findings.add(!is_known_type(text_of(config, "model_type", "")), "config", name,
                 fmt::format("config.json's auto_map names code in {}, which is missing", name),
                 "copy it from the original model, or remove auto_map where transformers has a "
                 "class for the model_type");
  }
}

void check_tokenizer(const Checkpoint& checkpoint, const Tokenizer& tokenizer, const json& config,
                     Loader loader, Findings& findings) {
  const int64_t vocab = integer_of(language_config(config), "vocab_size", 0);
  for (const std::string& file : tokenizer.unreadable) {
    findings.problem("tokenizer", file, fmt::format("{} is not valid JSON", file),
                     "copy it again from the model that it is of");
  }
  if (vocab <= 0) return;  // no model of texts
  if (!tokenizer.found) {
    findings.add(is_engine(loader), "tokenizer", checkpoint.path,
                 "the folder has no tokenizer files (tokenizer.json, tokenizer.model, ...), "
                 "without which no text can be given to the model",
                 fmt::format("copy them from the original model (convert with {})",
                             option("tokenizer_folder", "DIR")));
    return;
  }
  if (!tokenizer.vocab) return;
  const Entry* embedding = embedding_of(checkpoint.catalog);
  const int64_t rows = std::max(vocab, embedding != nullptr ? embedding->shape[0] : 0);
  if (*tokenizer.vocab > rows) {
    findings.problem("tokenizer", "vocabulary",
                     fmt::format("the tokenizer has ids up to {}, but the embedding has {} rows: "
                                 "the former is not this model's, or rows were cut",
                                 *tokenizer.vocab - 1, rows),
                     "take the tokenizer of the model, or the embedding with all its rows");
  }
}

void check_special_tokens(const Tokenizer& tokenizer, const json& config, Loader loader,
                          Findings& findings) {
  const int64_t vocab = integer_of(language_config(config), "vocab_size", 0);
  for (const int64_t id : tokenizer.special.eos) {
    if (vocab <= 0 || id < vocab || (tokenizer.vocab && id < *tokenizer.vocab)) continue;
    findings.warning("generation", "eos_token_id",
                     fmt::format("eos_token_id {} is outside of the vocabulary of {}: generation "
                                 "does not stop at it",
                                 id, vocab),
                     "correct generation_config.json");
  }
  const auto is_open = [&](const json& part) {
    const auto member = part.find("eos_token_id");
    return member == part.end() || member->is_null();
  };
  const bool generates = class_name_of(config).ends_with("ForCausalLM") ||
                         class_name_of(config).ends_with("ForConditionalGeneration");
  if (is_engine(loader) && generates && tokenizer.special.eos.empty() && is_open(config) &&
      is_open(language_config(config))) {
    findings.warning("generation", "eos_token_id",
                     "no file gives an eos_token_id: generation only stops at its longest",
                     "add it to generation_config.json");
  }
}

void check_processors(const std::vector<CopiedFile>& files, const json& config, Loader loader,
                      Findings& findings) {
  const auto vision = config.find("vision_config");
  if (!is_engine(loader) || vision == config.end() || !vision->is_object()) return;
  const bool has_one = std::ranges::any_of(
      files, [](const CopiedFile& file) { return has_name(kProcessors, file.name); });
  if (has_one) return;
  findings.problem("files", kProcessors[0],
                   "the model takes images, but the folder has no preprocessor_config.json or "
                   "processor_config.json, without which engines do not start it",
                   "copy them from the original model");
}

}  // namespace

void check_folder_files(const Checkpoint& checkpoint, const json& config, Loader loader,
                        Findings& findings) {
  const FileSystem& files = *checkpoint.catalog->file_system;
  const Tokenizer tokenizer = read_tokenizer(files, carried_files(files, checkpoint.path).files);
  check_code(tokenizer.files, config, findings);
  check_tokenizer(checkpoint, tokenizer, config, loader, findings);
  check_special_tokens(tokenizer, config, loader, findings);
  check_processors(tokenizer.files, config, loader, findings);
}

}  // namespace ferry
