// What each rank brings to a save, and what they are together.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/core/catalog.h"
#include "ckpt/memory/snapshot.h"

namespace ferry {

/// One rank's. On the rank itself the regions have their memory, elsewhere none.
struct Contribution {
  bool ended = false;    // the rank saves no more; nothing else but the next is said
  bool stopped = false;  // the rank was asked to stop
  int64_t iteration = 0;
  std::string problem;  // why the rank has nothing to give for this iteration; empty: it has
  ErrorKind problem_kind = ErrorKind::mismatch;
  std::vector<ConstRegion> tensors;
  std::vector<StoredObject> objects;
};

std::string pack(const Contribution& contribution);
Contribution unpack_contribution(const std::string& bytes);

/// The memory of all ranks as one source, and which rank writes which piece. Of equal regions of
/// several ranks the one that has least to write so far takes it. invalid when two regions of one
/// tensor contradict each other, or all do not cover it exactly once.
class GatheredMemory {
 public:
  /// `ranks` are all ranks' contributions, with the memory of this one.
  explicit GatheredMemory(std::span<const Contribution> ranks);
  GatheredMemory(const GatheredMemory&) = delete;
  GatheredMemory& operator=(const GatheredMemory&) = delete;

  const Catalog& source() const noexcept { return source_; }
  /// All but where it goes.
  GatheredState state() const;

 private:
  struct Holder {
    size_t rank;
    const ConstRegion* region;
  };
  using Holders = std::map<std::vector<int64_t>, std::vector<Holder>>;  // by offset and size

  struct Tensor {
    const ConstRegion* first = nullptr;
    Holders pieces;
  };

  std::vector<Tensor> collect(std::span<const Contribution> ranks) const;
  void place(const Tensor& tensor, std::vector<uint64_t>& loads);

  Catalog source_;
  std::vector<PlacedTensor> tensors_;
  std::vector<PlacedObject> objects_;
  int64_t iteration_ = 0;
};

}  // namespace ferry
