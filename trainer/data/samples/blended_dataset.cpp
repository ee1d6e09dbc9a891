#include "trainer/data/samples/blended_dataset.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "ckpt/base/error.h"
#include "trainer/data/samples/index_cache.h"

namespace ferry {
namespace {

constexpr int64_t kMostDatasets = 32766;  // their indices have 15 bits
constexpr const char* kDatasetNumbers = "dataset_index";
constexpr const char* kDatasetSamples = "dataset_sample_index";

BlendIndices of_size(int64_t size) {
  BlendIndices indices;
  indices.datasets.resize(static_cast<size_t>(size));
  indices.samples.resize(static_cast<size_t>(size));
  return indices;
}

}  // namespace

BlendIndices build_blend(std::span<const double> shares, int64_t size) {
  BlendIndices indices = of_size(size);
  std::vector<double> taken(shares.size());  // integers, exact in doubles up to 2^53
  for (int64_t i = 0; i < size; ++i) {
    const auto place = static_cast<double>(std::max<int64_t>(i, 1));
    size_t furthest = 0;
    double lag = shares[0] * place - taken[0];
    for (size_t d = 1; d < shares.size(); ++d) {  // branchless: branches would be unpredictable
      const double other = shares[d] * place - taken[d];
      furthest = other > lag ? d : furthest;
      lag = other > lag ? other : lag;
    }
    indices.datasets[static_cast<size_t>(i)] = static_cast<int16_t>(furthest);
    indices.samples[static_cast<size_t>(i)] = static_cast<int64_t>(taken[furthest]);
    taken[furthest] += 1;
  }
  return indices;
}

BlendIndices build_exhaustive_blend(std::span<const int64_t> sizes) {
  const int64_t size = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  BlendIndices indices = of_size(size);
  std::vector<double> taken(sizes.size());
  std::vector<size_t> unspent(sizes.size());
  std::iota(unspent.begin(), unspent.end(), size_t{0});
  for (int64_t i = 0; i < size; ++i) {
    const auto place = static_cast<double>(std::max<int64_t>(i, 1));
    size_t furthest = 0;
    double lag = std::numeric_limits<double>::lowest();
    for (size_t u = 0; u < unspent.size(); ++u) {
      const size_t d = unspent[u];
      const double share = static_cast<double>(sizes[d]) / static_cast<double>(size);
      const double other = share * place - taken[d];
      if (other > lag) lag = other, furthest = u;
    }
    const size_t d = unspent[furthest];
    indices.datasets[static_cast<size_t>(i)] = static_cast<int16_t>(d);
    indices.samples[static_cast<size_t>(i)] = static_cast<int64_t>(taken[d]);
    taken[d] += 1;
    if (taken[d] == static_cast<double>(sizes[d])) {
      unspent.erase(unspent.begin() + static_cast<std::ptrdiff_t>(furthest));
    }
  }
  return indices;
}

BlendedDataset::BlendedDataset(const std::shared_ptr<const FileSystem>& file_system,
                               std::vector<std::shared_ptr<const GptDataset>> datasets,
                               const BlendWeights& weights, DataSplit split,
                               const DataOptions& options)
    : parts_(std::move(datasets)) {
  if (std::ssize(parts_) > kMostDatasets) {
    fail(ErrorKind::unsupported,
         "a blend of {} datasets is too large: at most {} are possible; merge some with 'ferry "
         "data merge'",
         parts_.size(), kMostDatasets);
  }
  std::vector<int64_t> sizes;
  for (const auto& part : parts_) sizes.push_back(part->size());
  const int64_t size =
      weights.size.value_or(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  std::optional<IndexCache> cache;
  if (!options.cache_path.empty()) {
    cache.emplace(file_system, options.cache_path, "BlendedDataset-" + std::string(name(split)),
                  description(weights, split));
    if (load(*cache, size)) return;
  }
  BlendIndices indices =
      weights.size ? build_blend(weights.shares, size) : build_exhaustive_blend(sizes);
  datasets_ = IndexArray(std::move(indices.datasets));
  samples_ = IndexArray(std::move(indices.samples));
  check_sizes(split, options.mid_level_dataset_surplus);
  if (!cache) return;
  cache->store({IndexCache::file(kDatasetNumbers, std::array{size}, datasets_),
                IndexCache::file(kDatasetSamples, std::array{size}, samples_)});
}

std::string BlendedDataset::description(const BlendWeights& weights, DataSplit split) const {
  DescriptionList datasets, numbers;
  for (const auto& part : parts_) datasets.add(part->description());
  for (const double share : weights.shares) numbers.add(number(share));
  if (!weights.size) {
    for (const auto& part : parts_) numbers.add(std::to_string(part->size()));
  }
  Description text;
  text.add("class", quoted("BlendedDataset"));
  text.add("datasets", datasets.text());
  text.add("split", quoted(name(split)));
  text.add("weights", numbers.text());
  text.add("size", weights.size ? std::to_string(*weights.size) : "null");
  return text.text();
}

// Each dataset's samples are taken in order, and no more than it has.
bool BlendedDataset::counts_match() const {
  std::vector<int64_t> taken(parts_.size());
  for (size_t i = 0; i < samples_.values().size(); ++i) {
    const int64_t d = datasets_.values()[i];
    if (d < 0 || d >= std::ssize(parts_)) return false;
    int64_t& count = taken[static_cast<size_t>(d)];
    if (samples_.values()[i] != count++) return false;
    if (count > parts_[static_cast<size_t>(d)]->size()) return false;
  }
  return true;
}

bool BlendedDataset::load(const IndexCache& cache, int64_t size) {
  if (!cache.is_there()) return false;
  auto datasets = cache.load<int16_t>(kDatasetNumbers, std::array{size});
  auto samples = cache.load<int64_t>(kDatasetSamples, std::array{size});
  if (!datasets || !samples) return false;
  datasets_ = std::move(*datasets);
  samples_ = std::move(*samples);
  return counts_match();
}

void BlendedDataset::check_sizes(DataSplit split, double surplus) const {
  std::vector<int64_t> taken(parts_.size());
  for (const int16_t d : datasets_.values()) ++taken[static_cast<size_t>(d)];
  for (size_t d = 0; d < parts_.size(); ++d) {
    if (taken[d] <= parts_[d]->size()) continue;
    fail(ErrorKind::invalid,
         "the {} blend takes {} samples of its dataset number {}, which has {}; give a larger "
         "--mid-level-dataset-surplus than {}",
         name(split), taken[d], d + 1, parts_[d]->size(), surplus);
  }
}

bool BlendedDataset::has_replaced_order() const noexcept {
  return std::ranges::any_of(parts_, [](const auto& part) { return part->has_replaced_order(); });
}

void BlendedDataset::read(int64_t index, Sample& sample) const {
  if (index < 0 || index >= size()) {
    fail(ErrorKind::invalid, "the blend has {} samples, no sample {}", size(), index);
  }
  const auto dataset = static_cast<size_t>(datasets_.values()[static_cast<size_t>(index)]);
  parts_[dataset]->read(samples_.values()[static_cast<size_t>(index)], sample);
}

}  // namespace ferry
