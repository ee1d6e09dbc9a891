// Lays tensors out into the safetensors files of a Hugging Face folder.
//
// One shard is model.safetensors; more are model-00001-of-0000N.safetensors with a
// model.safetensors.index.json. Tensors keep their order: a new shard begins where the next tensor
// would pass the limit, and a tensor above the limit has a shard of its own.
//
// Source: huggingface_hub serialization/_base.py (packing), transformers modeling_utils (names,
// index, metadata).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/core/plan.h"
#include "ckpt/format/hugging_face/parameter_count.h"

namespace ferry {

inline constexpr uint64_t kDefaultMaxShardBytes = 5'000'000'000;

struct HuggingFaceLayout {
  Catalog target;                 // entries in the given order, each one raw chunk; file names
  std::vector<Literal> literals;  // the header of each file
  std::string index_json;         // empty when there is one shard
  uint64_t tensor_bytes = 0;      // of all tensors; the index's total_size
  ParameterCount count;           // its parameters are the index's total_parameters
};

inline constexpr const char* kSafetensorsIndexName = "model.safetensors.index.json";

/// Places `entries` (name, dtype, shape and role are used; chunks are replaced). `max_shard_bytes`
/// bounds the tensor bytes of a shard. invalid when it is 0 or two names are equal; unsupported for
/// what safetensors cannot hold. `known_bits`: as quantised_parts().
HuggingFaceLayout lay_out_hugging_face(std::vector<Entry> entries,
                                       uint64_t max_shard_bytes = kDefaultMaxShardBytes,
                                       int64_t known_bits = 0);

}  // namespace ferry
