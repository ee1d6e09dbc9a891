// Files divided into dumps of about one size, each for a job of its own.
//
// Source: scripts/tokenization/prepare_dumps.py of swiss-ai/Megatron-LM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ferry::tool {

/// The paths that have one of `in` in them (all, if there is none), in the order of `in`, and none
/// of `out`.
std::vector<std::string> filter_paths(const std::vector<std::string>& paths,
                                      const std::vector<std::string>& in,
                                      const std::vector<std::string>& out);

/// `requested`, or one for each 150 GB; never more than files.
size_t dump_count(uint64_t total_bytes, size_t files, std::optional<int64_t> requested);

/// The files of each dump, as numbers: the largest first, each to the dump that is smallest so far.
std::vector<std::vector<size_t>> balance_dumps(const std::vector<uint64_t>& bytes, size_t dumps);

}  // namespace ferry::tool
