// Mutations of tokenizers' files in their own languages: members of JSON, lines, fields of protobuf
// messages; and texts that are made of their tokens and of what is hard to divide.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/fuzz/json_members.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/protobuf_fields.h"
#include "tests/fuzz/tokenizer_files.h"

namespace ferry::test {
namespace {

using nlohmann::json;

const std::vector<std::string> kTextPieces = {" ",
                                              "  ",
                                              "\n",
                                              "\r\n",
                                              "\t",
                                              "a",
                                              "the",
                                              " the",
                                              "'s",
                                              "'LL",
                                              "1",
                                              "12345",
                                              "Hello",
                                              "_",
                                              "!",
                                              "...",
                                              "<s>",
                                              "</s>",
                                              "<unk>",
                                              "<0x41>",
                                              "<|endoftext|>",
                                              "\u2581",
                                              "\u2581\u2581",
                                              "\u00a0",
                                              "\u3000",
                                              "\u0301",
                                              "e\u0301",
                                              "\u200d",
                                              "\u017f",
                                              "\u0130",
                                              "\u00df",
                                              "\ufb01",
                                              "\ufdfa",
                                              "\u65e5\u672c\u8a9e",
                                              "\u0627\u0644",
                                              "\U0001F642",
                                              "\U0001F468\u200D\U0001F469",
                                              "\uFFFD",
                                              "\U0010FFFF",
                                              std::string(1, '\0'),
                                              "\x80",
                                              "\xC3",
                                              "\xE3\x81",
                                              "\xED\xA0\x80",
                                              "\xF0\x9F",
                                              "\xFF"};
const std::vector<std::string> kPatterns = {
    "gpt2", "cl100k", "o200k", "llama3", "qwen2", "tekken", "a|b", "\\p{L}",
    "(",    "",       "[^x]*", "\\s+$",  "(?=a)", "x*",     ".",   "(a|aa)+$"};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1);
    lines.push_back(text.substr(at, end + 1 - at));
    at = end + 1;
  }
  return lines;
}

// One line, or its place.
void change_line(std::vector<std::string>& lines, Random& random) {
  if (lines.empty()) lines.emplace_back("a b\n");
  const size_t at = random.below(lines.size()), other = random.below(lines.size());
  std::string& line = lines[at];
  const size_t place = random.below(line.size());
  switch (random.below(9)) {
    case 0:
      lines.erase(lines.begin() + static_cast<ptrdiff_t>(at));
      return;
    case 1:
      lines.insert(lines.begin() + static_cast<ptrdiff_t>(other), std::string(line));
      return;
    case 2:
      std::swap(line, lines[other]);
      return;
    case 3:
      line.erase(place, 1 + random.below(3));
      return;
    case 4:
      line.insert(place,
                  random.pick(std::vector<std::string>{" ", "\n", "=", "-", "#", "A", "\r"}));
      return;
    case 5:
      line = line.substr(0, line.find(' ')) + lines[other].substr(lines[other].find(' ') + 1);
      return;
    case 6:
      line = line.substr(0, line.find(' ') + 1) +
             random.pick(std::vector<std::string>{"-1", "0", "7", "16777215", "16777216",
                                                  "2147483648", "99999999999999999999", "x"}) +
             "\n";
      return;
    case 7:
      lines.resize(at);
      return;
    default:
      line[place] = static_cast<char>(random.next());
  }
}

// Elements of an array of a tree.
void change_element(json& value, Random& random) {
  std::vector<json*> arrays;
  const auto collect = [&](const auto& self, json& inner) -> void {
    if (inner.is_array() && !inner.empty()) arrays.push_back(&inner);
    if (!inner.is_structured()) return;
    for (json& one : inner) self(self, one);
  };
  collect(collect, value);
  if (arrays.empty()) return;
  json& array = *(random.one_in(2) ? arrays[0] : random.pick(arrays));
  const size_t at = random.below(array.size());
  switch (random.below(4)) {
    case 0:
      array.erase(at);
      break;
    case 1:
      array.push_back(json(array[at]));
      break;
    case 2:
      std::swap(array[at], array[random.below(array.size())]);
      break;
    default:
      array[at] = random.one_in(2) ? near_value(array[at], random) : edge_value(random);
  }
}

