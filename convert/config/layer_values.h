// Lists of config.json that have one value a layer.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <vector>

#include "ckpt/megatron/model/architecture.h"

namespace ferry {

/// of(layer) of each layer.
template <typename Of>
auto layer_values(const Architecture& a, Of of) {
  std::vector<std::invoke_result_t<Of, int64_t>> values;
  for (int64_t layer = 0; layer < a.layers; ++layer) values.push_back(of(layer));
  return values;
}

/// Whether `list` has a value for each layer.
inline bool is_of_layers(const nlohmann::json& list, const Architecture& a) {
  return list.is_array() && static_cast<int64_t>(list.size()) == a.layers;
}

/// What `layer_types` says of each layer: "linear_attention", "sliding_attention" with a window,
/// "indexed_attention" where there are indexers, or "full_attention".
inline nlohmann::json attention_types(const Architecture& a) {
  return layer_values(a, [&](int64_t layer) {
    return a.is_linear(layer)    ? "linear_attention"
           : a.has_window(layer) ? "sliding_attention"
           : a.index_heads > 0   ? "indexed_attention"
                                 : "full_attention";
  });
}

}  // namespace ferry
