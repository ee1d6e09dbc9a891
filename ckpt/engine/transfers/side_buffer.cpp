#include "ckpt/engine/transfers/side_buffer.h"

#include <algorithm>
#include <tuple>

namespace ferry {
namespace {

constexpr uint64_t kCacheLineBytes = 64;
// Runs from this length on begin at a cache line of the buffer, and not all at the same place of a
// page: rows a power of two apart evict each other from the cache.
constexpr uint64_t kAlignedRunBytes = 1 << 10;

std::pair<uint32_t, const Extent*> file_of(const Transfer& t, Side side) {
  if (side == Side::out) return {t.out_file, nullptr};
  return {t.in_file, t.zstd};
}
uint64_t offset_of(const Transfer& t, Side side) {
  return side == Side::in ? t.in_offset : t.out_offset;
}
int64_t element_bytes(const Transfer& t, Side side) {
  return size_bytes(side == Side::in ? t.in_dtype : t.out_dtype);
}

uint64_t line_aligned(uint64_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

// Joins neighbours for which joins(a, b) holds.
template <typename Joins>
std::vector<Span> joined(std::vector<Span> parts, const Joins& joins) {
  std::vector<Span> joined;
  for (Span& span : parts) {
    if (joined.empty() || joined.back().file != span.file || !joins(joined.back(), span)) {
      joined.push_back(std::move(span));
      continue;
    }
    Span& last = joined.back();
    last.end = std::max(last.end, span.end);
    last.touched += span.touched;
    last.transfers.insert(last.transfers.end(), span.transfers.begin(), span.transfers.end());
  }
  return joined;
}

}  // namespace

std::vector<Span> spans_of(const std::vector<Transfer>& transfers, Side side) {
  std::vector<Span> spans;
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& transfer = transfers[i];
    if (side == Side::in && !transfer.is_of_file()) continue;
    const auto bytes = static_cast<uint64_t>(element_bytes(transfer, side));
    const uint64_t begin = offset_of(transfer, side);
    uint64_t end = begin + bytes, touched = bytes;
    for (const Transfer::Loop& loop : transfer.loops) {
      end += static_cast<uint64_t>((loop.count - 1) * stride_of(loop, side));
      if (stride_of(loop, side) != 0) touched *= static_cast<uint64_t>(loop.count);
    }
    spans.push_back({file_of(transfer, side), begin, end, touched, {i}});
  }
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.file, a.begin) < std::tie(b.file, b.begin);
  });
  spans = joined(std::move(spans), [](const Span& a, const Span& b) { return b.begin < a.end; });
  return joined(std::move(spans), [](const Span& a, const Span& b) {
    return b.begin == a.end && a.is_dense() && b.is_dense();
  });
}

uint64_t RunNest::runs() const {
  uint64_t count = 1;
  for (const auto& loop : loops) count *= static_cast<uint64_t>(loop.first);
  return count;
}

RunNest pack(const Transfer& transfer, Side side, std::vector<int64_t>& strides) {
  std::vector<size_t> order;
  for (size_t i = 0; i < transfer.loops.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return stride_of(transfer.loops[a], side) < stride_of(transfer.loops[b], side);
  });
  RunNest nest;
  nest.run_bytes = static_cast<uint64_t>(element_bytes(transfer, side));
  strides.assign(transfer.loops.size(), 0);
  uint64_t packed = nest.run_bytes;
  for (size_t i : order) {
    const Transfer::Loop& loop = transfer.loops[i];
    const int64_t stride = stride_of(loop, side);
    if (stride == 0) continue;  // one element, repeated
    if (nest.loops.empty() && static_cast<uint64_t>(stride) == nest.run_bytes) {
      nest.run_bytes *= static_cast<uint64_t>(loop.count);
      strides[i] = stride;
      packed = nest.run_bytes;
      continue;
    }
    if (nest.loops.empty() && packed >= kAlignedRunBytes) {
      packed = line_aligned(packed) + (side == Side::in ? kCacheLineBytes : 0);
    }
    if (nest.loops.empty()) nest.pitch = packed;
    nest.loops.insert(nest.loops.begin(), {loop.count, stride});
    strides[i] = static_cast<int64_t>(packed);
    packed *= static_cast<uint64_t>(loop.count);
  }
  if (nest.loops.empty()) nest.pitch = nest.run_bytes;
  return nest;
}

SideBuffer::SideBuffer(const std::vector<Transfer>& transfers, Side side)
    : transfers_(transfers),
      side_(side),
      spans_(spans_of(transfers, side)),
      views_(transfers.size()),
      nests_(transfers.size()) {
  for (Span& span : spans_) {
    if (span.end - span.begin >= kAlignedRunBytes) bytes_ = line_aligned(bytes_);
    span.buffer_offset = bytes_;
    if (span.is_dense()) bytes_ += span.end - span.begin;
    for (size_t i : span.transfers) {
      BufferView& view = views_[i];
      if (span.is_dense()) {
        view.offset = span.buffer_offset + offset_of(transfers[i], side) - span.begin;
        for (const Transfer::Loop& loop : transfers[i].loops) {
          view.strides.push_back(stride_of(loop, side));
        }
      } else {
        view.offset = bytes_;
        nests_[i] = pack(transfers[i], side, view.strides);
        bytes_ += nests_[i].buffer_bytes();
      }
    }
  }
}

uint64_t SideBuffer::calls() const {
  uint64_t calls = 0;
  for (const Span& span : spans_) {
    if (span.is_dense()) {
      ++calls;
    } else {
      for (size_t i : span.transfers) calls += nests_[i].runs();
    }
  }
  return calls;
}

}  // namespace ferry
