#include "trainer/data/open_datasets.h"

#include <algorithm>
#include <cmath>

#include "ckpt/base/error.h"
#include "trainer/data/documents/data_paths.h"
#include "trainer/data/documents/indexed_dataset.h"
#include "trainer/data/documents/token_source.h"
#include "trainer/data/samples/blended_dataset.h"
#include "trainer/data/samples/gpt_dataset.h"

namespace ferry {
namespace {

constexpr const char* kMockSplit = "1,1,1";

using Parts = std::vector<std::shared_ptr<const GptDataset>>;

// The number of samples of one dataset of a blend: its share and a surplus.
int64_t share_of(int64_t samples, double share, double surplus) {
  const double target = std::ceil(static_cast<double>(samples) * share);
  const double size = std::ceil(target * (1 + surplus));
  if (!(size >= 0 && size < 0x1p53)) {
    fail(ErrorKind::invalid, "cannot make {} samples of which one dataset gives {}", samples,
         share);
  }
  return static_cast<int64_t>(size);
}

std::shared_ptr<const IndexedDataset> open_files(
    const std::shared_ptr<const FileSystem>& file_system, const std::string& prefix) {
  auto dataset = std::make_shared<IndexedDataset>(file_system, prefix);
  dataset->check_end();  // otherwise a run would fail on reaching the missing part
  return dataset;
}

// Whether a split is a single dataset without a blend. A single dataset with a weight is a blend of
// one, with a surplus of samples.
bool is_alone(const DataPaths& paths) {
  return !paths.all || (paths.all->prefixes.size() == 1 && paths.all->weights.empty());
}

// Opens the splits that share one set of sources.
class Opener {
 public:
  Opener(const std::shared_ptr<const FileSystem>& file_system, const DataOptions& options,
         std::optional<SplitShares> shares)
      : file_system_(file_system), options_(options), shares_(std::move(shares)) {}

  void add_source(std::optional<std::string> path, std::shared_ptr<const TokenSource> source) {
    if (source->sequences() > INT32_MAX) {
      fail(ErrorKind::unsupported, "{} has {} sequences; at most {} of one dataset can be used",
           source->name(), source->sequences(), INT32_MAX);
    }
    paths_.push_back(std::move(path));
    sources_.push_back(std::move(source));
  }
  void add_shared(const DataPaths& paths) {
    if (paths.all) return add_files(*paths.all);
    add_source(std::nullopt, std::make_shared<MockTokens>(options_.vocabulary_size,
                                                          options_.masks.end_of_document));
  }
  void add_files(const Blend& blend) {
    for (const std::string& prefix : blend.prefixes) {
      add_source(prefix, open_files(file_system_, prefix));
    }
  }

  /// One split of a single source.
  std::shared_ptr<const Dataset> lone(DataSplit split) const {
    return part(split, 0, options_.samples[split]);
  }

  /// What determines the order of the train split's samples.
  TrainOrder train_order(const Blend* blend, bool is_alone) const {
    const std::optional<int64_t> requested = options_.samples.train;
    TrainOrder order{{}, options_.seed, options_.sequence_length, requested.value_or(0)};
    const bool has_weights = !is_alone && !blend->weights.empty();
    std::vector<double> shares(1, 1.0);
    if (has_weights) shares = normalized(blend->weights);
    std::vector<double> sizes;
    for (size_t i = 0; i < sources_.size(); ++i) {
      std::optional<int64_t> samples = is_alone ? requested : std::nullopt;
      if (has_weights && requested) {
        samples = share_of(*requested, shares[i], options_.mid_level_dataset_surplus);
      }
      const SequenceRange range = part_of(DataSplit::train, i, samples).range;
      const int64_t tokens = count_tokens(*sources_[i], range);
      order.parts.push_back({paths_[i].value_or(""), range, tokens,
                             plan_epochs(tokens, options_.sequence_length, samples, true)});
      sizes.push_back(static_cast<double>(order.parts.back().plan.samples));
    }
    if (!is_alone && !has_weights) shares = normalized(sizes);
    for (size_t i = 0; i < sources_.size(); ++i) order.parts[i].share = shares[i];
    return order;
  }

  std::shared_ptr<const Dataset> blended(DataSplit split, std::span<const double> given) const {
    const std::optional<int64_t> requested = options_.samples[split];
    BlendWeights weights;
    weights.size = requested;
    Parts parts;
    if (given.empty()) {
      for (size_t i = 0; i < sources_.size(); ++i) parts.push_back(part(split, i, std::nullopt));
      by_size(split, parts, weights);
    } else {
      if (!requested) {
        fail(ErrorKind::invalid,
             "the {} split is one epoch, which needs no weights; leave them out", name(split));
      }
      const std::vector<double> shares = normalized(given);
      weights.size = 0;
      for (size_t i = 0; i < sources_.size(); ++i) {
        *weights.size += share_of(*requested, shares[i], 0);
        parts.push_back(
            part(split, i, share_of(*requested, shares[i], options_.mid_level_dataset_surplus)));
      }
      weights.shares = normalized(shares);
    }
    return std::make_shared<BlendedDataset>(file_system_, std::move(parts), weights, split,
                                            options_);
  }

