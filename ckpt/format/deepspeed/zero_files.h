// The files of a ZeRO save, by the ranks in their names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ferry {

struct ZeroFiles {
  std::vector<std::string> model;      // one; of stage 3 one a rank, by rank
  std::vector<std::string> optimizer;  // one a rank, by rank; none when none were saved
  std::string folder;

  bool is_partitioned = false;  // the model's are one a rank
};

/// True for the name of a file that only DeepSpeed writes.
bool is_zero_file(const std::string& name);

/// not_found, naming them, when ranks between those that are there are missing; unsupported for the
/// files of tensor, pipeline or expert parallelism.
ZeroFiles find_zero_files(const std::vector<std::string>& names, const std::string& folder);

}  // namespace ferry
