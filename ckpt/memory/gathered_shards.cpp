#include "ckpt/memory/gathered_shards.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/core/shard.h"

namespace ferry {
namespace {

// Of more, the manifest says nothing but places and digests: it would be too large to be read.
constexpr size_t kMostNamedItems = 1'000'000;

Dims read_dims(Unpacker& unpacker, uint64_t axes) {
  Dims dims(axes);
  for (int64_t& extent : dims) extent = static_cast<int64_t>(unpacker.number());
  return dims;
}

// That the boxes, no two of which are equal, cover the tensor exactly once.
void check_cover(const DcpContent::Entry& entry) {
  std::vector<Box> boxes;
  int64_t covered = 0;
  for (const DcpContent::Chunk& chunk : entry.chunks) {
    if (!is_inside(chunk.box, entry.shape)) {
      fail(ErrorKind::invalid, "tensor {}: {} does not lie inside its shape {}", entry.name,
           to_string(chunk.box), to_string(entry.shape));
    }
    covered = checked_add(covered, element_count(chunk.box.size, entry.name), entry.name);
    boxes.push_back(chunk.box);
  }
  if (const auto overlap = find_overlap(boxes)) {
    fail(ErrorKind::invalid,
         "the regions of all ranks do not make whole tensors: tensor {}: {} overlaps {}",
         entry.name, to_string(boxes[overlap->first]), to_string(boxes[overlap->second]));
  }
  if (covered == element_count(entry.shape, entry.name)) return;
  fail(ErrorKind::invalid,
       "the regions of all ranks do not make whole tensors: tensor {} of shape {}: they hold {} of "
       "{} elements",
       entry.name, to_string(entry.shape), covered, element_count(entry.shape, entry.name));
}

bool comes_before(const Box& a, const Box& b) {
  return std::tie(a.offset, a.size) < std::tie(b.offset, b.size);
}

}  // namespace

GatheredShards::GatheredShards(const std::vector<std::string>& descriptions)
    : mentions_(descriptions.size()), chosen_(descriptions.size()) {
  for (uint32_t rank = 0; rank < descriptions.size(); ++rank) read(rank, descriptions[rank]);
  std::vector<uint64_t> loads(descriptions.size());  // bytes that each rank writes
  std::vector<std::vector<uint32_t>> kept;           // by entry
  kept.reserve(content_.entries.size());
  for (uint32_t entry = 0; entry < content_.entries.size(); ++entry) {
    kept.push_back(choose(entry, loads));
  }
  keep_chosen(kept);
}

void GatheredShards::read(uint32_t rank, const std::string& description) {
  Unpacker unpacker(description);
  for (uint64_t tensors = unpacker.count(); tensors > 0; --tensors) read_tensor(rank, unpacker);
  for (uint64_t objects = unpacker.count(); objects > 0; --objects) {
    const uint32_t position = entry_of(unpacker.text());
    DcpContent::Entry& entry = content_.entries[position];
    if (entry.is_object || !entry.chunks.empty()) {
      fail(ErrorKind::invalid, "{} is given twice, the second time by rank {}", entry.name, rank);
    }
    entry.is_object = true;
    mentions_[rank].push_back({position, 0});
  }
  unpacker.finish();
}

void GatheredShards::read_tensor(uint32_t rank, Unpacker& unpacker) {
  const uint32_t position = entry_of(unpacker.text());
  DcpContent::Entry& entry = content_.entries[position];
  const auto dtype = unpacker.choice(DType::f4x2);
  const uint64_t axes = unpacker.count();
  const Dims shape = read_dims(unpacker, axes);
  if (entry.chunks.empty() && !entry.is_object) {
    entry.dtype = dtype;
    entry.shape = shape;
  } else if (entry.is_object || entry.dtype != dtype || entry.shape != shape) {
    fail(ErrorKind::invalid, "tensor {} is given as {} {} and, by rank {}, as {} {}", entry.name,
         torch_name(entry.dtype), to_string(entry.shape), rank, torch_name(dtype),
         to_string(shape));
  }
  for (uint64_t boxes = unpacker.number(); boxes > 0; --boxes) {
    Box box{read_dims(unpacker, axes), read_dims(unpacker, axes)};
    mentions_[rank].push_back({position, static_cast<uint32_t>(entry.chunks.size())});
    entry.chunks.push_back({std::move(box), {}});
    ranks_[position].push_back(rank);
  }
}

uint32_t GatheredShards::entry_of(std::string name) {
  const auto [at, is_new] =
      entries_.try_emplace(std::move(name), static_cast<uint32_t>(content_.entries.size()));
  if (is_new) {
    content_.entries.push_back({at->first, false, DType::f32, {}, {}, {}});
    ranks_.emplace_back();
  }
  return at->second;
}

// Keeps one of equal boxes. Returns the new position of each chunk, or kNotChosen.
std::vector<uint32_t> GatheredShards::choose(uint32_t position, std::vector<uint64_t>& loads) {
  DcpContent::Entry& entry = content_.entries[position];
  std::vector<DcpContent::Chunk>& chunks = entry.chunks;
  std::vector<uint32_t>& ranks = ranks_[position];
  std::vector<uint32_t> kept(chunks.size(), kNotChosen);
  if (entry.is_object) return kept;
  std::vector<uint32_t> order(chunks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return comes_before(chunks[a].box, chunks[b].box);
  });
  const bool is_empty = element_count(entry.shape, entry.name) == 0;
  std::vector<DcpContent::Chunk> chosen;
  for (auto next = order.begin(); next != order.end();) {
    const Box& box = chunks[*next].box;
    const auto end =
        std::find_if(next, order.end(), [&](uint32_t i) { return !(chunks[i].box == box); });
    const uint32_t least = *std::min_element(
        next, end, [&](uint32_t a, uint32_t b) { return loads[ranks[a]] < loads[ranks[b]]; });
    next = end;
    // Of a tensor without elements one box tells; others have no use for boxes without any.
    const int64_t elements = element_count(box.size, entry.name);
    if (is_empty ? !chosen.empty() : elements == 0) continue;
    loads[ranks[least]] += static_cast<uint64_t>(elements * size_bytes(entry.dtype));
    kept[least] = static_cast<uint32_t>(chosen.size());
    chosen.push_back(std::move(chunks[least]));
  }
  chunks = std::move(chosen);
  check_cover(entry);
  return kept;
}