class TokenizerMutator final : public Mutator {
 public:
  explicit TokenizerMutator(const std::vector<std::string>& corpus) {
    for (const std::string& file : corpus) {
      if (file.starts_with("#version")) {
        merges_ = file;
      } else if (!file.starts_with('{')) {
        const bool is_ranks = file.find(' ') < 32 && file.find('\n') < 64;
        (is_ranks ? ranks_ : models_).push_back(file);
      } else if (json parsed = json::parse(file, nullptr, false); parsed.contains("model")) {
        members_.learn(parsed);
        trees_.push_back(std::move(parsed));
      } else if (!parsed.contains("cases")) {
        vocabulary_ = std::move(parsed);
      }
    }
  }

  std::string input(Random& random) const override {
    TokenizerFiles files;
    const uint64_t changes = random.one_in(6) ? 0 : 1 + random.below(4);
    switch (random.below(4)) {
      case 0:
        gpt2(files, changes, random);
        break;
      case 1:
        tiktoken(files, changes, random);
        break;
      case 2:
        hugging_face(files, changes, random);
        break;
      default:
        sentencepiece(files, changes, random);
    }
    files.text = text(files.model, random);
    return to_input(files);
  }

 private:
  void gpt2(TokenizerFiles& files, uint64_t changes, Random& random) const {
    files.type = "GPT2BPETokenizer";
    json vocabulary = vocabulary_;
    std::vector<std::string> lines = lines_of(merges_);
    for (; changes > 0; --changes) {
      if (random.one_in(2)) {
        change_line(lines, random);
      } else if (!members_.empty()) {
        members_.change(vocabulary, random);
      }
    }
    files.model = to_json_text(vocabulary);
    for (const std::string& line : lines) files.merges += line;
  }

  void tiktoken(TokenizerFiles& files, uint64_t changes, Random& random) const {
    files.type = "TikTokenizer";
    files.pattern = random.pick(kPatterns);
    if (ranks_.empty()) return;
    std::vector<std::string> lines = lines_of(random.pick(ranks_));
    for (; changes > 0; --changes) change_line(lines, random);
    for (const std::string& line : lines) files.model += line;
  }

  void hugging_face(TokenizerFiles& files, uint64_t changes, Random& random) const {
    files.type = "HuggingFaceTokenizer";
    if (trees_.empty()) return;
    json tree = random.pick(trees_);
    for (; changes > 0; --changes) {
      if (random.one_in(3)) {
        change_element(tree, random);
      } else {
        members_.change(tree, random);
      }
    }
    files.model = to_json_text(tree);
  }

  void sentencepiece(TokenizerFiles& files, uint64_t changes, Random& random) const {
    files.type = "SentencePieceTokenizer";
    if (models_.empty()) return;
    files.model = random.pick(models_);
    for (; changes > 0; --changes) files.model = changed_message(files.model, random, 0);
  }

  // Text of pieces, and of parts of the model's file.
  static std::string text(const std::string& model, Random& random) {
    std::string text;
    for (uint64_t parts = random.below(30); parts > 0; --parts) {
      const std::string part = random.one_in(4)
                                   ? model.substr(random.below(model.size() + 1), random.below(12))
                                   : random.pick(kTextPieces);
      const uint64_t times = random.one_in(8) ? 1 + random.below(300) : 1;
      for (uint64_t i = 0; i < times; ++i) text += part;
    }
    return text;
  }

  Members members_;
  std::vector<json> trees_;
  std::vector<std::string> ranks_, models_;
  json vocabulary_ = json::object();
  std::string merges_;
};

}  // namespace

std::unique_ptr<Mutator> make_mutator(const std::vector<std::string>& corpus, size_t) {
  return std::make_unique<TokenizerMutator>(corpus);
}

}  // namespace ferry::test
