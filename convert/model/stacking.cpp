#include "convert/model/stacking.h"

#include <utility>

#include "ckpt/megatron/model/attention_kinds.h"
#include "ckpt/megatron/model/hybrid_layers.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "convert/model/megatron_model.h"
#include "convert/model/numbered_name.h"

namespace ferry {
namespace {

void stack(StackPlace& place, std::string_view before, int64_t extent) {
  auto numbered = take_number(place.name, before);
  if (!numbered) return;
  place.name = std::move(numbered->without);
  place.at.push_back(numbered->number);
  place.extents.push_back(extent);
}

}  // namespace

StackPlace stack_place(const std::string& canonical, const Architecture& a) {
  StackPlace place{a.is_hybrid() ? hybrid_spelling(canonical) : canonical, {}, {}};
  const bool are_alike =
      (a.experts == 0 || a.all_moe()) && !a.any_linear() && a.index_every == 1 && !a.doubles_ffn;
  const bool stacks_layers = !a.numbers_layers && !a.is_hybrid() && are_alike;
  if (a.attention_by_kind) {
    GlobalName global = global_name(place.name, stacks_layers, a.layers, attention_kinds(a));
    place.name = std::move(global.name);
    if (global.layer_axis) {
      place.at = {global.place};
      place.extents = {global.stack};
    }
    return place;
  }
  if (stacks_layers) stack(place, kLayersPrefix, a.layers);
  stack(place, kExpertsInfix, a.experts);
  return place;
}

}  // namespace ferry
