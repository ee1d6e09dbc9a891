#include "ckpt/engine/tile.h"

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/engine/dequantise.h"
#include "ckpt/engine/strided_copy.h"

namespace ferry {
namespace {

// Runs that are the same bytes on both sides are copied one by one from this length on; shorter
// ones are gathered in memory, so that one read and one write serve many.
constexpr uint64_t kDirectCopyBytes = 64 << 10;
// A plain run that the kernel does not copy goes through a buffer of this size, which stays in
// cache.
constexpr uint64_t kBounceBytes = 1 << 20;

enum class Side { in, out };

std::pair<uint32_t, const Extent*> file_of(const Transfer& t, Side side) {
  if (side == Side::out) return {t.out_file, nullptr};
  return {t.in_file, t.zstd};
}
uint64_t offset_of(const Transfer& t, Side side) {
  return side == Side::in ? t.in_offset : t.out_offset;
}
int64_t stride_of(const Transfer::Loop& loop, Side side) {
  return side == Side::in ? loop.in_stride : loop.out_stride;
}
int64_t element_bytes(const Transfer& t, Side side) {
  return size_bytes(side == Side::in ? t.in_dtype : t.out_dtype);
}

// What one side of a tile's transfers touches in a file. Spans that are touched throughout move in
// one read or write; in the others each transfer moves its own runs, packed in the buffer.
struct Span {
  std::pair<uint32_t, const Extent*> file;  // with the stream inside it that positions count in
  uint64_t begin, end;                      // bytes of the file
  uint64_t touched;                         // bytes of it that the transfers move
  std::vector<size_t> transfers;
  uint64_t buffer_offset = 0;

  bool is_dense() const { return touched >= end - begin; }
};

std::vector<Span> spans_of(const std::vector<Transfer>& transfers, Side side) {
  std::vector<Span> spans;
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& transfer = transfers[i];
    if (side == Side::in && transfer.in_file == Transfer::kZeros) continue;
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
  const auto join = [](std::vector<Span> parts, auto&& joins) {
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
  };
  spans = join(std::move(spans), [](const Span& a, const Span& b) { return b.begin < a.end; });
  return join(std::move(spans), [](const Span& a, const Span& b) {
    return b.begin == a.end && a.is_dense() && b.is_dense();
  });
}

// One transfer's side of the buffer: where its first element lies and at which strides.
struct BufferView {
  uint64_t offset = 0;
  std::vector<int64_t> strides;  // one a loop of the transfer
};

// A nest of runs in a file, densest inside.
struct RunNest {
  std::vector<std::pair<int64_t, int64_t>> loops;  // count, stride
  uint64_t run_bytes;
};

// Orders a transfer's loops by one side's stride and packs them densely.
RunNest pack(const Transfer& transfer, Side side, BufferView& view) {
  std::vector<size_t> order;
  for (size_t i = 0; i < transfer.loops.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return stride_of(transfer.loops[a], side) < stride_of(transfer.loops[b], side);
  });
  RunNest nest{{}, static_cast<uint64_t>(element_bytes(transfer, side))};
  uint64_t packed = nest.run_bytes;
  view.strides.assign(transfer.loops.size(), 0);
  for (size_t i : order) {
    const Transfer::Loop& loop = transfer.loops[i];
    const int64_t stride = stride_of(loop, side);
    if (stride == 0) continue;  // one element, repeated
    view.strides[i] = static_cast<int64_t>(packed);
    if (nest.loops.empty() && static_cast<uint64_t>(stride) == nest.run_bytes) {
      nest.run_bytes *= static_cast<uint64_t>(loop.count);
    } else {
      nest.loops.insert(nest.loops.begin(), {loop.count, stride});
    }
    packed *= static_cast<uint64_t>(loop.count);
  }
  return nest;
}

// Calls `run(file_offset, buffer_offset, bytes)` for every run of a nest.
template <typename Run>
void for_each_run(const RunNest& nest, uint64_t file_offset, uint64_t buffer_offset,
                  const Run& run) {
  std::vector<int64_t> index(nest.loops.size());
  for (;;) {
    uint64_t at = file_offset;
    for (size_t i = 0; i < index.size(); ++i)
      at += static_cast<uint64_t>(index[i] * nest.loops[i].second);
    run(at, buffer_offset, nest.run_bytes);
    buffer_offset += nest.run_bytes;
    size_t level = index.size();
    while (level > 0 && ++index[level - 1] == nest.loops[level - 1].first) index[--level] = 0;
    if (level == 0) return;
  }
}

// Lays one side of a tile out in a buffer and moves it between buffer and files.
class SideBuffer {
 public:
  SideBuffer(const std::vector<Transfer>& transfers, Side side)
      : transfers_(transfers),
        side_(side),
        spans_(spans_of(transfers, side)),
        views_(transfers.size()),
        nests_(transfers.size()) {
    for (Span& span : spans_) {
      span.buffer_offset = bytes_;
      for (size_t i : span.transfers) {
        BufferView& view = views_[i];
        if (span.is_dense()) {
          view.offset = span.buffer_offset + offset_of(transfers[i], side) - span.begin;
          for (const Transfer::Loop& loop : transfers[i].loops)
            view.strides.push_back(stride_of(loop, side));
        } else {
          view.offset = bytes_;
          nests_[i] = pack(transfers[i], side, view);
          uint64_t packed = nests_[i].run_bytes;
          for (const auto& [count, stride] : nests_[i].loops)
            packed *= static_cast<uint64_t>(count);
          bytes_ += packed;
        }
      }
      if (span.is_dense()) bytes_ += span.end - span.begin;
    }
  }

