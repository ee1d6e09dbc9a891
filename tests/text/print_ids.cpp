// Prints the ids of documents, for the peers' programs to compare (tests/interop, tests/bench).
//
//   print_ids [--time] TYPE MODEL VOCAB MERGES PATTERN < DOCUMENTS > IDS
//
// Each document is its length in bytes (8 bytes, little-endian) and its text; each answer is the
// number of ids (8 bytes) and the ids (4 bytes each). An option that is not needed is "-". --time
// prints the seconds that all documents took, alone.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace {

using namespace ferry;

std::vector<std::string_view> documents_of(const std::string& input) {
  std::vector<std::string_view> documents;
  for (size_t at = 0; at + 8 <= input.size();) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, input.data() + at, 8);
    documents.push_back(std::string_view(input).substr(at + 8, bytes));
    at += 8 + bytes;
  }
  return documents;
}

void run(std::vector<std::string> arguments) {
  const bool timed = !arguments.empty() && arguments[0] == "--time";
  if (timed) arguments.erase(arguments.begin());
  arguments.resize(6);
  for (std::string& argument : arguments) {
    if (argument == "-") argument.clear();
  }
  const auto tokenizer =
      open_tokenizer(*posix_file_system(), {.type = arguments[0],
                                            .model = arguments[1],
                                            .vocab_file = arguments[2],
                                            .merge_file = arguments[3],
                                            .pattern = arguments[4],
                                            .add_special = arguments[5].empty()});
  const std::string input(std::istreambuf_iterator<char>(std::cin), {});
  const auto start = std::chrono::steady_clock::now();
  std::vector<int32_t> ids;
  for (const std::string_view document : documents_of(input)) {
    ids.clear();
    tokenizer->encode(document, ids);
    if (timed) continue;
    const uint64_t count = ids.size();
    std::fwrite(&count, 8, 1, stdout);
    std::fwrite(ids.data(), sizeof(int32_t), ids.size(), stdout);
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  if (timed) fmt::print("{}\n", taken.count());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
