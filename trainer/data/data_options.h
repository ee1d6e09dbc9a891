// The data of a run, as Megatron-LM's flags describe it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

enum class DataSplit : uint8_t { train, valid, test };
inline constexpr std::array kSplits = {DataSplit::train, DataSplit::valid, DataSplit::test};
std::string_view name(DataSplit split) noexcept;

/// One value for each split.
template <typename T>
struct PerSplit {
  T train{}, valid{}, test{};
  T& operator[](DataSplit split) noexcept {
    return split == DataSplit::train ? train : split == DataSplit::valid ? valid : test;
  }
  const T& operator[](DataSplit split) const noexcept {
    return const_cast<PerSplit&>(*this)[split];
  }
};

/// Which tokens of a sample have a loss, and where attention and positions restart.
struct MaskOptions {
  bool eod_mask_loss = false;         // --eod-mask-loss: no loss where the token ends a document
  bool reset_position_ids = false;    // --reset-position-ids: restart at 0 after such a token
  bool reset_attention_mask = false;  // --reset-attention-mask: attention restarts after it
  int32_t end_of_document = -1;       // its id
  int32_t padding = -1;               // id, read as token 0 without loss; -1: none
  bool goldfish_loss = false;         // --goldfish-loss: drops one label of `goldfish_k`,
  int64_t goldfish_k = 50;            // always the same after the same `goldfish_h` labels
  int64_t goldfish_h = 50;
};

struct DataOptions {
  /// --data-path: prefixes of token files, or weights and prefixes in turn, for all splits.
  std::vector<std::string> data_path;
  /// --train-data-path, --valid-data-path, --test-data-path: the same for one split.
  PerSplit<std::vector<std::string>> split_data_path;
  /// --data-args-path, --per-split-data-args-path: files that hold them.
  std::string data_args_path, per_split_data_args_path;
  bool mock_data = false;  // --mock-data: instead of all these

  std::string split;       // --split: shares of train, valid, test; empty: 969, 30, 1
  std::string cache_path;  // --data-cache-path; empty: next to each dataset

  int64_t sequence_length = 0;  // --seq-length: tokens of a sample
  int64_t seed = 1234;          // --seed, in [0, 2^32)
  /// Samples that are needed of each split; nothing: one epoch.
  PerSplit<std::optional<int64_t>> samples;
  /// Off: the last tokens of the valid split, too few for a sample, make a padded one.
  bool drop_last_partial_validation_sequence = true;
  /// --mid-level-dataset-surplus: the share of extra samples made of each dataset of a blend.
  double mid_level_dataset_surplus = 0.005;

  /// The tokenizer as Megatron-LM describes it in cached sample orders: a JSON object.
  std::string tokenizer = "{}";
  int64_t vocabulary_size = 0;      // of the tokenizer; for mock data
  int64_t token_limit = INT32_MAX;  // rows of the embedding: larger token ids are errors
  MaskOptions masks;
};

}  // namespace ferry
