// Which token files a run uses, in which proportions: parses --data-path and related arguments, and
// --split.
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

/// Datasets and their weights.
struct Blend {
  std::vector<std::string> prefixes;  // of token files, at least one
  std::vector<double> weights;        // as given, positive; empty: by the datasets' sizes
};

/// "PREFIX", "PREFIX PREFIX ..." or "WEIGHT PREFIX WEIGHT PREFIX ...": it has weights if the number
/// of words is even and every other one, starting with the first, is a number. `where` names the
/// argument in messages. invalid if only some are numbers, one is not positive, or there are no
/// words.
Blend parse_blend(std::span<const std::string> words, const std::string& where);

/// Normalizes numbers to the sum 1, with numpy's pairwise summation, as Megatron-LM does.
std::vector<double> normalized(std::span<const double> weights);

/// The range of each split in a dataset, as fractions of its sequences.
struct SplitShares {
  std::string text;                                           // of --split
  PerSplit<std::optional<std::pair<double, double>>> bounds;  // empty: no such split
};

/// "969,30,1": missing numbers are 0. invalid for negative or more than three numbers, or only
/// zeros.
SplitShares parse_split(const std::string& text);
/// As JSON, for descriptions.
std::string split_matrix(const SplitShares& shares);
SequenceRange range_of(const std::pair<double, double>& bounds, int64_t sequences);

/// Either one blend, which --split divides, or one for each split.
struct DataPaths {
  std::optional<Blend> all;
  PerSplit<std::optional<Blend>> each;
};
/// Reads the options and the files that they name; both members are empty for mock data. invalid if
/// options exclude each other or none is given.
DataPaths parse_data_paths(const FileSystem& file_system, const DataOptions& options);

}  // namespace ferry
