// The forms that weights are quantised to: one row each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ckpt/core/plan_quantised.h"

namespace ferry {

/// Tensors of a weight `NAME.weight` are NAME with these ends; an empty one is not there.
struct WrittenForm {
  std::string_view name;
  QuantiseRule rule;
  int64_t rows = 1, columns = 1;  // of what has one scale; 0: all
  std::string_view codes_end, scales_end, global_end = {}, zeros_end = {}, shape_end = {},
                                          input_end = {};
  bool is_strict = true;           // rows must be whole groups of columns
  bool is_global_scalar = false;   // the second scale has no axes; else one of one element
  bool has_shared_global = false;  // projections of one input have one second scale
  bool takes_fused = false;        // experts in one tensor, and nothing else
};

std::span<const WrittenForm> written_forms();

}  // namespace ferry
