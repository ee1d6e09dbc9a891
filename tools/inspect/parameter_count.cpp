#include "tools/inspect/parameter_count.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "ckpt/base/checked.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

using Index = std::unordered_map<std::string_view, const Entry*>;

// First parts of names in files of whole training states: torch.save, Lightning, Trainer.
constexpr std::array<std::string_view, 22> kTrainingParts = {"optimizer",
                                                             "optimizers",
                                                             "optimizer_state",
                                                             "optimizer_states",
                                                             "optimizer_state_dict",
                                                             "optim",
                                                             "optim_state",
                                                             "optim_state_dict",
                                                             "opt",
                                                             "scheduler",
                                                             "schedulers",
                                                             "lr_scheduler",
                                                             "lr_schedulers",
                                                             "scheduler_state_dict",
                                                             "scaler",
                                                             "grad_scaler",
                                                             "rng_state",
                                                             "rng_states",
                                                             "random_states",
                                                             "cuda_rng_state",
                                                             "callbacks",
                                                             "loops"};

// Ends of the names of what belongs to quantised weights: GPTQ and AWQ, bitsandbytes, compressed
// tensors, ModelOpt, blocks of fp8, MXFP4.
constexpr std::array<std::string_view, 19> kQuantisationEnds = {".scales",
                                                                ".qzeros",
                                                                ".g_idx",
                                                                ".absmax",
                                                                ".quant_map",
                                                                ".nested_absmax",
                                                                ".nested_quant_map",
                                                                ".SCB",
                                                                ".weight_format",
                                                                ".weight_scale",
                                                                ".weight_scale_2",
                                                                ".weight_scale_inv",
                                                                ".input_scale",
                                                                ".weight_shape",
                                                                ".weight_zero_point",
                                                                ".weight_g_idx",
                                                                ".weight_global_scale",
                                                                ".input_global_scale",
                                                                "_scales"};

bool is_training(std::string_view name) {
  const std::string_view first = name.substr(0, name.find('.'));
  return std::ranges::find(kTrainingParts, first) != kTrainingParts.end();
}

// "state.0.exp_avg": an optimizer's state dict by itself.
bool is_optimizer_alone(const Catalog& catalog) {
  const bool has_groups = std::ranges::any_of(catalog.objects, [](const Object& object) {
    return object.name == "param_groups" || object.name.starts_with("param_groups.");
  });
  const auto is_state = [](const Entry& entry) { return entry.name.starts_with("state."); };
  return has_groups && std::ranges::any_of(catalog.entries, is_state);
}

std::string_view before(std::string_view name, std::string_view end) {
  return name.ends_with(end) ? name.substr(0, name.size() - end.size()) : std::string_view();
}

const Entry* sibling(const Index& index, std::string_view base, std::string_view end) {
  const auto at = index.find(std::string(base) + std::string(end));
  return at == index.end() ? nullptr : at->second;
}

// Bits of a value of which `elements` are packed in integers that hold `stored` bits in all.
int64_t bits_of(int64_t stored, int64_t elements, int64_t otherwise) {
  const bool fits =
      elements > 0 && stored % elements == 0 && stored / elements >= 1 && stored / elements <= 8;
  return fits ? stored / elements : otherwise;
}

// GPTQ packs the rows of a weight [in, out] in 32 bits, AWQ its columns; scales are [groups, out].
std::optional<int64_t> bits_of_qweight(const Index& index, const Entry& entry, int64_t told) {
  const std::string_view base = before(entry.name, ".qweight");
  if (base.empty() || entry.dtype != DType::i32 || entry.shape.size() != 2) return std::nullopt;
  const Entry* scales = sibling(index, base, ".scales");
  const Entry* order = sibling(index, base, ".g_idx");
  if (scales && scales->shape.size() == 2 && scales->shape[1] != entry.shape[1]) {
    return bits_of(32 * entry.shape[1], scales->shape[1], told);
  }
  if (order && order->shape.size() == 1) return bits_of(32 * entry.shape[0], order->shape[0], told);
  return told;
}

