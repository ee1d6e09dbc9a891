// Any checkpoint's tensors as safetensors files, under their own names and unconverted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ckpt/core/catalog.h"
#include "ckpt/core/plan.h"
#include "ckpt/format/hugging_face/hugging_face_layout.h"

namespace ferry {

struct SafetensorsOptions {
  bool optimizer = false;      // the optimizer's tensors too
  std::optional<DType> dtype;  // of floating-point tensors
  uint64_t max_shard_bytes = kDefaultMaxShardBytes;
};

struct SafetensorsExport {
  Plan plan;               // what is not written is named as dropped
  std::string index_json;  // empty when there is one shard
  ParameterCount count;    // of what is written
};

/// not_found when there is no tensor to write; unsupported where weights of 8 bits with scales
/// would get another dtype; as lay_out_hugging_face otherwise.
SafetensorsExport plan_safetensors(const SharedCatalog& source, const SafetensorsOptions& options);

}  // namespace ferry
