// Adapters inside checkpoints: small trained tensors next to a model's own, which stay frozen.
//
// What saves a wrapped model as it is (FSDP, DeepSpeed, DCP, torch.save, save_pretrained()) writes
// both. PEFT's names, as nested as its wrappers:
//
//   base_model.model.<module>.base_layer.weight              the model's own
//   base_model.model.<module>.lora_A.<adapter>.weight        [rank, in]; lora_B: [out, rank]
//   base_model.model.<module>.lora_magnitude_vector.<adapter>.weight       DoRA's
//   base_model.model.<module>.original_module.weight         the model's own, and
//   base_model.model.<module>.modules_to_save.<adapter>.weight   what was trained in its place
//
// Around 3-D parameters of fused experts lora_A is [rank * experts, in]. PEFT's adapter files leave
// <adapter> out; older versions have no base_layer. Megatron Bridge writes
// <module>.adapter.linear_in.weight [rank, in] and linear_out [out, rank] with the axes of layers
// and experts in front; torchtune lora_a, lora_b, magnitude.
//
// Source: PEFT 0.21 (tuners/lora, utils/other.py), Megatron Bridge 0.6 (peft/), torchtune
// (modules/peft/lora.py).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/summary.h"

namespace ferry {

enum class AdapterPart : uint8_t {
  none,         // the model's own
  factor_in,    // of two that are multiplied, that of the module's input: lora_A
  factor_out,   // lora_B
  magnitude,    // DoRA's
  replacement,  // trained in place of the module's own: modules_to_save
  other,        // of another method
};

struct AdapterTensor {
  AdapterPart part = AdapterPart::none;
  /// The tensor's own name where it is the model's: without base_model.model and base_layer.
  /// Otherwise the module that it adapts, so named, too.
  std::string name;
  std::string kind;      // "lora_", "linear_", "ia3_l": what belongs together, or the method
  std::string adapter;   // "default"; empty: not named
  bool wrapped = false;  // the model's own, inside a wrapper
};

/// What each entry of a catalog is, by its name and those of the others. Optimizer state goes with
/// its tensor, whose name it has here.
std::vector<AdapterTensor> adapter_tensors(const Catalog& catalog);

/// A name of the model's own tensor without what wrappers put into it, adapters' and PyTorch's.
std::string name_without_wrappers(std::string_view name);

/// The modules that a name stands in, from the outermost; of a name as deep as no model's, none.
std::vector<std::string_view> modules_around(std::string_view name);

/// Among the tensors of Role::model that `tensors` (of each entry of `catalog`) says are an
/// adapter's.
AdapterSummary summarise(const Catalog& catalog, const std::vector<AdapterTensor>& tensors);

/// Whether there is one, or its wrappers.
bool has_adapter(const Catalog& catalog);

/// "LoRA of rank 4 on q_proj, v_proj"; of several adapters or ranks, all.
std::string to_text(const AdapterSummary& adapter);

}  // namespace ferry
