#include "convert/tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/io/file_system.h"
#include "convert/json_scalars.h"

namespace ferry {
namespace {

constexpr uint64_t kMaxJsonBytes = uint64_t{256} << 20;
constexpr int64_t kMaxTokenId = int64_t{1} << 31;

constexpr const char* kGenerationConfig = "generation_config.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";

constexpr std::string_view kNames[] = {"special_tokens_map.json", "added_tokens.json",
                                       "tekken.json", "encoder.json", "normalizer.json"};
constexpr std::string_view kEnds[] = {".tiktoken", ".model", ".spm", ".bpe", ".codes"};
constexpr std::string_view kBegins[] = {"tokenizer.", "tokenizer_", "tokenization_",
                                        "vocab.",     "merges.",    "chat_template"};
constexpr std::string_view kTemplates = "additional_chat_templates/";

constexpr std::string_view kSpecial[] = {"bos_token", "eos_token", "pad_token"};

class Finder {
 public:
  Finder(const FileSystem& files, std::vector<CopiedFile> found) : files_(files) {
    result_.files = std::move(found);
  }

  Tokenizer run() {
    for (const CopiedFile& file : result_.files) {
      result_.found |= is_tokenizer_file(file.name);
      result_.has_generation_config |= file.name == kGenerationConfig;
    }
    read_special_tokens();
    read_vocabulary();
    for (const auto& [which, text] : special_) find_id(which, text);
    return std::move(result_);
  }

 private:
  // Ids stand in generation_config.json; of a tokenizer, the texts of its tokens.
  void read_special_tokens() {
    read(kGenerationConfig, [this](auto& path, auto*, auto number) {
      const bool is_one = path.size() == 1 || (path.size() == 2 && path[1] == "[]");
      if (is_one && number) add_id(path[0], *number);
    });
    const auto on_special = [this](auto& path, auto* text, auto) {
      const bool content = path.size() == 2 && path[1] == "content";
      const bool is_one = path.size() == 1 || content;
      if (text && is_one && has_name(kSpecial, path[0])) special_.emplace(path[0], *text);
    };
    const bool has_config = read(kTokenizerConfig, on_special);
    read("special_tokens_map.json", on_special);
    if (!has_config) return;
    // {"added_tokens_decoder": {"2": {"content": "</s>"}}} stands before the names.
    read(kTokenizerConfig, [this](auto& path, auto* text, auto) {
      const bool added = path.size() == 3 && path[0] == "added_tokens_decoder";
      if (!text || !added || path[2] != "content") return;
      int64_t id = -1;
      const std::string& key = path[1];
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error == std::errc() && end == key.data() + key.size()) name_token(*text, id);
    });
  }

  void read_vocabulary() {
    read("tokenizer.json",
         [this](auto& path, auto* text, auto number) { on_tokenizer(path, text, number); });
    if (result_.vocab) return;
    const auto on_vocabulary = [this](auto& path, auto*, auto number) {
      if (path.size() == 1 && number) add(path[0], *number);
    };
    read("vocab.json", on_vocabulary);
    read("added_tokens.json", on_vocabulary);
  }

  // False when there is no such file that parses.
  bool read(std::string_view name, JsonScalars::Visit visit) {
    const auto found = std::find_if(result_.files.begin(), result_.files.end(),
                                    [&](const CopiedFile& file) { return file.name == name; });
    if (found == result_.files.end()) return false;
    if (found->bytes > kMaxJsonBytes) {
      result_.warnings.push_back(fmt::format("{} is too large to be read", found->from));
      return false;
    }
    const std::string text = read_file(files_, found->from, kMaxJsonBytes);
    JsonScalars handler(std::move(visit));
    if (!nlohmann::json::sax_parse(text, &handler)) {
      result_.unreadable.emplace_back(name);
      result_.warnings.push_back(
          fmt::format("{} is not valid JSON; it is copied as it is", found->from));
      return false;
    }
    result_.names_special |=
        name == kGenerationConfig || name == kTokenizerConfig || name == "special_tokens_map.json";
    return true;
  }

  void grow(int64_t id) {
    if (id < 0 || id >= kMaxTokenId) return;
    result_.vocab = std::max(result_.vocab.value_or(0), id + 1);
  }
  void add(const std::string& content, int64_t id) {
    grow(id);
    name_token(content, id);
  }
  // Only of tokens that are asked for: a vocabulary is long.
  void name_token(const std::string& content, int64_t id) {
    const bool requested = std::any_of(special_.begin(), special_.end(),
                                       [&](const auto& each) { return each.second == content; });
    const bool is_id = id >= 0 && id < kMaxTokenId;
    if (requested && is_id) ids_.emplace(content, id);
  }

  // model.vocab is {token: id} or, of Unigram models, [[token, score], ...].
  void on_tokenizer(const std::vector<std::string>& path, const std::string* text,
                    std::optional<int64_t> number) {
    if (path.size() >= 3 && path[0] == "model" && path[1] == "vocab") {
      if (path.size() == 3 && number) add(path[2], *number);
      if (path.size() == 4 && path[2] == "[]" && text != nullptr) add(*text, unigram_++);
    } else if (path.size() == 3 && path[0] == "added_tokens") {
      if (path[2] == "id" && number) added_id_ = *number;
      if (path[2] == "content" && text != nullptr) add(*text, added_id_);
    }
  }

  void add_id(const std::string& key, int64_t id) {
    if (id < 0 || id >= kMaxTokenId) return;
    SpecialTokens& special = result_.special;
    if (key == "bos_token_id" && !special.bos) special.bos = id;
    if (key == "pad_token_id" && !special.pad) special.pad = id;
    if (key == "eos_token_id") special.eos.push_back(id);
  }