  uint64_t bytes() const { return bytes_; }
  const BufferView& view(size_t transfer) const { return views_[transfer]; }

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
        for_each_run(nests_[i], offset_of(transfers_[i], side_), views_[i].offset,
                     [&](uint64_t at, uint64_t buffer, uint64_t bytes) {
                       move(transfers_[i], at, buffer, bytes);
                     });
      }
    }
  }

  uint64_t shortest_run() const {
    uint64_t shortest = UINT64_MAX;
    for (const Span& span : spans_) {
      if (span.is_dense()) {
        shortest = std::min(shortest, span.end - span.begin);
      } else {
        for (size_t i : span.transfers) shortest = std::min(shortest, nests_[i].run_bytes);
      }
    }
    return shortest;
  }

 private:
  const std::vector<Transfer>& transfers_;
  Side side_;
  std::vector<Span> spans_;
  std::vector<BufferView> views_;
  std::vector<RunNest> nests_;
  uint64_t bytes_ = 0;
};

void ensure_size(std::vector<std::byte>& buffer, uint64_t bytes) {
  if (buffer.size() < bytes) {
    std::vector<std::byte>().swap(buffer);  // not both at once
    buffer.resize(bytes);
  }
}

}  // namespace

std::vector<Box> cut_into_tiles(const Dims& shape, int64_t max_elements) {
  std::vector<Box> tiles;
  std::vector<std::pair<Box, size_t>> work{{Box::whole(shape), 0}};
  while (!work.empty()) {
    auto [box, axis] = std::move(work.back());
    work.pop_back();
    int64_t count = 1;
    for (int64_t extent : box.size) count *= extent;
    while (axis < shape.size() && box.size[axis] <= 1) ++axis;
    if (count <= max_elements || axis == shape.size()) {
      tiles.push_back(std::move(box));
      continue;
    }
    const int64_t inner = count / box.size[axis];
    const int64_t rows = std::max<int64_t>(1, max_elements / inner);
    const int64_t begin = box.offset[axis], end = begin + box.size[axis];
    // Backwards onto the stack, so that tiles come out in order.
    for (int64_t at = begin + (end - begin - 1) / rows * rows; at >= begin; at -= rows) {
      Box part = box;
      part.offset[axis] = at;
      part.size[axis] = std::min(rows, end - at);
      work.emplace_back(std::move(part), rows > 1 ? shape.size() : axis + 1);
    }
  }
  return tiles;
}

