#include "ckpt/format/fsdp_ranks/dtensor.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr size_t kMostMeshAxes = 16;

[[noreturn]] void damaged(const std::string& what, std::string_view part) {
  fail(ErrorKind::corrupt, "{}: a DTensor or ShardedTensor without {} that can be read", what,
       part);
}

// The numbers of a tuple or list, those of tuples inside too: a mesh's axis may be several.
bool add_numbers(const Value& value, Dims& numbers, int depth = 0) {
  if (const auto number = value.integer(); number && value.kind() == ValueKind::integer) {
    if (*number < 0 || numbers.size() >= 64) return false;
    numbers.push_back(*number);
    return true;
  }
  if ((value.kind() != ValueKind::tuple && value.kind() != ValueKind::list) || depth > 4) {
    return false;
  }
  // Values may be shared: so a few bytes could stand for more empty tuples than can be counted,
  // whereas numbers are few.
  if (depth > 0 && value.size() == 0) return false;
  for (size_t i = 0; i < value.size(); ++i) {
    if (!add_numbers(value[i], numbers, depth + 1)) return false;
  }
  return true;
}

Dims numbers_of(const Value& value, const std::string& what, std::string_view part) {
  Dims numbers;
  if (value.is_none() || !add_numbers(value, numbers)) damaged(what, part);
  return numbers;
}

// Ranks along each axis: of a layout since PyTorch 2.9, of a tensor of ranks before.
Dims mesh_shape(const Value& mesh, const std::string& what) {
  if (const Value layout = mesh.get("_layout")) {
    return numbers_of(layout.get("shape"), what, "the shape of its mesh");
  }
  for (const char* member : {"mesh", "_mesh"}) {
    const Value ranks = mesh.get(member);
    if (const StoredTensor* tensor = ranks.tensor()) return tensor->shape;
  }
  damaged(what, "the shape of its mesh");
}

// torch.chunk's part of an axis: all but the last ones are as long as the first.
void cut(int64_t& offset, int64_t& size, int64_t ranks, int64_t rank) {
  const int64_t chunk = size / ranks + (size % ranks != 0);
  const int64_t begin = std::min(size, checked_multiply(chunk, rank, "DTensor"));
  size = std::min(chunk, size - begin);
  offset += begin;
}

class Spec {
 public:
  Spec(const Value& spec, const std::string& what) : what_(what) {
    const Value mesh = spec.get("mesh");
    ranks_ = mesh_shape(mesh, what);
    at_ = numbers_of(mesh.get("_coordinate_on_dim"), what, "its place in the mesh");
    placements_ = spec.get("placements");
    const bool sane = placements_.size() == ranks_.size() && at_.size() == ranks_.size() &&
                      ranks_.size() <= kMostMeshAxes;
    if (!sane) damaged(what, "a placement for each axis of its mesh");
    for (size_t axis = 0; axis < ranks_.size(); ++axis) {
      if (at_[axis] >= ranks_[axis]) damaged(what, "a place inside its mesh");
    }
  }

  void place(DTensorPart& part) const {
    part.box = Box::whole(part.shape);
    part.mesh_ranks = element_count(ranks_, what_);
    for (const size_t axis : cutting_order(part.shape.size())) {
      const Value placement = placements_[axis];
      const std::string& kind = placement.text();
      if (kind.ends_with(".Replicate")) {
        part.copy |= at_[axis] > 0;
      } else if (kind.ends_with(".Shard") || kind.ends_with("._StridedShard")) {
        const auto along = sharded_axis(placement, part.shape.size());
        cut(part.box.offset[along], part.box.size[along], ranks_[axis], at_[axis]);
      } else {
        fail(ErrorKind::unsupported,
             "{}: is spread by {}, which cannot be read; save a full state dict, or one of "
             "PyTorch's "
             "distributed checkpoint",
             what_, kind.empty() ? "something unknown" : kind);
      }
    }
  }

