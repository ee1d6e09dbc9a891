#include "ckpt/engine/tiles/tile.h"

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/engine/elements/halves.h"
#include "ckpt/engine/elements/strided_copy.h"
#include "ckpt/engine/target_files.h"

namespace ferry {
namespace {

// Runs that are the same bytes on both sides are copied one by one from this length on; shorter
// ones are gathered in memory, so that one write serves many.
constexpr uint64_t kDirectCopyBytes = 64 << 10;
// A plain run that the kernel does not copy goes through a buffer of this size, and what is hashed
// is written in pieces of it: read or written, the bytes are still in a core's cache (with those of
// the file) when they are met again.
constexpr uint64_t kBounceBytes = 256 << 10;
// Pieces end where a page of the target ends, so that as few pages as can be are written in parts.
constexpr uint64_t kPageBytes = 4 << 10;
// From this length on, runs are read to where they are written from, one by one; shorter ones that
// touch are read together first.
constexpr uint64_t kDirectReadBytes = 4 << 10;
// Source bytes that are read before they are moved on: they stay in a core's cache.
constexpr uint64_t kStripBytes = 512 << 10;
// A strip is not cut lower than this many rows, so that a transposition writes whole cache lines,
// but rows longer than that many bytes are cut.
constexpr int64_t kStripRows = 64;
constexpr int64_t kStripRowBytes = 16 << 10;

// How many of `bytes` bytes for a target's `offset` to move as one piece.
uint64_t piece_of(uint64_t offset, uint64_t bytes) {
  return bytes <= kBounceBytes ? bytes : kBounceBytes - offset % kPageBytes;
}

bool is_copied(const Transfer& transfer) { return transfer.run_bytes() >= kDirectCopyBytes; }

bool is_read_together(const std::vector<Transfer>& transfers, const Span& span) {
  return span.is_dense() && span.transfers.size() > 1 &&
         std::any_of(span.transfers.begin(), span.transfers.end(),
                     [&](size_t i) { return transfers[i].run_bytes() < kDirectReadBytes; });
}

// True when a transfer's runs can be read to their places in the target's buffer at no loss.
bool is_read_in_place(const Transfer& transfer) {
  const uint64_t run_bytes = transfer.run_bytes();
  if (run_bytes >= kDirectReadBytes) return true;
  std::vector<int64_t> strides;
  return run_bytes > 0 && run_bytes == pack(transfer, Side::in, strides).run_bytes;
}

[[noreturn]] void fail_no_remainders(const Transfer& transfer) {
  fail(ErrorKind::corrupt,
       "tensor {}: holds values that are not 16-bit remainders of bf16 weights, unlike other "
       "tensors of its kind: the checkpoint is damaged, or mixes two runs",
       *transfer.tensor);
}

void move_halves(const Transfer& transfer, const std::byte* in, std::byte* out,
                 const std::vector<StridedLoop>& loops) {
  if (transfer.half == FloatHalf::upper) {
    take_upper(in, transfer.in_dtype, out, loops);
  } else if (!transfer.tensor) {
    take_lower(in, transfer.in_dtype, out, loops);
  } else if (!narrow_remainders(in, transfer.in_dtype, out, loops)) {
    fail_no_remainders(transfer);
  }
}

// What is done with the elements of a transfer once they are read.
enum class Arrival { put, add_remainders };

// Moves the elements of a transfer that is in memory on both sides.
void move_elements(const Transfer& transfer, const std::byte* in,
                   const std::vector<int64_t>& in_strides, std::byte* out,
                   const std::vector<int64_t>& out_strides, Arrival arrival = Arrival::put) {
  std::vector<StridedLoop> loops;
  for (size_t i = 0; i < transfer.loops.size(); ++i) {
    loops.push_back({transfer.loops[i].count, in ? in_strides[i] : 0, out_strides[i]});
  }
  if (arrival == Arrival::add_remainders) {
    if (!add_remainders(in, transfer.in_dtype, out, loops)) fail_no_remainders(transfer);
    return;
  }
  if (transfer.half != FloatHalf::whole && in != nullptr) {
    move_halves(transfer, in, out, loops);
  } else if (transfer.addend != 0) {
    strided_add(in, transfer.in_dtype, transfer.addend, out, transfer.out_dtype, loops);
  } else {
    strided_copy(in, transfer.in_dtype, out, transfer.out_dtype, loops);
  }
  // A sign is one whatever the elements were converted to.
  if (transfer.math.any()) {
    flip_signs(out, size_bytes(transfer.out_dtype), sign_flips(transfer.math, transfer.out_dtype),
               loops);
  }
}

// The loop to cut so that a part of the transfer fits a strip, and the most that a part counts.
struct StripCut {
  size_t loop;
  int64_t count;
};

StripCut cut_of_strip(const Transfer& transfer, uint64_t bytes) {
  size_t outer = 0, inner = 0;  // those of more than one element, if any
  for (size_t i = 1; i < transfer.loops.size(); ++i) {
    const Transfer::Loop& loop = transfer.loops[i];
    if (loop.count == 1) continue;
    if (loop.in_stride > transfer.loops[outer].in_stride) outer = i;
    if (loop.in_stride < transfer.loops[inner].in_stride) inner = i;
  }
  const int64_t rows = transfer.loops[outer].count;
  const int64_t row_bytes = static_cast<int64_t>(bytes) / rows;
  const int64_t most = static_cast<int64_t>(kStripBytes) / row_bytes;
  if (most >= kStripRows || outer == inner) {
    return {outer, std::max<int64_t>(1, most / kStripRows * kStripRows)};
  }
  const int64_t columns = kStripRowBytes / size_bytes(transfer.in_dtype);
  if (transfer.loops[inner].count > columns) return {inner, columns};
  return {outer, kStripRows};
}

}  // namespace

TileRunner::TileRunner(SourceFiles& sources, std::span<WritableFile* const> targets,
                       const FileSystem* file_system, ItemDigester* digester)
    : sources_(sources),
      targets_(targets),
      file_system_(file_system),
      digester_(digester),
      dequantiser_(sources, [](const Transfer& transfer, const std::byte* in,
                               const std::vector<int64_t>& in_strides, std::byte* out,
                               const std::vector<int64_t>& out_strides) {
        move_elements(transfer, in, in_strides, out, out_strides);
      }) {}

uint64_t TileRunner::run(const std::vector<Transfer>& transfers) {
  uint64_t written = 0;
  std::vector<Transfer> rest;
  for (const Transfer& transfer : transfers) {
    written += transfer.out_bytes();
    if (is_copied(transfer)) {
      const auto source = sources_.get(transfer);
      copy_runs(transfer, 0, *source, transfer.in_offset, transfer.out_offset);
    } else {
      rest.push_back(transfer);
    }
  }
  if (rest.empty()) return written;
  const SideBuffer out(rest, Side::out);
  const auto buffer = out_buffer_.take(out.bytes());
  gather(rest, out, buffer.data());
  out.for_each([&](const Transfer& transfer, uint64_t at, uint64_t offset, uint64_t bytes) {
    write(transfer.out_file, at, buffer.subspan(offset, bytes));
  });
  return written;
}

// In pieces that are still in the cache when they are shown.
void TileRunner::write(uint32_t file, uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = digester_ ? bytes.first(piece_of(offset, bytes.size())) : bytes;
    targets_[file]->write(offset, piece);
    if (digester_) digester_->show(file, offset, piece);
    offset += piece.size();
    bytes = bytes.subspan(piece.size());
  }
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
  const uint64_t bytes = transfer.run_bytes();
  uint64_t done = 0;
  if (file_system_) {
    WritableFile& target = *targets_[transfer.out_file];
    done = TargetFiles::copy(*file_system_, source, in_offset, target, out_offset, bytes,
                             KernelCopy::where_shared);
  }
  while (done < bytes) {
    const uint64_t length = piece_of(out_offset + done, bytes - done);
    auto part = source.view(in_offset + done, length);
    if (part.empty()) {
      const auto room = targets_[transfer.out_file]->room(out_offset + done, length);
      const auto into = room.empty() ? in_buffer_.take(length) : room;
      source.read(in_offset + done, into);
      part = into;
    }
    write(transfer.out_file, out_offset + done, part);
    done += length;
  }
}

