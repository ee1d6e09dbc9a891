// How one side of a tile's transfers, source or target, is laid out in memory.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ckpt/engine/transfers/transfer.h"

namespace ferry {

enum class Side { in, out };

/// Bytes between two neighbours of a loop.
inline int64_t stride_of(const Transfer::Loop& loop, Side side) {
  return side == Side::in ? loop.in_stride : loop.out_stride;
}

/// What transfers touch in a file. Spans that are touched throughout move in one read or write; in
/// the others each transfer moves its own runs.
struct Span {
  std::pair<uint32_t, const Extent*> file;  // with the stream inside it that positions count in
  uint64_t begin, end;                      // bytes of the file
  uint64_t touched;                         // bytes of it that the transfers move
  std::vector<size_t> transfers;            // positions
  uint64_t buffer_offset = 0;

  bool is_dense() const { return touched >= end - begin; }
};

/// Spans in order of file and position; zeros have none on the source's side.
std::vector<Span> spans_of(const std::vector<Transfer>& transfers, Side side);

/// Where a transfer's elements are in a buffer.
struct BufferView {
  uint64_t offset = 0;           // bytes, of the first element
  std::vector<int64_t> strides;  // bytes, one a loop of the transfer
};

/// A nest of runs of bytes in a file, and the same runs at even distances in a buffer.
struct RunNest {
  std::vector<std::pair<int64_t, int64_t>> loops;  // count, stride in the file; outermost first
  uint64_t run_bytes = 0;
  uint64_t pitch = 0;  // bytes between runs in the buffer

  uint64_t runs() const;
  uint64_t buffer_bytes() const { return runs() * pitch; }

  /// Calls run(file_offset, buffer_offset, bytes) for every run.
  template <typename Run>
  void for_each(uint64_t file_offset, uint64_t buffer_offset, const Run& run) const {
    std::vector<int64_t> index(loops.size());
    for (;;) {
      uint64_t at = file_offset;
      for (size_t i = 0; i < index.size(); ++i) {
        at += static_cast<uint64_t>(index[i] * loops[i].second);
      }
      run(at, buffer_offset, run_bytes);
      buffer_offset += pitch;
      size_t level = index.size();
      while (level > 0 && ++index[level - 1] == loops[level - 1].first) index[--level] = 0;
      if (level == 0) return;
    }
  }
};

/// The longest runs of one side of a transfer, and the strides of its loops when the runs are
/// packed in a buffer. Long runs are aligned there.
RunNest pack(const Transfer& transfer, Side side, std::vector<int64_t>& strides);

/// Lays one side of transfers out in a buffer. The transfers must outlive it.
class SideBuffer {
 public:
  SideBuffer(const std::vector<Transfer>& transfers, Side side);

  uint64_t bytes() const { return bytes_; }
  const BufferView& view(size_t transfer) const { return views_[transfer]; }
  /// Reads or writes that move all of it.
  uint64_t calls() const;

  /// Calls move(transfer, file_offset, buffer_offset, bytes) for every run of the side; `transfer`
  /// is one of those that the run belongs to.
  template <typename MoveRun>
  void for_each(const MoveRun& move) const {
    for (const Span& span : spans_) {
      if (span.is_dense()) {
        move(transfers_[span.transfers[0]], span.begin, span.buffer_offset, span.end - span.begin);
        continue;
      }
      for (size_t i : span.transfers) {
        const Transfer& transfer = transfers_[i];
        nests_[i].for_each(side_ == Side::in ? transfer.in_offset : transfer.out_offset,
                           views_[i].offset, [&](uint64_t at, uint64_t buffer, uint64_t bytes) {
                             move(transfer, at, buffer, bytes);
                           });
      }
    }
  }

 private:
  const std::vector<Transfer>& transfers_;
  Side side_;
  std::vector<Span> spans_;
  std::vector<BufferView> views_;
  std::vector<RunNest> nests_;
  uint64_t bytes_ = 0;
};

}  // namespace ferry
