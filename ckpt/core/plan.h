// A plan: a target catalog, known to the last byte before a byte moves, and a recipe for each entry.
//
// Convert, reshard, merge, extract, save and load are plans. check() proves a plan before it runs:
// every output element is written exactly once, every input element is used at most once or is
// named as dropped, everything lies inside its file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/core/recipe.h"

namespace ferry {

/// Bytes of a target file that are not tensor data (headers), written as they are.
struct Literal {
  uint32_t file = 0;
  uint64_t offset = 0;
  std::string bytes;
};

struct Plan {
  const Catalog* source = nullptr;  // must outlive the plan
  Catalog target;                   // all extents raw; files are names inside the output folder
  std::vector<Recipe> recipes;      // one for each target entry
  std::vector<Literal> literals;

  uint64_t target_bytes() const;  // of all files
};

/// invalid or mismatch, naming the tensor, when the plan would leave an element unwritten, write one
/// twice or read outside an input.
void check(const Plan& plan);

/// One nest of byte copies from a source file to a target file, what recipes compile to.
struct Transfer {
  struct Loop {
    int64_t count;
    int64_t in_stride;   // bytes
    int64_t out_stride;  // bytes
  };
  static constexpr uint32_t kZeros = UINT32_MAX;  // as in_file: fill with zero

  uint32_t in_file = 0;
  uint64_t in_offset = 0;  // of the first element; in the decoded stream when `zstd`
  uint32_t out_file = 0;
  uint64_t out_offset = 0;
  std::vector<Loop> loops;  // outermost first, merged as far as they go
  DType in_dtype = DType::u8;
  DType out_dtype = DType::u8;
  uint32_t target_entry = 0;  // for messages
  const Extent* zstd = nullptr;  // the compressed extent that in_offset counts in, if any
};

/// Transfers of one target entry: recipe x source chunks x target chunks. Locates the source chunks
/// it needs (reads item headers).
std::vector<Transfer> compile(const Plan& plan, size_t target_entry);

}  // namespace ferry
