#include "convert/model/stacking.h"

#include <utility>

#include "ckpt/megatron/model/attention_kinds.h"
#include "ckpt/megatron/model/hybrid_layers.h"
#include "ckpt/megatron/model/parameter_names.h"

namespace ferry {

StackPlace stack_place(const std::string& canonical, const Architecture& a) {
  StackPlace place{a.is_hybrid() ? hybrid_spelling(canonical) : canonical, {}, {}};
  const bool are_alike =
      (a.experts == 0 || a.all_moe()) && !a.any_linear() && a.index_every == 1 && !a.doubles_ffn;
  const bool stacks_layers = !a.numbers_layers && !a.is_hybrid() && are_alike;
  GlobalName global = global_name(place.name, stacks_layers, a.layers, attention_kinds(a));
  place.name = std::move(global.name);
  if (global.layer_axis) {
    place.at.push_back(global.place);
    place.extents.push_back(global.stack);
  }
  if (global.expert_axis) {
    place.at.push_back(global.expert);
    place.extents.push_back(a.experts);
  }
  return place;
}

}  // namespace ferry