// Several values in an element of the entry; nothing where an element is one value.
std::optional<int64_t> packed_bits(const Index& index, const Entry& entry, int64_t told_bits) {
  const int64_t told = told_bits >= 1 && told_bits <= 8 ? told_bits : 4;
  if (entry.dtype == DType::f4x2) return 4;
  if (const auto bits = bits_of_qweight(index, entry, told)) return bits;
  const bool bytes = entry.dtype == DType::u8;
  if (const auto base = before(entry.name, ".weight_packed"); !base.empty()) {
    if (bytes) return 4;
    const Entry* scale = sibling(index, base, ".weight_scale");
    // Groups of columns are of 32, 64 or 128 values: of 4 bits unless they say 8. One scale a row
    // says nothing.
    const bool eight = scale && scale->shape.size() == 2 && entry.shape.size() == 2 &&
                       scale->shape[1] > 1 && entry.shape[1] / scale->shape[1] >= 32;
    if (entry.dtype == DType::i32) return told_bits == told ? told : eight ? 8 : 4;
  }
  if (const auto base = before(entry.name, "_blocks"); !base.empty() && bytes) {
    return sibling(index, base, "_scales") ? std::optional<int64_t>(4) : std::nullopt;
  }
  const auto base = before(entry.name, ".weight");
  if (base.empty() || !bytes) return std::nullopt;
  if (sibling(index, entry.name, ".absmax")) return 4;    // bitsandbytes
  if (sibling(index, base, ".weight_scale_2")) return 4;  // NVFP4 of ModelOpt
  return std::nullopt;
}

int64_t parameters_of(const Entry& entry, int64_t bits) {
  return checked_multiply(entry.elements(), 8 * size_bytes(entry.dtype), entry.name) / bits;
}

}  // namespace

std::vector<CountedTensor> element_kinds(const Catalog& catalog, int64_t told_bits) {
  Index index;
  index.reserve(catalog.entries.size());
  for (const Entry& entry : catalog.entries) index.emplace(entry.name, &entry);
  const bool optimizer_alone = is_optimizer_alone(catalog);
  std::vector<CountedTensor> kinds;
  kinds.reserve(catalog.entries.size());
  for (const Entry& entry : catalog.entries) {
    const auto ends = [&](std::string_view end) { return entry.name.ends_with(end); };
    CountedTensor counted;
    if (entry.role == Role::optimizer || optimizer_alone || is_training(entry.name)) {
      counted.kind = ElementKind::training;
    } else if (const auto bits = packed_bits(index, entry, told_bits)) {
      counted = {ElementKind::packed, *bits};
    } else if (std::ranges::any_of(kQuantisationEnds, ends) ||
               entry.name.find(".quant_state.bitsandbytes__") != std::string::npos) {
      counted.kind = ElementKind::quantisation;
    }
    kinds.push_back(counted);
  }
  return kinds;
}

ParameterCount count_parameters(const Catalog& catalog, const std::vector<CountedTensor>& kinds) {
  ParameterCount count;
  bool several = false;
  const auto add = [](int64_t& sum, int64_t elements) {
    sum = checked_add(sum, elements, "size of the checkpoint");
  };
  for (size_t i = 0; i < kinds.size(); ++i) {
    const Entry& entry = catalog.entries[i];
    switch (kinds[i].kind) {
      case ElementKind::parameter:
        add(count.parameters, entry.elements());
        break;
      case ElementKind::packed: {
        const int64_t parameters = parameters_of(entry, kinds[i].bits);
        add(count.parameters, parameters);
        add(count.packed_parameters, parameters);
        add(count.packed_elements, entry.elements());
        several |= count.bits != 0 && count.bits != kinds[i].bits;
        count.bits = kinds[i].bits;
        break;
      }
      case ElementKind::quantisation:
        add(count.quantisation_elements, entry.elements());
        break;
      case ElementKind::adapter:
        break;
      case ElementKind::training:
        ++count.training_tensors;
        add(count.training_elements, entry.elements());
        break;
    }
  }
  if (several) count.bits = 0;
  return count;
}

std::string to_text(const ParameterCount& count) {
  std::string text = human_count(count.parameters);
  if (count.packed_elements > 0) {
    const std::string width = count.bits > 0 ? fmt::format("{}-bit ", count.bits) : "";
    text += fmt::format(", of which {} are {}values packed in {} elements",
                        human_count(count.packed_parameters), width,
                        human_count(count.packed_elements));
  }
  if (count.quantisation_elements > 0) {
    text += fmt::format("; {} of scales and the like besides",
                        human_count(count.quantisation_elements));
  }
  return text;
}

}  // namespace ferry::tool
