#include "convert/export/quantisation_config.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace ferry {
namespace {

using nlohmann::ordered_json;
bool has_zeros(const WrittenForm& form) { return form.rule == QuantiseRule::int4_zeros; }

// As compressed-tensors writes its arguments, all members of them.
ordered_json compressed_arguments(int64_t bits, std::string_view type, std::string_view strategy) {
  return {{"actorder", nullptr},
          {"block_structure", nullptr},
          {"dynamic", false},
          {"group_size", nullptr},
          {"num_bits", bits},
          {"observer", "minmax"},
          {"observer_kwargs", ordered_json::object()},
          {"scale_dtype", nullptr},
          {"strategy", strategy},
          {"symmetric", true},
          {"type", type},
          {"zp_dtype", nullptr}};
}

ordered_json compressed_tensors(std::string_view format, ordered_json weights, ordered_json inputs,
                                const std::vector<std::string>& left) {
  return {{"config_groups",
           {{"group_0",
             {{"format", format},
              {"input_activations", std::move(inputs)},
              {"output_activations", nullptr},
              {"targets", {"Linear"}},
              {"weights", std::move(weights)}}}}},
          {"format", format},
          {"global_compression_ratio", nullptr},
          {"ignore", left},
          {"kv_cache_scheme", nullptr},
          {"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"}};
}

ordered_json of_rows(const std::vector<std::string>& left) {
  ordered_json inputs = compressed_arguments(8, "float", "token");
  inputs["dynamic"] = true;
  inputs["observer"] = nullptr;
  return compressed_tensors("float-quantized", compressed_arguments(8, "float", "channel"),
                            std::move(inputs), left);
}

ordered_json of_groups(const WrittenForm& form, const std::vector<std::string>& left) {
  const bool is_int = form.rule == QuantiseRule::int4 || has_zeros(form);
  const bool is_nv = form.rule == QuantiseRule::nvfp4_divided;
  ordered_json weights =
      compressed_arguments(4, is_int ? "int" : "float", is_nv ? "tensor_group" : "group");
  weights["group_size"] = form.columns;
  weights["symmetric"] = !has_zeros(form);
  if (has_zeros(form)) weights["zp_dtype"] = "torch.int8";
  if (is_nv) weights["scale_dtype"] = weights["zp_dtype"] = "torch.float8_e4m3fn";
  if (form.rule == QuantiseRule::mxfp4)
    weights["scale_dtype"] = weights["zp_dtype"] = "torch.uint8";
  const std::string_view format = is_int  ? "pack-quantized"
                                  : is_nv ? "nvfp4-pack-quantized"
                                          : "mxfp4-pack-quantized";
  return compressed_tensors(format, std::move(weights), nullptr, left);
}

ordered_json of_fp8(const WrittenForm& form, const std::vector<std::string>& left) {
  const bool is_mx = form.rule == QuantiseRule::mxfp8;
  ordered_json config = {
      {"activation_scheme", "dynamic"}, {"fmt", "e4m3"}, {"quant_method", is_mx ? "mxfp8" : "fp8"}};
  if (form.rows > 0) config["weight_block_size"] = {form.rows, form.columns};
  if (is_mx || form.rule == QuantiseRule::fp8_exponents) config["scale_fmt"] = "ue8m0";
  config["modules_to_not_convert"] = left;
  return config;
}

ordered_json of_model_opt(const WrittenForm& form, const std::vector<std::string>& left) {
  const ordered_json four_bits = {
      {"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", form.columns}};
  return {{"config_groups",
           {{"group_0",
             {{"input_activations", four_bits}, {"weights", four_bits}, {"targets", {"Linear"}}}}}},
          {"ignore", left},
          {"quant_algo", "NVFP4"},
          {"producer", {{"name", "modelopt"}}},
          {"quant_method", "modelopt"}};
}

}  // namespace

ordered_json quantisation_config(const WrittenForm& form, const std::vector<std::string>& left) {
  switch (form.rule) {
    case QuantiseRule::mxfp4_up:
      return {{"modules_to_not_convert", left}, {"quant_method", "mxfp4"}};
    case QuantiseRule::nvfp4:
      return of_model_opt(form, left);
    case QuantiseRule::fp8:
      return form.columns == 0 ? of_rows(left) : of_fp8(form, left);
    case QuantiseRule::fp8_exponents:
    case QuantiseRule::fp8_tensor:
    case QuantiseRule::mxfp8:
      return of_fp8(form, left);
    default:
      return of_groups(form, left);
  }
}

std::string model_opt_config(const WrittenForm& form, const std::vector<std::string>& left) {
  if (form.rule != QuantiseRule::nvfp4) return {};
  const ordered_json config = {{"producer", {{"name", "modelopt"}}},
                               {"quantization",
                                {{"quant_algo", "NVFP4"},
                                 {"kv_cache_quant_algo", nullptr},
                                 {"group_size", form.columns},
                                 {"exclude_modules", left}}}};
  return config.dump(2) + "\n";
}

}  // namespace ferry
