// Prints the ids of documents, for the peers' programs to compare (tests/interop, tests/bench).
//
//   print_ids [--time THREADS] TYPE MODEL VOCAB MERGES PATTERN < DOCUMENTS > IDS
//
// Each document is its length in bytes (8 bytes, little-endian) and its text; each answer is the
// number of ids (8 bytes) and the ids (4 bytes each). An option that is not needed is "-". --time
// prints the seconds that so many threads took for all documents, those of the processor, and how
// many ids there are.
#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <string>
#include <thread>
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

void print_all(const TextTokenizer& tokenizer, const std::vector<std::string_view>& documents) {
  std::vector<int32_t> ids;
  for (const std::string_view document : documents) {
    ids.clear();
    tokenizer.encode(document, ids);
    const uint64_t count = ids.size();
    std::fwrite(&count, 8, 1, stdout);
    std::fwrite(ids.data(), sizeof(int32_t), ids.size(), stdout);
  }
}

void print_time(const TextTokenizer& tokenizer, const std::vector<std::string_view>& documents,
                int threads) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t clock = std::clock();  // of all threads
  std::atomic<size_t> next = 0, count = 0;
  std::vector<std::jthread> all;
  for (int thread = 0; thread < threads; ++thread) {
    all.emplace_back([&] {
      std::vector<int32_t> ids;
      for (size_t i = next++; i < documents.size(); i = next++) {
        ids.clear();
        tokenizer.encode(documents[i], ids);
        count += ids.size();
      }
    });
  }
  all.clear();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  const double processor = static_cast<double>(std::clock() - clock) / CLOCKS_PER_SEC;
  fmt::print("{} {} {}\n", taken.count(), processor, count.load());
}

void run(std::vector<std::string> arguments) {
  int threads = 0;
  if (arguments.size() > 1 && arguments[0] == "--time") {
    threads = std::stoi(arguments[1]);
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
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
  std::string input;
  for (char room[1 << 16]; const size_t bytes = std::fread(room, 1, sizeof room, stdin);) {
    input.append(room, bytes);
  }
  const std::vector<std::string_view> documents = documents_of(input);
  if (threads > 0) {
    print_time(*tokenizer, documents, threads);
  } else {
    print_all(*tokenizer, documents);
  }
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
