// Files of several folders in given shares of their bytes, none twice.
//
// Source: scripts/tools/create_data_mixture.py of swiss-ai/Megatron-LM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ferry::tool {

/// The order in which a folder's files are taken: that of Python's random.Random(1234).shuffle of
/// the paths by name.
void shuffle_files(std::vector<std::string>& paths);

struct ChosenFiles {
  std::vector<size_t> counts;  // how many of each folder, from its first on
  std::vector<uint64_t> bytes;
  std::optional<size_t> exhausted;  // the folder that ran out, which ends it
};

/// `bytes[k]`: of the files of folder k, in the order in which they are taken; `shares` sum to 1.
/// Each next file is of the folder that is furthest below its share.
ChosenFiles choose_files(const std::vector<std::vector<uint64_t>>& bytes,
                         const std::vector<double>& shares);

}  // namespace ferry::tool
