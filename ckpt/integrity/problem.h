// What a check of a checkpoint found.
#pragma once

#include <cstdint>
#include <string>

namespace ferry {

/// Something that is wrong with a checkpoint.
struct Problem {
  std::string file;     // inside the checkpoint's folder; empty: the checkpoint as a whole
  uint64_t offset = 0;  // of the bytes in question, in the file
  uint64_t bytes = 0;   // 0: the file as a whole
  std::string holds;    // what these bytes are: "tensor a.b [0:2, 0:32]", "object args"
  std::string what;     // is wrong: a sentence that names all of the above
};

}  // namespace ferry
