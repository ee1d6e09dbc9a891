// The parameters of one model chunk of one rank, by name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ckpt/megatron/model/architecture.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/memory/region.h"
#include "kernels/array.h"
#include "kernels/kernels.h"

namespace ferry {

class Float8Linear;
class Float8State;

/// The kernels' type for a dtype. unsupported, naming `what`, if it cannot be trained.
kernels::Type kernel_type(DType dtype, std::string_view what);

/// A parameter's memory: this rank's part, in row-major order.
struct Parameter {
  kernels::Array value;
  kernels::Array gradient;  // of all micro-batches so far; null for a buffer
  int64_t elements = 0;
  /// Whether this step has set the gradient: until then `gradient` holds the last step's. Null:
  /// always set.
  bool* has_gradient = nullptr;

  /// Where the next operation writes a part of the gradient: a step's first one sets it.
  kernels::Gradient take_gradient() const {
    return {gradient, has_gradient == nullptr || std::exchange(*has_gradient, true)};
  }
  /// The same for an operation that can only accumulate.
  kernels::Array take_cleared_gradient(kernels::Kernels& kernels) const;

  explicit operator bool() const noexcept { return elements > 0; }
};

/// Names are canonical: "decoder.layers.<layer>.<suffix>" with the number of the layer in the
/// model, "...mlp.experts.experts.<expert>.<suffix>" with that of the expert, and norms as separate
/// modules ("input_layernorm.weight"), however the checkpoint stacks and names them.
class ParameterSet {
 public:
  void add(const std::string& name, const Parameter& parameter);

  /// internal if there is none or it has another number of elements.
  Parameter get(const std::string& name, int64_t elements) const;
  /// The same, but it may be missing.
  Parameter find(const std::string& name, int64_t elements) const;
  bool has(const std::string& name) const { return parameters_.contains(name); }
  /// FP8 linear layers are added to it; null: there are none.
  void set_float8(Float8State* state) { float8_ = state; }
  /// The FP8 form of a linear layer, by its name without ".weight", with as many weights; null: it
  /// computes in the model's type.
  Float8Linear* float8(const std::string& name, int64_t in, int64_t out, int64_t weights = 1) const;
  /// The name of a parameter that was never requested; empty if there is none.
  std::string first_unused() const;
  /// 0 if there is none.
  int64_t elements(const std::string& name) const {
    const auto found = parameters_.find(name);
    return found == parameters_.end() ? 0 : found->second.elements;
  }

 private:
  std::unordered_map<std::string, Parameter> parameters_;
  mutable std::unordered_set<std::string> used_;
  Float8State* float8_ = nullptr;
};

/// The canonical name of a rank's parameter.
std::string canonical_name(const ModelLayout& layout, const LocalParameter& parameter);

// Initial weights.
//
// Source: Megatron-LM, core/utils.py (init_method_normal, scaled_init_method_normal); GPT-2's
// scaling of outputs into the residual stream; swiss-ai/Megatron-LM for xIELU.

/// Initializes parts of the model's tensors. Each element is a function of the seed, its tensor's
/// name and its place in the whole tensor, independent of the layout.
void initialize(kernels::Kernels& kernels, std::span<const Region> regions,
                const Architecture& architecture, int64_t seed);

}  // namespace ferry
