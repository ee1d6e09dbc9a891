// In which order transformers' models list their parameters (model.parameters()), which is how
// optimizers of PyTorch count them.
//
// Source: transformers/models/*/modeling_*.py of 5.23 (the order in which modules are made, the
// same for all families here but for routers, which stand before or after experts, and experts,
// which were modules of their own before 5).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/base/box.h"

namespace ferry {

struct CountedParameter {
  std::string name;  // transformers'
  Dims shape;
};

/// What releases differ in.
struct ListingForm {
  bool fused_experts = true;  // in one tensor a layer: experts.gate_up_proj, experts.down_proj
  bool router_first = false;  // before the experts
  bool norms_first = false;   // of queries and keys, right after the projection of queries
};

/// `stored`: the tensors of a model's file, under its own names, in any order. Buffers are left
/// out. unsupported, with `path`, when a tensor has a name whose place is not known.
std::vector<CountedParameter> listed_parameters(std::vector<CountedParameter> stored,
                                                ListingForm form, const std::string& path);

/// Whether transformers' Trainer decays a parameter: no bias, and no norm's weight.
bool is_decayed_by_name(std::string_view name);

}  // namespace ferry
