#include "convert/check/final_norm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "convert/model/numbered_name.h"

namespace ferry {
namespace {

constexpr std::string_view kWeightOfNorm = ".weight", kBiasOfNorm = ".bias";
// Norms before attention that may have a bias. Where norms have none (of root mean squares), all
// models that transformers knows have one after their layers, too, but those below.
constexpr std::string_view kBeforeAttention[] = {"input_layernorm", "ln_1"};
// Source: transformers modeling_blt.py (the parts that follow have it), modeling_openai.py.
constexpr std::string_view kTypesWithout[] = {"blt", "openai-gpt"};

// "model.norm" of "model.norm.weight"; empty: not of a norm.
std::string_view norm_of(std::string_view name, std::string_view end) {
  if (!name.ends_with(end)) return {};
  const std::string_view module = name.substr(0, name.size() - end.size());
  std::string last(module.substr(module.rfind('.') + 1));
  std::ranges::transform(last, last.begin(), [](unsigned char c) { return std::tolower(c); });
  return last.find("norm") != last.npos || last.starts_with("ln_") ? module : std::string_view();
}

// The norms of the layers themselves, not of their parts: which dimensions, and whether a bias.
struct LayerNorms {
  std::set<Dims> shapes;
  std::string example;
  bool with_bias = false, without_bias = false;
  bool before_attention = false;
};

LayerNorms norms_of_layers(const Stack& stack) {
  LayerNorms norms;
  std::set<std::string_view> biases;
  for (const auto& [layer, tensors] : stack.layers) {
    for (const LayerTensor& tensor : tensors) biases.insert(norm_of(tensor.suffix, kBiasOfNorm));
  }
  for (const auto& [layer, tensors] : stack.layers) {
    for (const LayerTensor& tensor : tensors) {
      const std::string_view norm = norm_of(tensor.suffix, kWeightOfNorm);
      if (norm.empty() || norm.find('.') != norm.npos || tensor.entry->shape.size() != 1) continue;
      norms.shapes.insert(tensor.entry->shape);
      norms.example = tensor.entry->name;
      (biases.contains(norm) ? norms.with_bias : norms.without_bias) = true;
      norms.before_attention |= std::ranges::count(kBeforeAttention, norm) > 0;
    }
  }
  return norms;
}

}  // namespace

void find_missing_final_norm(const Catalog& catalog, const Stack& decoder,
                             std::string_view model_type, Findings& findings) {
  const LayerNorms layers = norms_of_layers(decoder);
  std::map<std::string_view, const Entry*> weights;
  std::set<std::string_view> biases;
  for (const Entry& entry : catalog.entries) {
    if (entry.shape.size() != 1 || is_numbered(entry.name)) continue;
    if (const auto norm = norm_of(entry.name, kWeightOfNorm); !norm.empty()) weights[norm] = &entry;
    if (const auto norm = norm_of(entry.name, kBiasOfNorm); !norm.empty()) biases.insert(norm);
  }
  bool has_any = false;
  for (const std::string_view norm : biases) {
    if (weights.contains(norm)) continue;
    has_any = true;
    const std::string name = fmt::format("{}{}", norm, kWeightOfNorm);
    findings.problem("missing", name,
                     fmt::format("{} is missing; {}{} is there", name, norm, kBiasOfNorm));
  }
  const bool has_bias = layers.with_bias && !layers.without_bias;
  for (const auto& [norm, entry] : weights) {
    // In a module that holds the layers, next to them or further out.
    const std::string_view module = norm.substr(0, norm.rfind('.') + 1);
    if (!decoder.prefix.starts_with(module) || !layers.shapes.contains(entry->shape)) continue;
    has_any = true;
    if (!has_bias || biases.contains(norm)) continue;
    const std::string name = fmt::format("{}{}", norm, kBiasOfNorm);
    findings.warning("missing", name,
                     fmt::format("{} is missing; the norms of the layers have biases", name));
  }
  const bool is_expected = layers.without_bias || layers.before_attention;
  if (has_any || !is_expected || std::ranges::count(kTypesWithout, model_type) > 0) return;
  findings.warning(
      "missing", "the norm after the layers",
      fmt::format("the norm after the layers is missing: they have norms of their own ({}), and no "
                  "norm of that size is next to {}",
                  layers.example, decoder.prefix));
}

}  // namespace ferry
