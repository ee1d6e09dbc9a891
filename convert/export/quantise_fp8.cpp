#include "convert/export/quantise_fp8.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "convert/rewrite/expert_forms.h"

namespace ferry {
namespace {

constexpr int64_t kBlockExtent = 128;
constexpr std::string_view kWeightEnd = ".weight";
constexpr std::string_view kBlockScales = ".weight_scale_inv";

// Parts of names that are left as they are. "wte." and "wpe." are GPT-2's embeddings, and its "c_"
// layers keep their weights the other way round, as no linear layer does; ".gate." and
// "shared_expert_gate" are routers that are no linear layers where models are served.
constexpr std::string_view kLeftAsTheyAre[] = {
    "norm",    "embed",     "lm_head",   "router",  ".gate.", "shared_expert_gate",
    "eh_proj", "conv1d",    "A_log",     "dt_bias", "wte.",   "weights_proj",
    "wpe.",    "in_proj_a", "in_proj_b", "c_attn.", "c_fc.",  "c_proj."};
constexpr std::string_view kHeadName = "output.weight";  // InternLM2's

std::string_view first_module(std::string_view name) { return name.substr(0, name.find('.') + 1); }

// The module that holds most tensors: its name ("roberta_prelayernorm.") is the model's and says
// nothing of what is in it.
std::string outermost_module(const std::vector<ExportedTensor>& tensors) {
  std::map<std::string_view, size_t> counts;
  for (const ExportedTensor& each : tensors) {
    const std::string_view module = first_module(each.entry.name);
    if (++counts[module] * 2 > tensors.size()) return std::string(module);
  }
  return {};
}

bool is_quantised(const Entry& entry, std::string_view outermost) {
  const size_t from = entry.name.starts_with(outermost) ? outermost.size() : 0;
  const auto holds = [&](std::string_view part) {
    return entry.name.find(part, from) != std::string::npos;
  };
  return entry.shape.size() == 2 && entry.elements() > 0 && entry.name != kHeadName &&
         entry.name.ends_with(kWeightEnd) && is_floating_point(entry.dtype) &&
         std::none_of(std::begin(kLeftAsTheyAre), std::end(kLeftAsTheyAre), holds);
}

// A matrix for each expert, whatever it is called; the weights of convolutions have three axes,
// too.
bool is_fused(const Entry& entry) {
  return entry.shape.size() == 3 && is_floating_point(entry.dtype) &&
         entry.name.find("conv") == std::string::npos;
}

std::string module_of(const std::string& name) {
  return name.ends_with(kWeightEnd) ? name.substr(0, name.size() - kWeightEnd.size()) : name;
}

// fp64 is rounded to fp32 first.
DType values_of(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 ? dtype : DType::f32;
}

ExportedTensor scales_of(const Entry& weight) {
  ExportedTensor scales;
  scales.entry.name = module_of(weight.name) + std::string(kBlockScales);
  scales.entry.dtype = DType::f32;
  for (const int64_t extent : weight.shape) {
    scales.entry.shape.push_back(extent / kBlockExtent + (extent % kBlockExtent != 0));
  }
  scales.recipe.is_scales = true;
  return scales;
}

}  // namespace

nlohmann::ordered_json quantise_fp8(ExportedTensors& tensors, const ExpertNames* experts,
                                    const std::string& path, std::vector<std::string>& warnings) {
  if (experts != nullptr) split_experts(tensors.tensors, *experts);
  const std::string outermost = outermost_module(tensors.tensors);
  std::vector<std::string> left;
  std::vector<std::string> fused;
  std::vector<ExportedTensor> result;
  for (ExportedTensor& tensor : tensors.tensors) {
    if (is_floating_point(tensor.entry.dtype) && size_bytes(tensor.entry.dtype) == 1) {
      fail(ErrorKind::unsupported, "{}: tensor {} is of {} already", path, tensor.entry.name,
           torch_name(tensor.entry.dtype));
    }
    if (!tensor.constant.empty() || !is_quantised(tensor.entry, outermost)) {
      if (tensor.entry.name.ends_with(kWeightEnd)) left.push_back(module_of(tensor.entry.name));
      if (is_fused(tensor.entry)) {
        fused.push_back(tensor.entry.name);
        left.push_back(tensor.entry.name.substr(0, tensor.entry.name.rfind('.')));
      }
      result.push_back(std::move(tensor));
      continue;
    }
    tensor.recipe.quantise =
        Quantise{{kBlockExtent, kBlockExtent}, 0, values_of(tensor.entry.dtype)};
    tensor.entry.dtype = DType::f8_e4m3;
    ExportedTensor scales = scales_of(tensor.entry);
    result.push_back(std::move(tensor));
    result.push_back(std::move(scales));
  }
  if (std::none_of(result.begin(), result.end(),
                   [](const ExportedTensor& each) { return each.recipe.is_scales; })) {
    fail(ErrorKind::unsupported,
         "{}: no weight of a linear layer (a name that ends in .weight, two axes) is there to "
         "quantise",
         path);
  }
  tensors.tensors = std::move(result);
  std::sort(left.begin(), left.end());
  left.erase(std::unique(left.begin(), left.end()), left.end());
  if (!fused.empty()) {
    const bool one = fused.size() == 1;
    warnings.push_back(fmt::format(
        "{} tensor{} of experts that are fused (three axes) {} not quantised: {}; programs that "
        "serve fp8 expect experts one by one",
        fused.size(), one ? "" : "s", one ? "is" : "are", some_of(fused, 3)));
  }
  return {{"activation_scheme", "dynamic"},
          {"fmt", "e4m3"},
          {"quant_method", "fp8"},
          {"weight_block_size", {kBlockExtent, kBlockExtent}},
          {"modules_to_not_convert", left}};
}

}  // namespace ferry
