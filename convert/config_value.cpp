#include "convert/config_value.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace ferry {
namespace {

const nlohmann::json& at(const nlohmann::json& config, const char* key) {
  static const nlohmann::json none;
  const auto found = config.is_object() ? config.find(key) : config.end();
  return found != config.end() ? *found : none;
}

}  // namespace

int64_t integer_of(const nlohmann::json& value, int64_t otherwise) {
  // Above 2^63 a number is kept as unsigned: no size is that large.
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
  return fits ? value.get<int64_t>() : otherwise;
}

int64_t integer_of(const nlohmann::json& config, const char* key, int64_t otherwise) {
  return integer_of(at(config, key), otherwise);
}

double number_of(const nlohmann::json& config, const char* key, double otherwise) {
  const nlohmann::json& value = at(config, key);
  return value.is_number() ? value.get<double>() : otherwise;
}

bool boolean_of(const nlohmann::json& config, const char* key, bool otherwise) {
  const nlohmann::json& value = at(config, key);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

std::string text_of(const nlohmann::json& config, const char* key, const std::string& otherwise) {
  const nlohmann::json& value = at(config, key);
  return value.is_string() ? value.get<std::string>() : otherwise;
}

std::string shown(const nlohmann::json& value) {
  constexpr size_t kMostShown = 80;  // bytes
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double number = value.get<double>();
    return std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
  }
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMostShown) text.resize(kMostShown), text += "...";
  return text;
}

nlohmann::json rope_scaling_of(const nlohmann::json& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const nlohmann::json& scaling = at(config, key);
    if (!scaling.is_object() || scaling.empty()) continue;
    const nlohmann::json& first = *scaling.begin();
    const bool alike =
        first.is_object() && std::all_of(scaling.begin(), scaling.end(),
                                         [&](const auto& each) { return each == first; });
    return alike ? first : scaling;
  }
  return nlohmann::json::object();
}

std::string class_name_of(const nlohmann::json& config) {
  const auto names = config.find("architectures");
  const bool is_named =
      names != config.end() && names->is_array() && !names->empty() && names->front().is_string();
  return is_named ? names->front().get<std::string>() : std::string();
}

}  // namespace ferry