// Brings all transfers to their places in the target's buffer.
void TileRunner::gather(const std::vector<Transfer>& transfers, const SideBuffer& out,
                        std::byte* to) {
  for (size_t i = 0; i < transfers.size(); ++i) {
    const BufferView& view = out.view(i);
    if (transfers[i].quantised) {
      dequantiser_.gather(transfers[i], to + view.offset, view.strides);
    } else if (transfers[i].in_file == Transfer::kZeros) {
      move_elements(transfers[i], nullptr, {}, to + view.offset, view.strides);
    }
  }
  for (const Span& span : spans_of(transfers, Side::in)) {
    if (is_read_together(transfers, span)) {
      gather_together(transfers, span, out, to);
      continue;
    }
    for (size_t i : span.transfers) {
      const BufferView& view = out.view(i);
      if (is_read_in_place(transfers[i])) {
        gather_runs(transfers[i], view, to + view.offset);
      } else {
        gather_strips(transfers[i], view, to + view.offset);
      }
    }
  }
  for (size_t i = 0; i < transfers.size(); ++i) {
    if (!transfers[i].remainders) continue;
    gather_strips(*transfers[i].remainders, out.view(i), to + out.view(i).offset, true);
  }
}

void TileRunner::gather_together(const std::vector<Transfer>& transfers, const Span& span,
                                 const SideBuffer& out, std::byte* to) {
  const auto in = in_buffer_.take(span.end - span.begin);
  sources_.get(transfers[span.transfers[0]])->read(span.begin, in);
  for (size_t i : span.transfers) {
    const Transfer& transfer = transfers[i];
    std::vector<int64_t> strides;
    for (const Transfer::Loop& loop : transfer.loops) strides.push_back(loop.in_stride);
    move_elements(transfer, in.data() + (transfer.in_offset - span.begin), strides,
                  to + out.view(i).offset, out.view(i).strides);
  }
}

