// Several datasets as one, sample by sample in given proportions.
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

/// `size` samples: each of the dataset that lags furthest behind its share (`shares` sum to 1; of
/// equal ones the first), each dataset's in their order.
BlendIndices build_blend(std::span<const double> shares, int64_t size);
/// Exactly sizes[d] samples of each dataset d, in even proportions.
BlendIndices build_exhaustive_blend(std::span<const int64_t> sizes);

/// How much of a blend comes from each dataset, as Megatron-LM describes it.
struct BlendWeights {
  std::vector<double> shares;   // sum to 1; empty: each dataset once, whole
  std::optional<int64_t> size;  // samples; nothing: the datasets' own
};

class BlendedDataset final : public Dataset {
 public:
  /// Takes the indices from the cache, when they are there and right, or builds them, and stores
  /// them where there is a cache_path. invalid when a dataset has too few samples for its share.
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
