#include "convert/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr uint64_t kMaxJsonBytes = uint64_t{256} << 20;
constexpr int64_t kMaxTokenId = int64_t{1} << 31;

constexpr const char* kGenerationConfig = "generation_config.json";

constexpr std::string_view kNames[] = {"tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "tokenizer.model",
                                       "vocab.json",
                                       "merges.txt",
                                       "vocab.txt",
                                       "spiece.model",
                                       "chat_template.jinja",
                                       "chat_template.json",
                                       "tekken.json",
                                       "tokenizer.model.v3",
                                       "sentencepiece.bpe.model"};

// Calls back with every scalar of a JSON text and the keys that lead to it; array elements have no
// key of their own but end in "[]". Keeps nothing: tokenizer.json can be tens of megabytes.
class Scalars : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Visit = std::function<void(const std::vector<std::string>& path, const std::string* text,
                                   std::optional<int64_t> number)>;
  explicit Scalars(Visit visit) : visit_(std::move(visit)) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t value) override { return scalar(nullptr, value); }
  bool number_unsigned(uint64_t value) override {
    return scalar(nullptr, value <= INT64_MAX ? static_cast<int64_t>(value) : INT64_MAX);
  }
  bool number_float(double, const std::string&) override { return scalar(nullptr, std::nullopt); }
  bool string(std::string& value) override { return scalar(&value, std::nullopt); }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_object(size_t) override { return push({}); }
  bool key(std::string& name) override {
    path_.back() = name;
    return true;
  }
  bool end_object() override { return pop(); }
  bool start_array(size_t) override { return push("[]"); }
  bool end_array() override { return pop(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool scalar(const std::string* text, std::optional<int64_t> number) {
    visit_(path_, text, number);
    return true;
  }
  bool push(std::string name) {
    path_.push_back(std::move(name));
    return path_.size() < 64;
  }
  bool pop() {
    path_.pop_back();
    return true;
  }

  Visit visit_;
  std::vector<std::string> path_;
};

class Finder {
 public:
  Finder(const FileSystem& files, std::string folder) : files_(files), folder_(std::move(folder)) {}

  Tokenizer run() {
    for (const std::string& name : files_.list(folder_)) {
      if (!is_tokenizer_file(name)) continue;
      const std::string path = join(folder_, name);
      const PathStatus status = files_.status(path);
      if (status.kind == PathKind::file) result_.files.push_back({path, name, status.bytes});
    }
    if (result_.files.empty()) return {};
    add_generation_config();
    read("tokenizer.json",
         [this](auto& path, auto* text, auto number) { on_tokenizer(path, text, number); });
    if (!result_.vocab) {
      const auto grow_vocab = [this](auto& path, auto*, auto number) {
        if (path.size() == 1 && number) grow(*number);
      };
      read("vocab.json", grow_vocab);
      read("added_tokens.json", [this](auto& path, auto*, auto number) {
        if (path.size() == 1 && number) add(path[0], *number);
      });
    }
    const auto on_special = [this](auto& path, auto* text, auto) {
      const bool content = path.size() == 2 && path[1] == "content";
      if (text != nullptr && (path.size() == 1 || content)) special_.emplace(path[0], *text);
    };
    read("tokenizer_config.json", on_special);
    read("special_tokens_map.json", on_special);
    result_.bos = id_of("bos_token");
    result_.eos = id_of("eos_token");
    result_.pad = id_of("pad_token");
    return std::move(result_);
  }

 private:
  void add_generation_config() {
    const std::string path = join(folder_, kGenerationConfig);
    const PathStatus status = files_.status(path);
    if (status.kind != PathKind::file) return;
    result_.files.push_back({path, kGenerationConfig, status.bytes});
    result_.has_generation_config = true;
  }

  void read(std::string_view name, Scalars::Visit visit) {
    const auto found = std::find_if(result_.files.begin(), result_.files.end(),
                                    [&](const CopiedFile& file) { return file.name == name; });
    if (found == result_.files.end()) return;
    if (found->bytes > kMaxJsonBytes) {
      return result_.warnings.push_back(fmt::format("{} is too large to be read", found->from));
    }
    const std::string text = read_file(files_, found->from, kMaxJsonBytes);
    Scalars handler(std::move(visit));
    if (!nlohmann::json::sax_parse(text, &handler)) {
      result_.warnings.push_back(
          fmt::format("{} is not valid JSON; it is copied as it is", found->from));
    }
  }

  void grow(int64_t id) {
    if (id < 0 || id >= kMaxTokenId) return;
    result_.vocab = std::max(result_.vocab.value_or(0), id + 1);
  }
  void add(const std::string& content, int64_t id) {
    grow(id);
    ids_.emplace(content, id);
  }

  // model.vocab is {token: id} or, of Unigram models, [[token, score], ...].
  void on_tokenizer(const std::vector<std::string>& path, const std::string* text,
                    std::optional<int64_t> number) {
    if (path.size() >= 3 && path[0] == "model" && path[1] == "vocab") {
      if (path.size() == 3 && number) grow(*number);
      if (path.size() == 4 && path[2] == "[]" && text != nullptr) grow(unigram_++);
    } else if (path.size() == 3 && path[0] == "added_tokens") {
      if (path[2] == "id" && number) added_id_ = *number;
      if (path[2] == "content" && text != nullptr) add(*text, added_id_);
    }
  }

  std::optional<int64_t> id_of(const std::string& which) const {
    const auto token = special_.find(which);
    if (token == special_.end()) return std::nullopt;
    const auto id = ids_.find(token->second);
    if (id == ids_.end()) return std::nullopt;
    return id->second;
  }

  const FileSystem& files_;
  std::string folder_;
  Tokenizer result_;
  std::map<std::string, int64_t> ids_;          // of added tokens
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

}  // namespace

bool is_tokenizer_file(std::string_view name) {
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         name.ends_with(".tiktoken") ||
         (name.starts_with("tokenization_") && name.ends_with(".py"));
}

Tokenizer tokenizer_beside(const FileSystem& files, const std::string& folder) {
  return Finder(files, folder).run();
}

Tokenizer find_tokenizer(const FileSystem& files, const Checkpoint& checkpoint,
                         const std::string& folder) {
  if (!folder.empty()) {
    const PathKind kind = files.status(folder).kind;
    if (kind != PathKind::folder) {
      fail(ErrorKind::not_found, "tokenizer folder {} {}", folder,
           kind == PathKind::missing ? "does not exist" : "is not a folder");
    }
    Tokenizer found = Finder(files, folder).run();
    if (found.files.empty()) {
      fail(ErrorKind::not_found,
           "tokenizer folder {} holds no tokenizer files (tokenizer.json, tokenizer.model, ...)",
           folder);
    }
    return found;
  }
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
    Tokenizer found = Finder(files, place).run();
    if (!found.files.empty()) return found;
  }
  return {};
}

}  // namespace ferry
