// Token files (PREFIX.bin and PREFIX.idx) as people ask for them: what they hold, what is wrong.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/engine/engine.h"
#include "trainer/data/documents/indexed_dataset.h"

namespace ferry::tool {

/// "data/corpus" of "data/corpus", "data/corpus.bin" and "data/corpus.idx".
std::string prefix_of(const std::string& path);

/// Whether a path that is given stands for the pairs of a folder, and not for a pair of that name.
bool is_folder_of_tokens(const FileSystem& file_system, const std::string& path);

/// Prefixes in the order given; a folder stands for all pairs in it, by name. not_found for a
/// folder without any.
std::vector<std::string> prefixes_of(const FileSystem& file_system,
                                     const std::vector<std::string>& paths);

/// The pair of a prefix, or of one of its files.
std::shared_ptr<const IndexedDataset> open_tokens(const std::string& path);

/// How a long pass over tokens is watched and stopped.
struct Watch {
  std::function<void(const Progress&)> progress;
  const std::atomic<bool>* cancel = nullptr;
};

/// Lengths of documents: how many are of each size.
struct LengthSummary {
  int64_t least = 0, most = 0;
  std::array<int64_t, 5> quantiles{};  // of kQuantiles, each the length of a document
  std::vector<int64_t> powers_of_two;  // [0]: of no token; [k]: of 2^(k-1) to 2^k - 1 tokens
};
inline constexpr std::array kQuantiles = {0.01, 0.25, 0.5, 0.75, 0.99};

LengthSummary summarize_lengths(const IndexedDataset& dataset);

int64_t count_all_tokens(const IndexedDataset& dataset);

/// Reads all tokens. Nothing when there is none.
std::optional<int64_t> largest_token(const IndexedDataset& dataset, const Watch& watch);

/// The first tokens of a document, at most `most`. invalid when there is no such document.
std::vector<int32_t> first_tokens(const IndexedDataset& dataset, int64_t document, int64_t most);

/// What is wrong with a pair, and what is worth knowing.
struct TokenFilesCheck {
  std::vector<std::string> problems;  // the first of each kind, with how many more there are
  std::vector<std::string> notes;     // legal, but seldom meant
  int64_t documents = 0, tokens = 0;
};

/// Checks every number of the index and every token; tokens must be below a given vocabulary size.
TokenFilesCheck check_token_files(const IndexedDataset& dataset,
                                  std::optional<int64_t> vocabulary_size, const Watch& watch);

}  // namespace ferry::tool
