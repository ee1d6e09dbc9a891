// Which token files a run takes, in which proportions: the values of --data-path and of its
// relatives, and of --split.
//
// Source: megatron/core/datasets/utils.py (get_blend_from_list),
// blended_megatron_dataset_config.py, megatron/training/utils (get_blend_and_blend_per_split).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/io/file_system.h"
#include "trainer/data/data_options.h"
#include "trainer/data/samples/gpt_indices.h"

namespace ferry {

/// Datasets, and how much of a run comes from each.
struct Blend {
  std::vector<std::string> prefixes;  // of token files, at least one
  std::vector<double> weights;        // as given, positive; empty: by the datasets' sizes
};

/// "PREFIX", "PREFIX PREFIX ..." or "WEIGHT PREFIX WEIGHT PREFIX ...": weights when there is an
/// even number of words and every other one, from the first on, is a number. `where` names them for
/// messages. invalid when only some are numbers, when one is not positive, or there is no word.
Blend parse_blend(std::span<const std::string> words, const std::string& where);

/// Numbers that sum to 1, added as numpy adds them (pairwise), so that they are Megatron-LM's.
std::vector<double> normalized(std::span<const double> weights);

/// Where each split begins and ends in a dataset, as shares of its sequences.
struct SplitShares {
  std::string text;                                           // of --split
  PerSplit<std::optional<std::pair<double, double>>> bounds;  // nothing: an empty split
};

/// "969,30,1": any numbers; what follows the last given is empty. invalid for negative or more than
/// three numbers, or only zeros.
SplitShares parse_split(const std::string& text);
/// As JSON, for descriptions.
std::string split_matrix(const SplitShares& shares);
SequenceRange range_of(const std::pair<double, double>& bounds, int64_t sequences);

/// Either one blend that --split divides, or one for each split.
struct DataPaths {
  std::optional<Blend> all;
  PerSplit<std::optional<Blend>> each;
};
/// What the options and the files that they name say; nothing in either for mock data. invalid for
/// options that exclude each other, or none.
DataPaths parse_data_paths(const FileSystem& file_system, const DataOptions& options);

}  // namespace ferry
