#include "convert/rewrite/quantisation.h"

#include <nlohmann/json.hpp>

#include "convert/config_value.h"

namespace ferry {
namespace {

using nlohmann::json;

Dims block_of(const json& quantised) {
  const auto sizes = quantised.find("weight_block_size");
  if (sizes == quantised.end() || !sizes->is_array() || sizes->size() != 2) return {};
  Dims block;
  for (const json& size : *sizes) {
    if (!size.is_number_integer()) return {};
    block.push_back(size.get<int64_t>());
    if (block.back() <= 0) return {};
  }
  return block;
}

}  // namespace

std::optional<Quantisation> quantisation_of(const json* config) {
  if (config == nullptr || !config->is_object()) return std::nullopt;
  for (const char* key : {"quantization_config", "compression_config"}) {
    const auto found = config->find(key);
    if (found == config->end() || found->is_null()) continue;
    if (!found->is_object()) return Quantisation{"an unknown method", {}};
    Quantisation result{text_of(*found, "quant_method", "an unknown method"), {}};
    if (result.method == "fp8" && text_of(*found, "fmt", "e4m3") == "e4m3") {
      result.fp8_block = block_of(*found);
    }
    return result;
  }
  // Of models of several parts, the language model's own.
  const auto text = config->find("text_config");
  return text == config->end() ? std::nullopt : quantisation_of(&*text);
}

}  // namespace ferry
