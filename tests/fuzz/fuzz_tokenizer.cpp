// Files of a tokenizer open or are an Error; what opens gives every text ids below the size of the
// vocabulary, the same the second time, when the caches have them, and text for the ids.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/fuzz/finding.h"
#include "tests/fuzz/tokenizer_files.h"
#include "tests/io/memory_file_system.h"
#include "text/tokenizer.h"

namespace ferry::test {
namespace {

void use(const TextTokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids, again;
  tokenizer.encode(text, ids);
  for (const int32_t id : ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) finding("an id beyond the vocabulary");
  }
  tokenizer.encode(text, again);
  if (again != ids) finding("other ids the second time");
  if (const auto end = tokenizer.end_of_document()) {
    if (*end < 0 || *end >= tokenizer.vocab_size()) finding("an end beyond the vocabulary");
    ids.push_back(*end);
  }
  ids.push_back(-1);
  ids.push_back(INT32_MAX);
  tokenizer.decode(ids);
}

}  // namespace

std::string to_input(const TokenizerFiles& files) {
  std::string input;
  for (const std::string* part :
       {&files.type, &files.model, &files.merges, &files.pattern, &files.text}) {
    const auto bytes = static_cast<uint32_t>(part->size());
    input.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    input += *part;
  }
  return input;
}

std::optional<TokenizerFiles> from_input(std::string_view input) {
  TokenizerFiles files;
  for (std::string* part :
       {&files.type, &files.model, &files.merges, &files.pattern, &files.text}) {
    uint32_t bytes = 0;
    if (input.size() < sizeof bytes) return {};
    std::memcpy(&bytes, input.data(), sizeof bytes);
    input.remove_prefix(sizeof bytes);
    if (bytes > input.size()) return {};
    *part = input.substr(0, bytes);
    input.remove_prefix(bytes);
  }
  return files;
}

}  // namespace ferry::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
  using namespace ferry::test;
  const auto files = from_input({reinterpret_cast<const char*>(data), size});
  if (!files) return 0;
  MemoryFileSystem memory;
  memory.put("model", files->model);
  memory.put("merges", files->merges);
  std::unique_ptr<const TextTokenizer> tokenizer;
  const bool opens = succeeds("opening", [&] {
    tokenizer = open_tokenizer(memory, {.type = files->type,
                                        .model = "model",
                                        .vocab_file = "model",
                                        .merge_file = "merges",
                                        .pattern = files->pattern});
  });
  if (opens) succeeds("encoding", [&] { use(*tokenizer, files->text); });
  return 0;
}
