// Blends several datasets sample by sample in given proportions.
//
// Source: megatron/core/datasets/blended_dataset.py, helpers.cpp (build_blending_indices,
// build_exhaustive_blending_indices).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/data_options.h"
#include "trainer/data/dataset.h"
#include "trainer/data/samples/gpt_dataset.h"
#include "trainer/data/samples/index_cache.h"

namespace ferry {

/// Sample k of a blend is sample `samples[k]` of dataset `datasets[k]`.
struct BlendIndices {
  std::vector<int16_t> datasets;
  std::vector<int64_t> samples;
};

/// `size` samples, each from the dataset that is furthest below its share (`shares` sum to 1; the
/// first of equal ones), each dataset's in order.
BlendIndices build_blend(std::span<const double> shares, int64_t size);
/// Exactly sizes[d] samples of each dataset d, in even proportions.
BlendIndices build_exhaustive_blend(std::span<const int64_t> sizes);

/// The proportions of a blend, as Megatron-LM describes them.
struct BlendWeights {
  std::vector<double> shares;   // sum to 1; empty: each dataset once, whole
  std::optional<int64_t> size;  // samples; empty: all of the datasets'
};

class BlendedDataset final : public Dataset {
 public:
  /// Takes valid indices from the cache, or builds them, and stores them if there is a cache_path.
  /// invalid if a dataset has too few samples for its share.
  BlendedDataset(const std::shared_ptr<const FileSystem>& file_system,
                 std::vector<std::shared_ptr<const GptDataset>> datasets,
                 const BlendWeights& weights, DataSplit split, const DataOptions& options);

  int64_t size() const noexcept override { return std::ssize(samples_.values()); }
  void read(int64_t index, Sample& sample) const override;
  bool has_replaced_order() const noexcept override;

 private:
  bool load(const IndexCache& cache, int64_t size);
  bool counts_match() const;
  std::string description(const BlendWeights& weights, DataSplit split) const;
  void check_sizes(DataSplit split, double surplus) const;

  std::vector<std::shared_ptr<const GptDataset>> parts_;
  IndexArray<int16_t> datasets_;
  IndexArray<int64_t> samples_;
};

}  // namespace ferry