void TileRunner::gather_runs(const Transfer& transfer, const BufferView& out, std::byte* to) {
  const auto source = sources_.get(transfer);
  const uint64_t bytes = transfer.run_bytes();
  const size_t outer = transfer.loops.empty() ? 0 : transfer.loops.size() - 1;
  std::vector<int64_t> index(outer);
  for (;;) {
    uint64_t at = transfer.in_offset;
    std::byte* place = to;
    for (size_t i = 0; i < outer; ++i) {
      at += static_cast<uint64_t>(index[i] * transfer.loops[i].in_stride);
      place += index[i] * out.strides[i];
    }
    source->read(at, {place, bytes});
    size_t level = outer;
    while (level > 0 && ++index[level - 1] == transfer.loops[level - 1].count) index[--level] = 0;
    if (level == 0) return;
  }
}

// Reads a part of the transfer that stays in the cache, moves it, reads the next.
void TileRunner::gather_strips(Transfer transfer, const BufferView& out, std::byte* to,
                               bool are_remainders) {
  std::vector<int64_t> strides;
  const RunNest nest = pack(transfer, Side::in, strides);
  const uint64_t bytes = nest.buffer_bytes();
  if (bytes > kStripBytes) {
    const StripCut cut = cut_of_strip(transfer, bytes);
    Transfer::Loop& loop = transfer.loops[cut.loop];
    const int64_t total = loop.count;
    for (int64_t at = 0; at < total && cut.count < total; at += cut.count) {
      loop.count = std::min(cut.count, total - at);
      gather_strips(transfer, out, to + at * out.strides[cut.loop], are_remainders);
      transfer.in_offset += static_cast<uint64_t>(loop.count * loop.in_stride);
    }
    if (cut.count < total) return;
  }
  const auto in = in_buffer_.take(bytes);
  const auto source = sources_.get(transfer);
  nest.for_each(transfer.in_offset, 0, [&](uint64_t at, uint64_t offset, uint64_t run_bytes) {
    source->read(at, in.subspan(offset, run_bytes));
  });
  move_elements(transfer, in.data(), strides, to, out.strides,
                are_remainders ? Arrival::add_remainders : Arrival::put);
}

uint64_t calls_of(const std::vector<Transfer>& transfers) {
  uint64_t calls = 0;
  std::vector<Transfer> rest;
  for (const Transfer& transfer : transfers) {
    if (is_copied(transfer)) {
      calls += 2 * (transfer.out_bytes() / std::min(kBounceBytes, transfer.run_bytes()));
    } else {
      rest.push_back(transfer);
    }
  }
  for (const Span& span : spans_of(rest, Side::in)) {
    if (is_read_together(rest, span)) {
      ++calls;
      continue;
    }
    for (size_t i : span.transfers) {
      const Transfer& transfer = rest[i];
      std::vector<int64_t> strides;
      calls += is_read_in_place(transfer) ? transfer.out_bytes() / transfer.run_bytes()
                                          : pack(transfer, Side::in, strides).runs();
    }
  }
  for (const Transfer& transfer : rest) {
    std::vector<int64_t> strides;
    if (transfer.quantised) calls += calls_of_values(transfer);
    if (transfer.remainders) calls += pack(*transfer.remainders, Side::in, strides).runs();
  }
  return calls + SideBuffer(rest, Side::out).calls();
}

}  // namespace ferry
