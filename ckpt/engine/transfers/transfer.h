// What recipes compile to: nests of byte copies from source files to target files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/core/plan.h"

namespace ferry {

class Decoder;  // ckpt/engine/elements/decode.h
class PlanCompiler;

/// What a transfer reads where that is values of a quantised tensor.
struct QuantisedMove {
  const Entry* entry = nullptr;
  std::shared_ptr<const Decoder> decoder;
  PlanCompiler* compiler = nullptr;  // of what holds the codes and scales
  Move move;                         // from coordinates of the codes; its loops are the transfer's
};

struct Transfer {
  struct Loop {
    int64_t count;
    int64_t in_stride;   // bytes
    int64_t out_stride;  // bytes
  };
  static constexpr uint32_t kZeros = UINT32_MAX;       // as in_file: fill with zero
  static constexpr uint32_t kValues = UINT32_MAX - 1;  // as in_file: those of `quantised`

  uint32_t in_file = 0;
  uint64_t in_offset = 0;  // bytes, of the first element; in the decoded stream when `zstd`
  uint32_t out_file = 0;
  uint64_t out_offset = 0;
  DType in_dtype = DType::u8;
  DType out_dtype = DType::u8;
  std::vector<Loop>
      loops;  // over elements, outermost first by out_stride, merged as far as they go
  const Extent* zstd = nullptr;       // the compressed extent that in_offset counts in, if any
  double addend = 0;                  // added to the elements
  MathBits math;                      // of a view: what is to be done to its elements
  FloatHalf half = FloatHalf::whole;  // taken of the elements
  /// Remainders that are added to the bits of the elements once those are in place: from elsewhere,
  /// but by the same loops and to the same place.
  std::shared_ptr<const Transfer> remainders;
  std::shared_ptr<const QuantisedMove> quantised;
  const std::string* tensor = nullptr;  // of remainders: the name of theirs, for messages

  bool is_of_file() const noexcept { return in_file < kValues; }
  int64_t elements() const;
  uint64_t out_bytes() const { return elements() * static_cast<uint64_t>(size_bytes(out_dtype)); }
  /// Length of the runs that are the same bytes on both sides: that of the last loop, contiguous
  /// in source and target; 0 where it is not and where values change (zeros, casts).
  uint64_t run_bytes() const;
};

/// Compiles a plan piece by piece. Source chunks are located (their item headers read) the first
/// time a piece needs them. Safe from several threads.
class PlanCompiler {
 public:
  explicit PlanCompiler(const Plan& plan);
  ~PlanCompiler();
  PlanCompiler(const PlanCompiler&) = delete;
  PlanCompiler& operator=(const PlanCompiler&) = delete;

  /// Transfers that write the elements of `box` of a target entry.
  std::vector<Transfer> compile(size_t target_entry, const Box& box);

  /// Transfers that write the elements of `box` of a target entry as `dtype`, row-major, from byte
  /// 0 of file 0.
  std::vector<Transfer> compile_to_memory(size_t target_entry, const Box& box, DType dtype);

  /// Transfers that write the elements of `box` of an entry that holds them as they are (a
  /// source's, or a part of a quantised one) as `dtype`, row-major, from byte 0 of file 0.
  std::vector<Transfer> compile_stored(const Entry& entry, const Box& box, DType dtype);

 private:
  struct State;
  class BoxCompiler;
  std::unique_ptr<State> state_;
};

}  // namespace ferry
