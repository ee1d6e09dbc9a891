#include "ckpt/format/deepspeed/partitions.h"

#include <algorithm>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/format/torch/torch_file.h"

namespace ferry {
namespace {

// A run of `part`, of elements [from, from + count) of a flat tensor.
Chunk chunk_of(const FlatTensor& flat, const Dims& shape, int64_t begin, int64_t from,
               int64_t count) {
  const auto element = static_cast<uint64_t>(size_bytes(flat.dtype));
  Shard shard;
  shard.box = Box::whole(shape);
  shard.run_begin = begin;
  shard.run_count = count;
  Extent extent = flat.extent;
  extent.offset += static_cast<uint64_t>(from) * element;
  extent.length = static_cast<uint64_t>(count) * element;
  return {std::move(shard), {}, extent};
}

// A scalar has no run: its box has one element and no axis.
void add_chunk(Entry& entry, Chunk chunk) {
  if (chunk.run_count == 0) return;
  if (chunk.run_begin == 0 && chunk.run_count == entry.elements()) chunk.run_count = -1;
  entry.chunks.push_back(std::move(chunk));
}

[[noreturn]] void refuse(const std::string& what, const ZeroParameter& parameter, int64_t end,
                         int64_t held) {
  fail(ErrorKind::corrupt,
       "{}: parameter {} of shape {} would end at element {}, but the ranks hold {}; files of "
       "several saves are in the folder, or some are damaged",
       what, parameter.name, to_string(parameter.shape), end, held);
}

// Elements of one group on each rank, as they were cut.
std::vector<int64_t> sizes_of(const FlatTensors& sizes, size_t group) {
  std::vector<int64_t> result;
  for (const auto& rank : sizes) result.push_back(rank.at(group).elements);
  return result;
}

}  // namespace

FlatTensor flat_tensor(const TorchArchive& archive, uint32_t file, const Value& value,
                       const std::string& what) {
  const StoredTensor* tensor = value.tensor();
  if (tensor == nullptr || tensor->shape.size() != 1 || !is_floating_point(tensor->dtype)) {
    fail(ErrorKind::corrupt, "{}: is not a flat tensor of numbers", what);
  }
  const Chunk chunk = stored_chunk(archive, *tensor, file, what);
  if (!chunk.strides.empty()) fail(ErrorKind::corrupt, "{}: is not contiguous", what);
  return {chunk.extent, tensor->dtype, tensor->shape[0]};
}

std::vector<Entry> join_groups(const std::vector<ZeroGroup>& groups, const FlatTensors& flats,
                               const FlatTensors& sizes, const std::string& prefix, Role role,
                               const std::string& what) {
  std::vector<Entry> entries;
  for (size_t group = 0; group < groups.size(); ++group) {
    const std::vector<int64_t> ranks = sizes_of(sizes, group);
    int64_t held = 0;
    for (const int64_t size : ranks) held = checked_add(held, size, what);
    size_t rank = 0;
    int64_t rank_begin = 0, at = 0;
    for (const ZeroParameter& parameter : groups[group]) {
      const int64_t count = element_count(parameter.shape, parameter.name);
      const int64_t end = checked_add(at, count, what);
      if (end > held) refuse(what, parameter, end, held);
      Entry entry{prefix + parameter.name, flats[0].at(group).dtype, parameter.shape, {}, role};
      for (int64_t from = at; from < end;) {
        while (from >= rank_begin + ranks[rank]) rank_begin += ranks[rank++];
        const FlatTensor& flat = flats[rank].at(group);
        const int64_t part = std::min(end, rank_begin + ranks[rank]) - from;
        if (from - rank_begin + part > flat.elements || flat.dtype != entry.dtype) {
          refuse(what, parameter, from - rank_begin + part, flat.elements);
        }
        add_chunk(entry, chunk_of(flat, parameter.shape, from - at, from - rank_begin, part));
        from += part;
      }
      entries.push_back(std::move(entry));
      at = checked_add(end, parameter.gap, what);
    }
    const int64_t align = 2 * static_cast<int64_t>(ranks.size());
    if (at < held && (held - at) / align > 0 &&
        (at + align - 1) / align != (held + align - 1) / align) {
      fail(ErrorKind::corrupt,
           "{}: the parameters of group {} have {} elements, but the ranks hold {}; files of "
           "several "
           "saves are in the folder, or shapes are missing",
           what, group, at, held);
    }
  }
  return entries;
}

Shard rank_part(const Dims& shape, int64_t elements, int64_t ranks, int64_t rank) {
  const int64_t part = elements / ranks + (elements % ranks != 0);
  Shard shard;
  shard.box = Box::whole(shape);
  shard.run_begin = std::min(elements, part * rank);
  shard.run_count = std::min(part, elements - shard.run_begin);
  return shard;
}

std::vector<Entry> join_parts(const std::vector<ZeroGroup>& groups, const FlatTensors& flats,
                              const std::string& prefix, Role role, const std::string& what) {
  std::vector<Entry> entries;
  for (const ZeroGroup& group : groups) {
    for (const ZeroParameter& parameter : group) {
      element_count(parameter.shape, parameter.name);
      entries.push_back({prefix + parameter.name, flats[0].at(0).dtype, parameter.shape, {}, role});
    }
  }
  const auto ranks = static_cast<int64_t>(flats.size());
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto& pieces = flats[static_cast<size_t>(rank)];
    size_t piece = 0;
    int64_t at = 0;  // in that piece
    for (Entry& entry : entries) {
      const Shard part = rank_part(entry.shape, entry.elements(), ranks, rank);
      int64_t padded = entry.elements() / ranks + (entry.elements() % ranks != 0);
      for (int64_t done = 0; done < padded;) {
        while (piece < pieces.size() && at == pieces[piece].elements) at = 0, ++piece;
        if (piece == pieces.size()) refuse(what, {entry.name, entry.shape, 0}, padded, done);
        const FlatTensor& flat = pieces[piece];
        if (flat.dtype != entry.dtype) refuse(what, {entry.name, entry.shape, 0}, padded, done);
        const int64_t count = std::min(padded - done, flat.elements - at);
        const int64_t left_in_part = std::clamp<int64_t>(part.run_count - done, 0, count);
        add_chunk(entry, chunk_of(flat, entry.shape, part.run_begin + done, at, left_in_part));
        at += count;
        done += count;
      }
    }
    while (piece < pieces.size() && at == pieces[piece].elements) at = 0, ++piece;
    if (piece < pieces.size()) {
      fail(ErrorKind::corrupt,
           "{}: rank {} holds more elements than the parameters have; files of several saves are "
           "in the folder, or shapes are missing",
           what, rank);
    }
  }
  return entries;
}

}  // namespace ferry
