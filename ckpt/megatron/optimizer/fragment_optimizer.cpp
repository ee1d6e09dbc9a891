#include "ckpt/megatron/optimizer/fragment_optimizer.h"

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"

namespace ferry {
namespace {

// Size of one fragment; nothing when the stored shape is not one of fragments of `shape`.
bool fragment_size(const Dims& stored, const Dims& shape, Dims& fragment) {
  if (stored.size() != shape.size() + 1) return false;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (stored[axis] <= 0 || shape[axis] % stored[axis] != 0) return false;
    fragment.push_back(shape[axis] / stored[axis]);
  }
  return element_count(fragment, "fragment of an optimizer tensor") == stored.back();
}

void add_chunk(const Chunk& chunk, std::string_view state, DType dtype, const Dims& fragment,
               uint32_t tensor, OptimizerEntries& entries) {
  const size_t axes = fragment.size();
  const int64_t begin = chunk.box.offset[axes], count = chunk.box.size[axes];
  const int64_t fragments =
      element_count(Dims(chunk.box.size.begin(), chunk.box.size.end() - 1), "fragments");
  constexpr int64_t kMostFragments = int64_t{1} << 20;  // of one chunk; Megatron-LM writes one
  if (fragments > kMostFragments) {
    fail(ErrorKind::unsupported, "a chunk of {} fragments of optimizer state", fragments);
  }
  Dims which(axes, 0);  // a fragment of the chunk's box
  Extent extent = chunk.extent;
  while (true) {
    Box box{Dims(axes), fragment};
    for (size_t axis = 0; axis < axes; ++axis) {
      box.offset[axis] = (chunk.box.offset[axis] + which[axis]) * fragment[axis];
    }
    entries.add(state, dtype, tensor, box, begin, count, extent, fragments > 1);
    extent.payload_offset += static_cast<uint64_t>(count) * size_bytes(dtype);
    size_t axis = axes;
    while (axis > 0 && ++which[axis - 1] == chunk.box.size[axis - 1]) which[--axis] = 0;
    if (axis == 0) return;
  }
}

}  // namespace

void add_fragments(const Entry& stored, std::string_view state, const ModelTensor& model,
                   uint32_t tensor, OptimizerEntries& entries) {
  Dims fragment;
  if (!fragment_size(stored.shape, model.shape, fragment)) {
    fail(ErrorKind::mismatch,
         "{} has shape {}, which is neither that of the parameter, {}, nor of fragments of it",
         stored.name, to_string(stored.shape), to_string(model.shape));
  }
  for (const Chunk& chunk : stored.chunks) {
    if (chunk.is_run() || !chunk.strides.empty() || !is_inside(chunk.box, stored.shape)) {
      fail(ErrorKind::corrupt, "{}: chunk {} is not a range of fragments", stored.name,
           to_string(chunk.box));
    }
    if (element_count(chunk.box.size, stored.name) == 0) continue;
    add_chunk(chunk, state, stored.dtype, fragment, tensor, entries);
  }
}

}  // namespace ferry
