// What config.json, and ModelOpt's hf_quant_config.json, say of weights that were quantised.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "convert/export/quantised_form.h"

namespace ferry {

/// quantization_config; `left`: modules that are not quantised.
nlohmann::ordered_json quantisation_config(const WrittenForm& form,
                                           const std::vector<std::string>& left);

/// The content of hf_quant_config.json; empty for forms of other programs.
std::string model_opt_config(const WrittenForm& form, const std::vector<std::string>& left);

}  // namespace ferry
