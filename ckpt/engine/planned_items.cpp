#include "ckpt/engine/planned_items.h"

#include <algorithm>
#include <cstring>

#include "ckpt/base/error.h"
#include "ckpt/core/item_index.h"
#include "ckpt/engine/items/item_stream.h"
#include "ckpt/engine/tiles/tile_cut.h"

namespace ferry {

PlannedItems::PlannedItems(const Plan& plan) : plan_(plan), parts_(plan.items.size()) {
  const ItemIndex index(plan.items);
  const auto add = [&](uint32_t file, uint64_t length, const Part& part) {
    if (length == 0) return;
    const auto item = index.find(file, part.offset, length);
    if (!item) fail(ErrorKind::internal, "bytes of the target belong to no item");
    parts_[*item].push_back(part);
  };
  for (const Literal& literal : plan.literals) {
    add(literal.file, literal.bytes.size(), {literal.offset, &literal, 0, nullptr});
  }
  for (uint32_t i = 0; i < plan.target.entries.size(); ++i) {
    for (const Chunk& chunk : plan.target.entries[i].chunks) {
      add(chunk.extent.file, chunk.extent.length, {chunk.extent.offset, nullptr, i, &chunk});
    }
  }
  for (std::vector<Part>& parts : parts_) {
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.offset < b.offset; });
  }
}

PlannedItemReader::PlannedItemReader(const PlannedItems& items, TensorSource& source,
                                     uint64_t part_bytes)
    : items_(items), part_bytes_(part_bytes), reader_(source) {}

void PlannedItemReader::read(uint32_t number, const Consume& consume) {
  const Item& item = items_.plan().items[number];
  ItemStream stream(item);
  const auto pass = [&](std::span<std::byte> bytes) {
    stream.pass(bytes);
    consume(bytes);
  };
  for (const PlannedItems::Part& part : items_.parts(number)) {
    if (part.offset != stream.position()) {
      fail(ErrorKind::internal, "an item has a hole, or parts that overlap");
    }
    part.literal ? read_literal(*part.literal, pass) : read_chunk(part, pass);
  }
  if (stream.position() != item.offset + item.length)
    fail(ErrorKind::internal, "an item is not filled");
}

void PlannedItemReader::read_literal(const Literal& literal, const Pass& pass) {
  for (auto left = std::as_bytes(std::span(literal.bytes)); !left.empty();) {
    const auto copy = buffer_.take(std::min<uint64_t>(part_bytes_, left.size()));
    std::memcpy(copy.data(), left.data(), copy.size());
    left = left.subspan(copy.size());
    pass(copy);
  }
}

void PlannedItemReader::read_chunk(const PlannedItems::Part& part, const Pass& pass) {
  const Entry& entry = items_.plan().target.entries[part.entry];
  const int64_t size = size_bytes(entry.dtype);
  const int64_t most = std::max<int64_t>(1, static_cast<int64_t>(part_bytes_) / size);
  for (const Box& box : cut_into_tiles(part.chunk->box.size, most)) {
    const auto bytes =
        buffer_.take(static_cast<uint64_t>(element_count(box.size, entry.name) * size));
    reader_.read(part.entry, *part.chunk, box, bytes);
    pass(bytes);
  }
}

}  // namespace ferry
