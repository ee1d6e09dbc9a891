// The dataset of a language model: samples cut from the sequences of one source.
//
// Source: megatron/core/datasets/gpt_dataset.py (GPTDataset, MockGPTDataset).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/data/data_options.h"
#include "trainer/data/dataset.h"
#include "trainer/data/documents/data_paths.h"
#include "trainer/data/documents/token_source.h"
#include "trainer/data/samples/gpt_indices.h"
#include "trainer/data/samples/index_cache.h"

namespace ferry {

// Makes the model's input from the tokens of a sample: labels, loss weights, positions, and where
// attention restarts.
//
// Source: megatron/core/datasets/gpt_dataset.py; goldfish loss: Hans et al., "Be like a Goldfish,
// Don't Memorize!" (2024), as swiss-ai/Megatron-LM computes it.

/// Safe from several threads.
class SampleMasks {
 public:
  explicit SampleMasks(const MaskOptions& options);

  /// Fills the sample. `text` has its tokens and the last one's label, padded with options.padding.
  /// Padding becomes token 0 without loss.
  void apply(std::span<const int32_t> text, Sample& sample) const;

 private:
  void reset_at_documents(std::span<const int32_t> tokens, Sample& sample) const;
  void drop_goldfish_labels(Sample& sample) const;

  MaskOptions options_;
  std::vector<float> uniform_;  // for the goldfish loss
};

/// The part of a source that a split's samples are made from.
struct GptPart {
  std::optional<std::string> dataset_path;  // as given; empty: mock data
  DataSplit split = DataSplit::train;
  std::optional<SplitShares>
      shares;  // the splits' shares of the source; empty: it belongs to one split
  SequenceRange range;
  std::optional<int64_t> samples;  // at least; empty: one epoch
};

class GptDataset final : public Dataset {
 public:
  /// Takes the arrays of gpt_indices.h from the cache if valid, or builds and stores them. For mock
  /// data nothing is stored without a cache_path.
  GptDataset(const std::shared_ptr<const FileSystem>& file_system,
             std::shared_ptr<const TokenSource> source, const GptPart& part,
             const DataOptions& options);

  int64_t size() const noexcept override { return plan_.samples; }
  bool has_replaced_order() const noexcept override { return has_replaced_order_; }
  void read(int64_t index, Sample& sample) const override;

  /// Everything the samples depend on, as JSON text: the cache's description.
  const std::string& description() const noexcept { return description_; }

 private:
  using SampleRows = std::variant<IndexArray<int32_t>, IndexArray<int64_t>>;

  bool load(const IndexCache& cache);
  template <typename T>
  bool load_rows(const IndexCache& cache);
  void build(uint32_t seed);
  void store(const IndexCache& cache) const;
  std::pair<int64_t, int64_t> row(int64_t sample) const;

  std::shared_ptr<const TokenSource> source_;
  std::string description_;
  SequenceRange range_;
  int64_t sequence_length_;
  int64_t token_limit_;
  int32_t padding_;
  SampleMasks masks_;
  EpochPlan plan_;
  IndexArray<int32_t> documents_;
  SampleRows rows_;
  IndexArray<uint32_t> order_;
  bool has_replaced_order_ = false;
};

}  // namespace ferry