 private:
  // Without weights, datasets are weighted by their samples in one epoch.
  void by_size(DataSplit split, const Parts& parts, BlendWeights& weights) const {
    std::vector<double> sizes;
    int64_t all = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i]->size() == 0) {
        fail(ErrorKind::invalid,
             "the {} split of {} is too short for a sample of {} tokens; leave the dataset out, or "
             "give weights",
             name(split), sources_[i]->name(), options_.sequence_length);
      }
      sizes.push_back(static_cast<double>(parts[i]->size()));
      all += parts[i]->size();
    }
    if (!weights.size) return;
    weights.size = std::min(*weights.size, all);
    weights.shares = normalized(sizes);
  }

  GptPart part_of(DataSplit split, size_t source, std::optional<int64_t> samples) const {
    GptPart part{paths_[source], split, shares_, {0, sources_[source]->sequences()}, samples};
    if (shares_) part.range = range_of(*shares_->bounds[split], sources_[source]->sequences());
    return part;
  }
  std::shared_ptr<const GptDataset> part(DataSplit split, size_t source,
                                         std::optional<int64_t> samples) const {
    return std::make_shared<GptDataset>(file_system_, sources_[source],
                                        part_of(split, source, samples), options_);
  }

  const std::shared_ptr<const FileSystem>& file_system_;
  const DataOptions& options_;
  std::optional<SplitShares> shares_;
  std::vector<std::optional<std::string>> paths_;
  std::vector<std::shared_ptr<const TokenSource>> sources_;
};

SplitShares shares_of(const DataOptions& options) {
  return parse_split(options.mock_data ? kMockSplit : options.split);
}

void check(const DataOptions& options) {
  if (options.sequence_length < 1 || options.sequence_length >= INT32_MAX) {
    fail(ErrorKind::invalid, "--seq-length {} must be positive", options.sequence_length);
  }
  if (options.seed < 0 || options.seed > int64_t{UINT32_MAX}) {
    fail(ErrorKind::invalid, "--seed {} is not between 0 and {}", options.seed, UINT32_MAX);
  }
  if (!(options.mid_level_dataset_surplus >= 0)) {
    fail(ErrorKind::invalid, "--mid-level-dataset-surplus {} is negative",
         options.mid_level_dataset_surplus);
  }
}

}  // namespace

PerSplit<std::shared_ptr<const Dataset>> open_datasets(
    const std::shared_ptr<const FileSystem>& file_system, const DataOptions& options) {
  check(options);
  const DataPaths paths = parse_data_paths(*file_system, options);
  PerSplit<std::shared_ptr<const Dataset>> datasets;
  if (paths.all || options.mock_data) {
    const SplitShares shares = shares_of(options);
    Opener opener(file_system, options, shares);
    opener.add_shared(paths);
    for (const DataSplit split : kSplits) {
      if (!shares.bounds[split]) continue;
      datasets[split] =
          is_alone(paths) ? opener.lone(split) : opener.blended(split, paths.all->weights);
    }
    return datasets;
  }
  for (const DataSplit split : kSplits) {
    const std::optional<Blend>& blend = paths.each[split];
    if (!blend) continue;
    Opener opener(file_system, options, std::nullopt);
    opener.add_files(*blend);
    const bool alone = blend->prefixes.size() == 1;
    datasets[split] = alone ? opener.lone(split) : opener.blended(split, blend->weights);
  }
  return datasets;
}

std::optional<TrainOrder> train_order(const std::shared_ptr<const FileSystem>& file_system,
                                      const DataOptions& options) {
  check(options);
  const DataPaths paths = parse_data_paths(*file_system, options);
  if (paths.all || options.mock_data) {
    const SplitShares shares = shares_of(options);
    if (!shares.bounds.train) return std::nullopt;
    Opener opener(file_system, options, shares);
    opener.add_shared(paths);
    return opener.train_order(paths.all ? &*paths.all : nullptr, is_alone(paths));
  }
  const std::optional<Blend>& blend = paths.each.train;
  if (!blend) return std::nullopt;
  Opener opener(file_system, options, std::nullopt);
  opener.add_files(*blend);
  return opener.train_order(&*blend, blend->prefixes.size() == 1);
}

PerSplit<bool> check_datasets(const std::shared_ptr<const FileSystem>& file_system,
                              const DataOptions& options) {
  check(options);
  const DataPaths paths = parse_data_paths(*file_system, options);
  const auto check_blend = [&](const Blend& blend) {
    for (const std::string& prefix : blend.prefixes) open_files(file_system, prefix);
  };
  PerSplit<bool> has;
  if (paths.all) check_blend(*paths.all);
  for (const DataSplit split : kSplits) {
    if (paths.each[split]) check_blend(*paths.each[split]);
    has[split] = paths.each[split].has_value();
  }
  if (!paths.all && !options.mock_data) return has;
  const SplitShares shares = shares_of(options);
  for (const DataSplit split : kSplits) has[split] = shares.bounds[split].has_value();
  return has;
}

}  // namespace ferry
