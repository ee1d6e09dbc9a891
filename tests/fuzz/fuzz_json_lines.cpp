// An input is a line of JSON. Any line gives texts or words of what is wrong; what nlohmann_json
// reads gives the same texts, and what it refuses is refused, but for what Python's json.loads
// takes and it does not (NaN, Infinity, halves of surrogate pairs, numbers beyond double).
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/fuzz/finding.h"
#include "tests/fuzz/mutator.h"
#include "tools/data/tokenize/json_fields.h"

namespace ferry::test {
namespace {

using nlohmann::json;

const std::vector<std::string> kPieces = {"{",
                                          "}",
                                          "[",
                                          "]",
                                          ",",
                                          ":",
                                          "\"",
                                          "\"text\"",
                                          "\"a\"",
                                          "\"b\"",
                                          " ",
                                          "\t",
                                          "\r",
                                          "\n",
                                          "\\",
                                          "\\n",
                                          "\\u",
                                          "\\u0041",
                                          "\\ud83d\\ude42",
                                          "\\ud800",
                                          "\\udc00",
                                          "\\u00e9",
                                          "\\\"",
                                          "null",
                                          "true",
                                          "false",
                                          "NaN",
                                          "-",
                                          "Infinity",
                                          "0",
                                          "17",
                                          "1.5",
                                          "1e5",
                                          "1e999",
                                          "-0",
                                          ".",
                                          "e",
                                          "\xC3\xA9",
                                          "\xF0\x9F\x99\x82",
                                          "\xFF",
                                          "\xED\xA0\x80",
                                          "plain words of text",
                                          "\x01",
                                          "{\"text\":",
                                          "{\"text\": \"x\"}",
                                          "\"text\": [\"x\", \"y\"]",
                                          "\\u12"};

class LineMutator final : public Mutator {
 public:
  std::string input(Random& random) const override {
    std::string line =
        random.one_in(8) ? "" : "{\"text\": \"some text\", \"a\": [1, {\"b\": null}]}";
    for (uint64_t changes = random.below(12); changes > 0; --changes) {
      const size_t at = random.below(line.size() + 1);
      const std::string piece = random.pick(kPieces);
      switch (random.below(3)) {
        case 0:
          line.insert(at, piece);
          break;
        case 1:
          line.replace(at, random.below(4), piece);
          break;
        default:
          line.erase(at, random.below(4));
      }
    }
    return line;
  }
};

// Whether Python takes what nlohmann_json may refuse.
bool may_differ(const std::string& line) {
  for (const char* word : {"NaN", "Infinity", "\\u", "e999", "e5"}) {
    if (line.find(word) != std::string::npos) return true;
  }
  return false;
}

std::vector<std::string> expected_texts(const json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  return value.get<std::vector<std::string>>();
}

bool is_text(const json& value) {
  if (value.is_string()) return true;
  if (!value.is_array()) return false;
  for (const json& one : value) {
    if (!one.is_string()) return false;
  }
  return true;
}

void check(const std::string& line) {
  tool::JsonFields fields({"text"});
  const std::string problem = fields.read(line);
  const json parsed = json::parse(line, nullptr, false);
  const bool sound = parsed.is_object() && parsed.contains("text") && is_text(parsed.at("text"));
  if (!problem.empty()) {
    if (sound) finding("refused: " + line + ": " + problem);
    return;
  }
  const std::vector<std::string> texts(fields.fields()[0].texts.begin(),
                                       fields.fields()[0].texts.end());
  if (sound && texts != expected_texts(parsed.at("text"))) finding("read otherwise: " + line);
  if (!sound && !may_differ(line)) finding("taken: " + line);
}

}  // namespace

std::unique_ptr<Mutator> make_mutator(const std::vector<std::string>&, size_t) {
  return std::make_unique<LineMutator>();
}

}  // namespace ferry::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry::test;
  const std::string line(reinterpret_cast<const char*>(data), size);
  succeeds("a line of JSON", [&] { check(line); });
  return 0;
}