TileRunner::TileRunner(SourceFiles& sources, std::span<WritableFile* const> targets,
                       const FileSystem* file_system)
    : sources_(sources), targets_(targets), file_system_(file_system) {}

uint64_t TileRunner::run(const std::vector<Transfer>& transfers) {
  uint64_t written = 0;
  std::vector<Transfer> rest;
  for (const Transfer& transfer : transfers) {
    written += transfer.out_bytes();
    if (transfer.run_bytes() >= kDirectCopyBytes) {
      const auto source = sources_.get(transfer);
      copy_runs(transfer, 0, *source, transfer.in_offset, transfer.out_offset);
    } else {
      rest.push_back(transfer);
    }
  }
  if (!rest.empty()) move_elements(rest);
  return written;
}

std::span<std::byte> TileRunner::scratch(uint64_t bytes) {
  ensure_size(in_buffer_, bytes);
  return std::span(in_buffer_).first(bytes);
}

void TileRunner::copy_runs(const Transfer& transfer, size_t level, const ReadableFile& source,
                           uint64_t in_offset, uint64_t out_offset) {
  if (level + 1 < transfer.loops.size()) {
    const Transfer::Loop& loop = transfer.loops[level];
    for (int64_t i = 0; i < loop.count; ++i) {
      copy_runs(transfer, level + 1, source, in_offset + static_cast<uint64_t>(i * loop.in_stride),
                out_offset + static_cast<uint64_t>(i * loop.out_stride));
    }
    return;
  }
  WritableFile& target = *targets_[transfer.out_file];
  const uint64_t bytes = transfer.run_bytes();
  uint64_t done = 0;
  if (file_system_) done = file_system_->copy(source, in_offset, target, out_offset, bytes);
  if (done < bytes) ensure_size(in_buffer_, std::min(kBounceBytes, bytes - done));
  while (done < bytes) {
    const std::span part(in_buffer_.data(), std::min<uint64_t>(kBounceBytes, bytes - done));
    source.read(in_offset + done, part);
    target.write(out_offset + done, part);
    done += part.size();
  }
}

void TileRunner::move_elements(const std::vector<Transfer>& transfers) {
  const SideBuffer in(transfers, Side::in);
  const SideBuffer out(transfers, Side::out);
  ensure_size(in_buffer_, in.bytes());
  ensure_size(out_buffer_, out.bytes());
  in.for_each([&](const Transfer& transfer, uint64_t at, uint64_t buffer, uint64_t bytes) {
    sources_.get(transfer)->read(at, std::span(in_buffer_.data() + buffer, bytes));
  });
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& transfer = transfers[i];
    const bool zeros = transfer.in_file == Transfer::kZeros;
    std::vector<StridedLoop> loops;
    for (size_t l = 0; l < transfer.loops.size(); ++l) {
      loops.push_back(
          {transfer.loops[l].count, zeros ? 0 : in.view(i).strides[l], out.view(i).strides[l]});
    }
    const std::byte* from = zeros ? nullptr : in_buffer_.data() + in.view(i).offset;
    std::byte* to = out_buffer_.data() + out.view(i).offset;
    if (transfer.scale) {
      dequantise(from, transfer.in_dtype, *transfer.scale, to, transfer.out_dtype, loops);
    } else {
      strided_copy(from, transfer.in_dtype, to, transfer.out_dtype, std::move(loops));
    }
  }
  out.for_each([&](const Transfer& transfer, uint64_t at, uint64_t buffer, uint64_t bytes) {
    targets_[transfer.out_file]->write(at, std::span(out_buffer_.data() + buffer, bytes));
  });
}

uint64_t shortest_run_bytes(const std::vector<Transfer>& transfers) {
  return std::min(SideBuffer(transfers, Side::in).shortest_run(),
                  SideBuffer(transfers, Side::out).shortest_run());
}

}  // namespace ferry