  // What generation_config.json says goes before what a tokenizer is called to do.
  void find_id(const std::string& which, const std::string& text) {
    const SpecialTokens& special = result_.special;
    const bool is_open = (which == "bos_token" && !special.bos) ||
                         (which == "pad_token" && !special.pad) ||
                         (which == "eos_token" && special.eos.empty());
    if (!is_open) return;
    if (const auto id = ids_.find(text); id != ids_.end()) return add_id(which + "_id", id->second);
    result_.warnings.push_back(
        fmt::format("the tokenizer's {} is '{}', whose id its files do not give", which, text));
  }

  const FileSystem& files_;
  Tokenizer result_;
  std::map<std::string, int64_t> ids_;          // of those texts
  std::map<std::string, std::string> special_;  // "eos_token" -> its text
  int64_t unigram_ = 0;
  int64_t added_id_ = 0;
};

std::string parent(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const size_t slash = end == std::string::npos ? end : path.find_last_of('/', end);
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Files about images, sounds and the like.
bool is_processor_file(std::string_view name) {
  return name.ends_with("processor_config.json") ||
         (name.ends_with(".py") && name.find("process") != std::string_view::npos);
}

// Puts the tokenizer of `folder`, if one is given, in place of the one among `found`.
void exchange_tokenizer(const FileSystem& files, const std::string& folder,
                        std::vector<CopiedFile>& found) {
  if (folder.empty()) return;
  const PathKind kind = files.status(folder).kind;
  if (kind != PathKind::folder) {
    fail(ErrorKind::not_found, "tokenizer folder {} {}", folder,
         kind == PathKind::missing ? "does not exist" : "is not a folder");
  }
  std::vector<CopiedFile> given = carried_files(files, folder, true).files;
  if (std::none_of(given.begin(), given.end(),
                   [](const CopiedFile& file) { return is_tokenizer_file(file.name); })) {
    fail(ErrorKind::not_found,
         "tokenizer folder {} holds no tokenizer files (tokenizer.json, tokenizer.model, ...)",
         folder);
  }
  std::erase_if(found, [](const CopiedFile& file) { return is_tokenizer_file(file.name); });
  for (CopiedFile& file : given) {
    const bool is_new = std::none_of(found.begin(), found.end(), [&](const CopiedFile& other) {
      return other.name == file.name;
    });
    const bool is_chosen = is_tokenizer_file(file.name) || file.name == kGenerationConfig ||
                           is_processor_file(file.name);
    if (is_new && is_chosen) found.push_back(std::move(file));
  }
}

std::vector<CopiedFile> files_of_run(const FileSystem& files, const Checkpoint& checkpoint) {
  if (checkpoint.path.empty()) return {};
  const std::string above = parent(checkpoint.path);
  const std::string places[] = {join(checkpoint.path, "tokenizer"),
                                join(above, "tokenizer"),
                                join(above, "context/nemo_tokenizer"),
                                join(above, "context/artifacts/tokenizer"),
                                join(checkpoint.path, "context/nemo_tokenizer"),
                                join(checkpoint.path, "context/artifacts/tokenizer")};
  for (const std::string& place : places) {
    if (files.status(place).kind != PathKind::folder) continue;
    std::vector<CopiedFile> found = carried_files(files, place).files;
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace

bool is_tokenizer_file(std::string_view path) {
  if (path.starts_with(kTemplates)) return true;
  if (path.find('/') != std::string_view::npos) return false;
  const auto begins = [&](std::string_view part) { return path.starts_with(part); };
  const auto ends = [&](std::string_view part) { return path.ends_with(part); };
  return has_name(kNames, path) || std::any_of(std::begin(kBegins), std::end(kBegins), begins) ||
         std::any_of(std::begin(kEnds), std::end(kEnds), ends);
}

void complete_tokens(SpecialTokens& tokens, const Tokenizer& tokenizer,
                     std::vector<std::string>& warnings) {
  if (!tokens.bos) tokens.bos = tokenizer.special.bos;
  if (!tokens.pad) tokens.pad = tokenizer.special.pad;
  if (tokens.eos.empty()) tokens.eos = tokenizer.special.eos;
  // Where files name special tokens, a model may well have none to begin or pad with.
  std::vector<std::string_view> unknown;
  if (tokens.eos.empty()) unknown.push_back("eos_token_id");
  if (!tokens.bos && !tokenizer.names_special) unknown.push_back("bos_token_id");
  if (!tokens.pad && !tokenizer.names_special) unknown.push_back("pad_token_id");
  if (unknown.empty()) return;
  warnings.push_back(fmt::format(
      "{} not set: neither the model's own configuration nor generation_config.json or the "
      "tokenizer's tokenizer_config.json has {}",
      unknown.size() == 1 ? fmt::format("{} is", unknown.front())
                          : fmt::format("{} are", fmt::join(unknown, ", ")),
      unknown.size() == 1 ? "it" : "them"));
}

CarriedFiles files_of_model(const FileSystem& files, const std::string& folder,
                            const std::string& tokenizer_folder, bool top_only) {
  CarriedFiles own = carried_files(files, folder, top_only);
  exchange_tokenizer(files, tokenizer_folder, own.files);
  return own;
}

Tokenizer read_tokenizer(const FileSystem& files, std::vector<CopiedFile> found) {
  return Finder(files, std::move(found)).run();
}

Tokenizer find_tokenizer(const FileSystem& files, const Checkpoint& checkpoint,
                         const std::string& tokenizer_folder) {
  std::vector<CopiedFile> found = files_of_run(files, checkpoint);
  exchange_tokenizer(files, tokenizer_folder, found);
  return read_tokenizer(files, std::move(found));
}

}  // namespace ferry
