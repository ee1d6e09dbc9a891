// Members of a config.json, which may hold anything.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ferry {

/// The value of a key when it is there and of that kind (a number without fraction, a number, true
/// or false, text), else `otherwise`.
int64_t integer_of(const nlohmann::json& config, const char* key, int64_t otherwise);
double number_of(const nlohmann::json& config, const char* key, double otherwise);
bool boolean_of(const nlohmann::json& config, const char* key, bool otherwise);
std::string text_of(const nlohmann::json& config, const char* key, const std::string& otherwise);

/// The same, of a value.
int64_t integer_of(const nlohmann::json& value, int64_t otherwise);

/// A value in a message: as JSON, or as Python prints NaN and infinities; its beginning when long.
std::string shown(const nlohmann::json& value);

/// The class that saved the model, the first of `architectures`; empty: the configuration names
/// none.
std::string class_name_of(const nlohmann::json& config);

/// The scaling of positions: transformers 5 has it in rope_parameters, 4 in rope_scaling. Where
/// both say something, transformers 5 takes the older one and nothing of the other. An object; one
/// of objects by kind of layer that are all alike is any of these.
nlohmann::json rope_scaling_of(const nlohmann::json& config);

}  // namespace ferry
