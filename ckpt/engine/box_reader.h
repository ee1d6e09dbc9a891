// Reads boxes of one entry into memory as fp32, whatever dtype, file and layout it is stored in.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ckpt/core/catalog.h"

namespace ferry {

/// Opened files and located chunks are kept from one box to the next.
class BoxReader {
 public:
  /// `entry` is the position of one of the catalog's own. The catalog must outlive the reader.
  BoxReader(const Catalog& catalog, uint32_t entry);
  ~BoxReader();

  /// The elements of `box`, which must be inside the entry, row-major. Safe from several threads.
  std::vector<float> read(const Box& box);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ferry
