#include "ckpt/megatron/optimizer/buckets/buffer_state.h"

#include <utility>

#include "ckpt/base/error.h"

namespace ferry {

BufferState::BufferState(const ModelBuffer& buffer, StateParts& parts)
    : buffer_(buffer), parts_(parts), members_(parameters_of_buckets(buffer.flat)) {}

StateTensor BufferState::gather(size_t kind, size_t begin, size_t end, std::string name) {
  FlatRecipe flat;
  dtype_.reset();
  for (size_t bucket = begin; bucket < end; ++bucket) {
    const int64_t start = flat.elements();
    for (const size_t parameter : members_[bucket]) {
      flat.append_zeros(start + buffer_.flat.places[parameter].begin - flat.elements());
      append(kind, parameter, flat);
    }
    flat.append_zeros(start + buffer_.flat.buckets[bucket].unpadded - flat.elements());
  }
  const Dims shape{flat.elements()};
  return {std::move(name), dtype_.value_or(DType::f32), shape, std::move(flat).take(),
          Role::optimizer};
}

void BufferState::append(size_t kind, size_t parameter, FlatRecipe& flat) {
  const LocalParameter& local = buffer_.parameters[parameter];
  for (const Shard& shard : local.shards) {
    const StateParts::Part& part = parts_.optimizer(kind, shard.tensor);
    agree_on_dtype(part);
    parts_.append(part, shard, !local.first_copy, flat);
  }
}

void BufferState::agree_on_dtype(const StateParts::Part& part) {
  const DType stored = part.of_model ? DType::f32 : part.tensor->dtype;
  if (dtype_.value_or(stored) != stored) {
    fail(ErrorKind::unsupported, "{} is {}, other state of its flat buffer is {}",
         part.tensor->name, torch_name(stored), torch_name(*dtype_));
  }
  dtype_ = stored;
}

}  // namespace ferry
