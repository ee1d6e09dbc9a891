// Which of Megatron-LM's modules a model was built from.
#pragma once

#include <cstdint>

namespace ferry {

struct RunArguments;

/// What neither names nor arguments decide about the modules that were used.
struct ModuleChoice {
  enum class Experts : uint8_t {
    sequential,     // all of expert 0, all of expert 1, ...
    grouped,        // fc1 of every expert (weight and bias of each), then fc2
    grouped_apart,  // as grouped, but all weights of a projection before its biases
  };
  bool norms_in_linears = false;   // linear_qkv registers the norm before it (Transformer Engine)
  bool split_latent_down = false;  // MLA down-projections are column parallel (local modules)
  Experts experts = Experts::sequential;
  bool operator==(const ModuleChoice&) const = default;
};

/// What Megatron-LM builds today from these arguments.
ModuleChoice default_modules(const RunArguments& run);

}  // namespace ferry
