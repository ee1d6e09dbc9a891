#include "ckpt/checkpoint.h"

namespace ferry {

std::string_view name(Format format) noexcept {
  switch (format) {
    case Format::torch_dist:
      return "torch_dist";
    case Format::dcp:
      return "dcp";
    case Format::fsdp_dtensor:
      return "fsdp_dtensor";
    case Format::torch_dcp:
      return "torch_dcp";
    case Format::megatron_torch:
      return "torch";
    case Format::nemo:
      return "nemo";
    case Format::hugging_face:
      return "hf";
    case Format::safetensors:
      return "safetensors";
    case Format::torch_file:
      return "pt";
    case Format::fsdp:
      return "fsdp";
    case Format::deepspeed:
      return "deepspeed";
  }
  return "?";
}

std::string_view name(OptimizerLayout layout) noexcept {
  switch (layout) {
    case OptimizerLayout::none:
      return "none";
    case OptimizerLayout::fully_reshardable:
      return "fully_reshardable";
    case OptimizerLayout::dp_reshardable:
      return "dp_reshardable";
    case OptimizerLayout::fully_sharded_model_space:
      return "fully_sharded_model_space";
    case OptimizerLayout::legacy_distributed:
      return "legacy_distributed";
    case OptimizerLayout::fsdp_dtensor:
      return "fsdp_dtensor";
    case OptimizerLayout::plain:
      return "plain";
  }
  return "?";
}

}  // namespace ferry
