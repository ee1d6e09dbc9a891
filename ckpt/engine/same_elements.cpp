// Comparing two tensors of one catalog, part by part.
#include <algorithm>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/engine/engine.h"
#include "ckpt/engine/tensor_reader.h"
#include "ckpt/engine/tiles/tile_cut.h"

namespace ferry {
namespace {

constexpr uint64_t kMostComparedBytes = 4 << 20;
constexpr uint64_t kBuffers = 6;  // both parts, and what a reader holds of either side

// The entry's elements as a tensor of `plan`.
void add(Plan& plan, const Catalog& catalog, const Entry& entry) {
  const auto position = static_cast<size_t>(&entry - catalog.entries.data());
  if (position >= catalog.entries.size()) {
    fail(ErrorKind::internal, "tensor {} is not one of the catalog's own entries", entry.name);
  }
  Recipe recipe;
  recipe.inputs.push_back(static_cast<uint32_t>(position));
  recipe.moves.push_back(copy_all(entry.shape));
  add_read_tensor(plan, entry.name, entry.dtype, entry.shape, std::move(recipe));
}

}  // namespace

bool same_elements(const Catalog& catalog, const Entry& a, const Entry& b, uint64_t memory_bytes) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  if (&a == &b || a.elements() == 0) return true;
  Plan plan;
  plan.source = SharedCatalog::borrow(catalog);
  add(plan, catalog, a);
  add(plan, catalog, b);
  TensorSource source(plan, stream_memory(catalog, memory_bytes), 1);
  TensorReader reader(source);
  const auto element_bytes = static_cast<uint64_t>(size_bytes(a.dtype));
  const uint64_t part_bytes =
      std::clamp(memory_bytes / kBuffers, element_bytes, kMostComparedBytes);
  const auto most = static_cast<int64_t>(part_bytes / element_bytes);
  std::vector<std::byte> parts[2];
  for (const Box& box : cut_into_tiles(a.shape, most)) {
    const auto bytes = static_cast<size_t>(element_count(box.size, a.name)) * element_bytes;
    for (const size_t i : {0, 1}) {
      parts[i].resize(bytes);
      reader.read(i, plan.target.entries[i].chunks[0], box, parts[i]);
    }
    if (parts[0] != parts[1]) return false;
  }
  return true;
}

}  // namespace ferry