 private:
  // FSDP cuts the parts that tensor parallelism leaves, though its axis of the mesh comes first:
  // _StridedShard says so, with the number of those parts. It is cut after the later axes that cut
  // along the same axis of the tensor.
  std::vector<size_t> cutting_order(size_t axes) const {
    std::vector<size_t> order, strided;
    for (size_t axis = 0; axis < ranks_.size(); ++axis) {
      if (!placements_[axis].text().ends_with("._StridedShard")) {
        order.push_back(axis);
        continue;
      }
      const size_t along = sharded_axis(placements_[axis], axes);
      int64_t later = 1;
      for (size_t next = axis + 1; next < ranks_.size(); ++next) {
        const bool cuts = placements_[next].text().ends_with("Shard");
        if (!cuts || sharded_axis(placements_[next], axes) != along) continue;
        later = checked_multiply(later, ranks_[next], what_);
      }
      const auto parts = placements_[axis].get("split_factor").integer();
      if (parts != later) {
        fail(ErrorKind::unsupported,
             "{}: is spread by a _StridedShard over {} parts, where later axes of the mesh cut it "
             "into {}, which cannot be read; save a full state dict, or one of PyTorch's "
             "distributed checkpoint",
             what_, parts.value_or(0), later);
      }
      strided.push_back(axis);
    }
    order.insert(order.end(), strided.rbegin(), strided.rend());
    return order;
  }

  size_t sharded_axis(const Value& placement, size_t axes) const {
    const Value dim = placement.has("dim") ? placement.get("dim") : placement[0];
    const auto along = dim.integer();
    if (!along || *along < 0 || static_cast<size_t>(*along) >= axes) {
      damaged(what_, "an axis that it is sharded along");
    }
    return static_cast<size_t>(*along);
  }

  const std::string& what_;
  Dims ranks_, at_;
  Value placements_;
};

bool is_wrapped(const Value& value, std::string_view type) {
  return value.kind() == ValueKind::object && value.size() == 4 &&
         value.text().ends_with("._rebuild_from_type_v2") &&
         value[0].text().ends_with("._rebuild_wrapper_subclass") && value[1].text().ends_with(type);
}

// (ShardedTensor, dtype, size, ...), ([Shard {tensor, metadata {shard_offsets, shard_sizes}}], ...)
DTensorPart read_sharded_tensor(const Value& value, const std::string& what) {
  DTensorPart part;
  part.shape = numbers_of(value[2][2], what, "a shape");
  element_count(part.shape, what);
  const Value shards = value[3][0];
  if (shards.kind() != ValueKind::list) damaged(what, "a list of parts");
  if (shards.size() > 1) {
    fail(
        ErrorKind::unsupported,
        "{}: this rank holds {} parts of it, where one can be read; save a full state dict, or one "
        "of PyTorch's distributed checkpoint",
        what, shards.size());
  }
  if (shards.size() == 0) return part;
  part.local = shards[0].get("tensor").tensor();
  if (part.local == nullptr) damaged(what, "a part of its own");
  const Value place = shards[0].get("metadata");
  part.box.offset = numbers_of(place.get("shard_offsets"), what, "a place");
  part.box.size = numbers_of(place.get("shard_sizes"), what, "a size");
  bool inside = part.box.offset.size() == part.shape.size() &&
                part.box.size.size() == part.shape.size() && part.local->shape == part.box.size;
  for (size_t axis = 0; inside && axis < part.shape.size(); ++axis) {
    inside = part.box.size[axis] <= part.shape[axis] &&
             part.box.offset[axis] <= part.shape[axis] - part.box.size[axis];
  }
  if (inside) return part;
  fail(ErrorKind::corrupt, "{}: this rank holds {} as {} of {}; the file is damaged", what,
       to_string(part.local->shape), to_string(part.box), to_string(part.shape));
}

}  // namespace

// _rebuild_from_type_v2(_rebuild_wrapper_subclass, DTensor, (DTensor, dtype, size, stride, ...),
// (None, {"_local_tensor": ..., "_spec": ...}))
std::optional<DTensorPart> read_dtensor(const Value& value, const std::string& what) {
  if (is_wrapped(value, ".ShardedTensor")) return read_sharded_tensor(value, what);
  if (!is_wrapped(value, ".DTensor")) return std::nullopt;
  const Value state = value[3].kind() == ValueKind::tuple ? value[3][1] : value[3];
  DTensorPart part;
  part.local = state.get("_local_tensor").tensor();
  if (part.local == nullptr) damaged(what, "a part of its own");
  part.shape = numbers_of(value[2][2], what, "a shape");
  element_count(part.shape, what);
  Spec(state.get("_spec"), what).place(part);
  if (part.local->shape != part.box.size) {
    fail(ErrorKind::corrupt,
         "{}: this rank holds {}, but mesh and placements give it {} of {}; the file is damaged or "
         "of another run",
         what, to_string(part.local->shape), to_string(part.box), to_string(part.shape));
  }
  return part;
}

}  // namespace ferry
