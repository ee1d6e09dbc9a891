// The prefix under which a state dict holds a model: "model." of "model.lm_head.weight".
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "ckpt/format/pickle/values/value.h"

namespace ferry {

/// Names without the parts that wrappers of PyTorch put between others: "_orig_mod." (compile),
/// "_fsdp_wrapped_module." (FSDP), "_checkpoint_wrapped_module." (recomputation).
std::string without_wrappers(std::string_view name);

/// The prefix under which most of the names that are `expected` stand; `base` is the outermost
/// module, which names of a bare model lack. invalid, with the prefixes, when as many stand under
/// another one. Empty where none does.
std::string find_prefix(const std::vector<std::string>& names,
                        const std::unordered_set<std::string>& expected, std::string_view base,
                        const std::string& path);

/// Outer parts that all names share and that are not the model's own: "module.", "state_dict.".
std::string guess_container(const std::vector<std::string>& names);

/// The dicts around a flat state dict, by the path of each name that a DCP keeps (`paths`, a dict
/// of tuples or none): "model." of ("model", "encoder.weight"). Empty where paths do not say so of
/// all names.
std::string container_in_paths(const Value& paths, const std::vector<std::string>& names);

/// The same as guess_container(), and "model." before another "model.", which a state dict of a
/// model inside another has.
std::string guess_prefix(const std::vector<std::string>& names);

}  // namespace ferry
