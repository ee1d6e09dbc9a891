// The processes of a run, as far as its arguments depend on them.
#pragma once

#include <cstdint>
#include <string>

namespace ferry {

struct Launch {
  std::string launcher;  // "mpirun", "srun"; empty: nothing started several
  int64_t world_size = 1, rank = 0;

  /// Ranks are threads of this process.
  bool is_alone() const { return world_size == 1; }
};

}  // namespace ferry
