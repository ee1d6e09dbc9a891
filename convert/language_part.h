// The language model inside a model of several parts: of images, sounds and text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace ferry {

/// The innermost part of `config` that describes a language model (its text_config, of whatever
/// depth); `config` itself where it has none.
const nlohmann::json& language_config(const nlohmann::json& config);

/// The configuration of the language model in `config` (its text_config, of whatever depth), as
/// that of a model by itself: tied where any level says so, with the outer tokens and quantisation
/// where it has none of its own. Nothing where `config` is of a family itself, or what is inside is
/// of a type that nothing is known of (convert/model/types.h) and `family`, which stands for any
/// type, is not given.
std::optional<nlohmann::json> language_part(const nlohmann::json& config,
                                            const std::optional<std::string>& family);

}  // namespace ferry
