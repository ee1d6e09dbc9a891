// What is known of a config.json's model_type beyond the families.
#pragma once

#include <string_view>

namespace ferry {

/// A type whose class in transformers computes what a family's does, from the same tensors.
struct SameType {
  std::string_view name;
  std::string_view family;
  /// What its config.json means where it is silent and the family's class means something else: a
  /// JSON object.
  std::string_view defaults = "{}";
};
/// Null for a type that is not known to be one.
const SameType* same_type(std::string_view name);

/// Whether a type, which is not a family's, is known to have a computation of its own: transformers
/// has a causal model of it, or it is known why Megatron-LM has none. Its config.json may not show
/// the difference: the class alone has it, as helium's interleaved rotary positions.
bool computes_otherwise(std::string_view name);

/// Why Megatron-LM cannot compute what models of that type do, as the end of a sentence; empty
/// where that is not known.
std::string_view why_not_in_megatron(std::string_view name);

/// The type, of those above, that a class is called by: "ernie4_5" of "Ernie4_5ForCausalLM". Empty
/// where there is none.
std::string_view type_of_class(std::string_view class_name);

}  // namespace ferry
