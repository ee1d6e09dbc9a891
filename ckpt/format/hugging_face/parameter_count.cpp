#include "ckpt/format/hugging_face/parameter_count.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ckpt/base/checked.h"
#include "ckpt/format/hugging_face/quantised_tensors.h"

namespace ferry {
namespace {

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

// Inner parts of such names, and ends that name a state of Adam's or SGD's.
constexpr std::string_view kTrainingInside[] = {
    ".optimizer.", ".optimizer_state.", ".optimizer_states.", ".optimizer_state_dict.",
    ".optim.",     ".optim_state.",     ".optim_state_dict."};
constexpr std::string_view kStateEnds[] = {".exp_avg", ".exp_avg_sq", ".max_exp_avg_sq",
                                           ".momentum_buffer"};

bool is_training(std::string_view name) {
  const std::string_view first = name.substr(0, name.find('.'));
  return std::ranges::find(kTrainingParts, first) != kTrainingParts.end() ||
         std::ranges::any_of(
             kTrainingInside,
             [&](std::string_view part) { return name.find(part) != std::string_view::npos; }) ||
         std::ranges::any_of(kStateEnds, [&](std::string_view end) { return name.ends_with(end); });
}

// "state.0.exp_avg": an optimizer's state dict by itself.
bool is_optimizer_alone(const Catalog& catalog) {
  const bool has_groups = std::ranges::any_of(catalog.objects, [](const Object& object) {
    return object.name == "param_groups" || object.name.starts_with("param_groups.");
  });
  const auto is_state = [](const Entry& entry) { return entry.name.starts_with("state."); };
  return has_groups && std::ranges::any_of(catalog.entries, is_state);
}

bool is_parameter_type(DType dtype) {
  return is_floating_point(dtype) || dtype == DType::c64 || dtype == DType::c128;
}

ElementKind element_kind_of(QuantisedRole role) {
  switch (role) {
    case QuantisedRole::none:
    case QuantisedRole::codes:
      return ElementKind::parameter;
    case QuantisedRole::packed:
      return ElementKind::packed;
    case QuantisedRole::integers:
      return ElementKind::integers;
    default:
      return ElementKind::quantisation;
  }
}

}  // namespace

std::vector<CountedTensor> element_kinds(const Catalog& catalog, int64_t known_bits) {
  const std::vector<QuantisedPart> parts = quantised_parts(catalog, known_bits);
  const bool optimizer_alone = is_optimizer_alone(catalog);
  std::vector<CountedTensor> kinds;
  kinds.reserve(catalog.entries.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const Entry& entry = catalog.entries[i];
    const bool training =
        entry.role == Role::optimizer || optimizer_alone || is_training(entry.name);
    const bool table = parts[i].role == QuantisedRole::none && !is_parameter_type(entry.dtype);
    const ElementKind kind = training ? ElementKind::training
                             : table  ? ElementKind::table
                                      : element_kind_of(parts[i].role);
    kinds.push_back({kind, kind == ElementKind::packed ? parts[i].bits : 0});
  }
  return kinds;
}

int64_t parameters_in(const Entry& entry, const CountedTensor& kind) {
  if (kind.kind == ElementKind::parameter) return entry.elements();
  if (kind.kind != ElementKind::packed) return 0;
  return checked_multiply(entry.elements(), 8 * size_bytes(entry.dtype), entry.name) / kind.bits;
}

ParameterCount count_parameters(const Catalog& catalog, const std::vector<CountedTensor>& kinds) {
  ParameterCount count;
  bool several = false;
  const auto add = [](int64_t& sum, int64_t elements) {
    sum = checked_add(sum, elements, "size of the checkpoint");
  };
  for (size_t i = 0; i < kinds.size(); ++i) {
    const Entry& entry = catalog.entries[i];
    const int64_t parameters = parameters_in(entry, kinds[i]);
    add(count.parameters, parameters);
    switch (kinds[i].kind) {
      case ElementKind::parameter:
        break;
      case ElementKind::packed:
        add(count.packed_parameters, parameters);
        add(count.packed_elements, entry.elements());
        several |= count.bits != 0 && count.bits != kinds[i].bits;
        count.bits = kinds[i].bits;
        break;
      case ElementKind::integers:
        add(count.integers, entry.elements());
        break;
      case ElementKind::quantisation:
        add(count.quantisation_elements, entry.elements());
        break;
      case ElementKind::training:
        ++count.training_tensors;
        add(count.training_elements, entry.elements());
        break;
      case ElementKind::table:
      case ElementKind::adapter:
        break;
    }
  }
  if (several) count.bits = 0;
  return count;
}

}  // namespace ferry
