#include "ckpt/memory/saving/gathered_shards.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "ckpt/base/box.h"
#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"

namespace ferry {
namespace {

// Beyond this many, the manifest has only places and digests: it would be too large to be read.
constexpr size_t kMostNamedItems = 1'000'000;

// True when, in the flattened tensor, each box ends before the next one begins: no two of them
// overlap then. Boxes of ranks that share a tensor by rows do.
bool follow_one_another(const DcpContent::Entry& entry) {
  const Dims strides = row_major_strides(entry.shape);
  int64_t end = 0;
  for (const DcpContent::Chunk& chunk : entry.chunks) {
    int64_t first = 0, last = 0;
    for (size_t axis = 0; axis < strides.size(); ++axis) {
      first += chunk.box.offset[axis] * strides[axis];
      last += (chunk.box.offset[axis] + chunk.box.size[axis] - 1) * strides[axis];
    }
    if (first < end) return false;
    end = last + 1;
  }
  return true;
}

void check_no_overlap(const DcpContent::Entry& entry) {
  if (follow_one_another(entry)) return;
  std::vector<Box> boxes;
  for (const DcpContent::Chunk& chunk : entry.chunks) boxes.push_back(chunk.box);
  if (const auto overlap = find_overlap(boxes)) {
    fail(ErrorKind::invalid,
         "the regions of all ranks do not make whole tensors: tensor {}: {} overlaps {}",
         entry.name, to_string(boxes[overlap->first]), to_string(boxes[overlap->second]));
  }
}

// That the boxes, sorted and no two of them equal, cover the tensor exactly once.
void check_cover(const DcpContent::Entry& entry) {
  int64_t covered = 0;
  for (const DcpContent::Chunk& chunk : entry.chunks) {
    if (!is_inside(chunk.box, entry.shape)) {
      fail(ErrorKind::invalid, "tensor {}: {} is not inside its shape {}", entry.name,
           to_string(chunk.box), to_string(entry.shape));
    }
    covered = checked_add(covered, element_count(chunk.box.size, entry.name), entry.name);
  }
  check_no_overlap(entry);
  if (covered == element_count(entry.shape, entry.name)) return;
  fail(ErrorKind::invalid,
       "the regions of all ranks do not make whole tensors: tensor {} of shape {}: they hold {} of "
       "{} elements",
       entry.name, to_string(entry.shape), covered, element_count(entry.shape, entry.name));
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
    const auto [position, is_new] = entry_of(unpacker.text_view());
    DcpContent::Entry& entry = content_.entries[position];
    if (!is_new) {
      fail(ErrorKind::invalid, "{} is given twice, the second time by rank {}", entry.name, rank);
    }
    entry.is_object = true;
    mentions_[rank].push_back({position, 0});
  }
  unpacker.finish();
}

void GatheredShards::read_tensor(uint32_t rank, Unpacker& unpacker) {
  const auto [position, is_new] = entry_of(unpacker.text_view());
  DcpContent::Entry& entry = content_.entries[position];
  Given& given = given_[position];
  const auto dtype = unpacker.choice(DType::f4x2);
  const uint64_t axes = unpacker.count();
  Dims shape(axes);
  for (int64_t& extent : shape) extent = static_cast<int64_t>(unpacker.number());
  if (is_new) {
    entry.dtype = dtype;
    entry.shape = shape;
  } else if (entry.is_object || entry.dtype != dtype || entry.shape != shape) {
    fail(ErrorKind::invalid, "tensor {} is given as {} {} and, by rank {}, as {} {}", entry.name,
         torch_name(entry.dtype), to_string(entry.shape), rank, torch_name(dtype),
         to_string(shape));
  }
  const uint64_t box_bytes = std::max<uint64_t>(1, 2 * axes);
  for (uint64_t boxes = unpacker.count(box_bytes); boxes > 0; --boxes) {
    for (uint64_t i = 0; i < 2 * axes; ++i) {
      given.boxes.push_back(static_cast<int64_t>(unpacker.number()));
    }
    mentions_[rank].push_back({position, static_cast<uint32_t>(given.ranks.size())});
    given.ranks.push_back(rank);
  }
}

std::pair<uint32_t, bool> GatheredShards::entry_of(std::string_view name) {
  const auto known = entries_.find(name);
  if (known != entries_.end()) return {known->second, false};
  const auto position = static_cast<uint32_t>(content_.entries.size());
  entries_.emplace(name, position);
  content_.entries.push_back({std::string(name), false, DType::f32, {}, {}, {}});
  given_.emplace_back();
  return {position, true};
}

// Keeps one of equal boxes, sorted. Returns the new position of each, or kNotChosen.
std::vector<uint32_t> GatheredShards::choose(uint32_t position, std::vector<uint64_t>& loads) {
  DcpContent::Entry& entry = content_.entries[position];
  const Given given = std::move(given_[position]);
  std::vector<uint32_t> kept(given.ranks.size(), kNotChosen);
  if (entry.is_object) return kept;
  const size_t axes = entry.shape.size();
  const auto numbers = [&](uint32_t i) {
    return std::span(given.boxes).subspan(i * 2 * axes, 2 * axes);
  };
  const auto comes_before = [&](uint32_t a, uint32_t b) {
    return std::ranges::lexicographical_compare(numbers(a), numbers(b));
  };
  std::vector<uint32_t> order(given.ranks.size());
  std::iota(order.begin(), order.end(), 0);
  if (!std::is_sorted(order.begin(), order.end(), comes_before)) {
    std::stable_sort(order.begin(), order.end(), comes_before);
  }
  const bool is_empty = element_count(entry.shape, entry.name) == 0;
  entry.chunks.reserve(order.size());
  for (auto next = order.begin(); next != order.end();) {
    const auto first = numbers(*next);
    const auto end = std::find_if(
        next, order.end(), [&](uint32_t i) { return !std::ranges::equal(numbers(i), first); });
    const uint32_t least = *std::min_element(next, end, [&](uint32_t a, uint32_t b) {
      return loads[given.ranks[a]] < loads[given.ranks[b]];
    });
    next = end;
    const auto middle = first.begin() + static_cast<std::ptrdiff_t>(axes);
    Box box{Dims(first.begin(), middle), Dims(middle, first.end())};
    // A tensor without elements is described by one box; others need no empty boxes.
    const int64_t elements = element_count(box.size, entry.name);
    if (is_empty ? !entry.chunks.empty() : elements == 0) continue;
    loads[given.ranks[least]] += static_cast<uint64_t>(elements * size_bytes(entry.dtype));
    kept[least] = static_cast<uint32_t>(entry.chunks.size());
    entry.chunks.push_back({std::move(box), {}});
  }
  check_cover(entry);
  return kept;
}

// What is sent to each rank, and the chunk of each of its places.
void GatheredShards::keep_chosen(const std::vector<std::vector<uint32_t>>& kept) {
  for (size_t rank = 0; rank < mentions_.size(); ++rank) {
    for (Mention& one : mentions_[rank]) {
      if (content_.entries[one.entry].is_object) continue;
      one.chunk = kept[one.entry][one.chunk];
      chosen_[rank].push_back(one.chunk == kNotChosen ? '0' : '1');
    }
    std::erase_if(mentions_[rank], [](const Mention& one) { return one.chunk == kNotChosen; });
  }
  given_ = {};
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
    if (content_.files.size() == first_file + 1) {
      manifest_.files[first_file].items.reserve(mentions_[rank].size());
    }
    for (const Mention& one : mentions_[rank]) {
      DcpContent::Entry& entry = content_.entries[one.entry];
      const uint64_t file = first_file + unpacker.number();
      if (file >= content_.files.size()) {
        fail(ErrorKind::corrupt, "{}: rank {} has no file for it", entry.name, rank);
      }
      const uint64_t offset = unpacker.number(), length = unpacker.number();
      ManifestItem item{offset, length, unpacker.digest(), {}, {}};
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
    const auto by_offset = [](const ManifestItem& a, const ManifestItem& b) {
      return a.offset < b.offset;
    };
    if (!std::is_sorted(file.items.begin(), file.items.end(), by_offset)) {
      std::sort(file.items.begin(), file.items.end(), by_offset);
    }
  }
}

}  // namespace ferry
