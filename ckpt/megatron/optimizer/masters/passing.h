// Whether weights of bf16 are their fp32 masters rounded, seen from bytes that pass by: whoever
// reads a checkpoint's files for another reason need not read masters and weights once more.
//
// Weights and masters are cut differently and pass by in any order, so that their elements never
// meet. What meets are sums over all elements of a tensor, each as bf16 times a key of its
// position, modulo 2^32. Sums of tensors that differ are equal by a chance of about 2^-32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/megatron/optimizer/masters/compare.h"

namespace ferry {

class PassingMasters {
 public:
  /// `files` are those that bytes will come of, known by their paths. Locates the chunks of
  /// `pairs`, of which both must be whole entries of the catalog (master_pairs()), on `threads`
  /// threads.
  PassingMasters(const Catalog& catalog, const std::vector<MasterPair>& pairs,
                 std::span<const FileInfo> files, int threads);
  ~PassingMasters();

  using Seer =
      std::function<void(uint32_t file, uint64_t offset, std::span<const std::byte> bytes)>;
  /// For one thread, which gives it the bytes of a run in order; runs may be apart. Every byte is
  /// to be given once, to whichever. Must not outlive this.
  Seer reader();

  /// Positions of the pairs that were not seen to agree: they differ somewhere, were rounded by
  /// another rule than to nearest even, did not pass by whole, or are stored as no sum can be taken
  /// of (compressed, transposed, of another dtype than bf16). In order.
  std::vector<size_t> not_seen_to_agree() const;

 private:
  struct Sums;
  std::unique_ptr<Sums> sums_;
};

}  // namespace ferry