// What each rank is told, and which chunk each of its places will be of.
void GatheredShards::keep_chosen(const std::vector<std::vector<uint32_t>>& kept) {
  for (size_t rank = 0; rank < mentions_.size(); ++rank) {
    for (Mention& one : mentions_[rank]) {
      if (content_.entries[one.entry].is_object) continue;
      one.chunk = kept[one.entry][one.chunk];
      chosen_[rank].push_back(one.chunk == kNotChosen ? '0' : '1');
    }
    std::erase_if(mentions_[rank], [](const Mention& one) { return one.chunk == kNotChosen; });
  }
  ranks_ = {};
}

void GatheredShards::set_places(const std::vector<std::string>& places) {
  content_.files.clear();
  manifest_.files.clear();
  size_t items = 0;
  for (const std::vector<Mention>& mentions : mentions_) items += mentions.size();
  const bool is_named = items <= kMostNamedItems;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    Unpacker unpacker(places[rank]);
    const size_t first_file = content_.files.size();
    for (uint64_t files = unpacker.count(); files > 0; --files) {
      content_.files.push_back(unpacker.text());
      manifest_.files.push_back({content_.files.back(), unpacker.number(), {}});
    }
    for (const Mention& one : mentions_[rank]) {
      DcpContent::Entry& entry = content_.entries[one.entry];
      const uint64_t file = first_file + unpacker.number();
      if (file >= content_.files.size()) {
        fail(ErrorKind::corrupt, "{}: rank {} has no file for it", entry.name, rank);
      }
      const uint64_t offset = unpacker.number(), length = unpacker.number();
      const uint64_t high = unpacker.number(), low = unpacker.number();
      ManifestItem item{offset, length, {high, low}, {}, {}};
      const DcpContent::Place place{static_cast<uint32_t>(file), offset, length, false};
      if (entry.is_object) {
        entry.place = place;
        item.object = entry.name;
      } else {
        entry.chunks[one.chunk].place = place;
        if (is_named) item.tensors.push_back({entry.name, entry.chunks[one.chunk].box});
      }
      manifest_.files[file].items.push_back(std::move(item));
    }
    unpacker.finish();
  }
  for (ManifestFile& file : manifest_.files) {
    std::sort(file.items.begin(), file.items.end(),
              [](const ManifestItem& a, const ManifestItem& b) { return a.offset < b.offset; });
  }
}

}  // namespace ferry
