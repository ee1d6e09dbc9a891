#include "convert/check/known_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/quantised_tensors.h"
#include "convert/config_json.h"
#include "convert/model/transforms.h"

namespace ferry {
std::unordered_set<std::string> KnownModel::names() const {
  std::unordered_set<std::string> names;
  for (const Link& link : expand(*family, architecture)) {
    names.insert(link.hugging_face.begin(), link.hugging_face.end());
  }
  return names;
}

bool KnownModel::name_embedding(Catalog& catalog) const {
  if (!architecture.tied) return false;
  const std::string embedding = family->embedding_name(), output = family->output_layer_name();
  Entry* head = nullptr;
  for (Entry& entry : catalog.entries) {
    if (entry.role != Role::model) continue;
    if (entry.name == embedding) return false;
    if (entry.name == output) head = &entry;
  }
  if (head == nullptr) return false;
  head->name = embedding;
  return true;
}

Misfit KnownModel::compare(const Catalog& catalog, bool has_head) const {
  Misfit misfit;
  const std::string output = family->output_layer_name();
  HuggingFaceTensors tensors(catalog, *family);
  const std::vector<QuantisedPart> quantised = quantised_parts(catalog);
  std::unordered_set<std::string_view> packed;  // parameters that other names stand for
  for (const QuantisedPart& part : quantised) {
    if (part.values) packed.insert(part.parameter);
  }
  Architecture a = architecture;
  family->read_tensors([&](const std::string& name) { return tensors.has(name); }, a);
  for (const Link& link : expand(*family, a)) {
    if (link.expert > 0) continue;  // a tensor of all experts, seen with the first
    const bool is_optional = link.rule->copies || link.rule->transform == Transform::constant;
    const bool one_element = link.rule->transform == Transform::single;
    std::vector<Part> parts;
    if (!is_optional) parts = parts_of(link, a);
    for (size_t i = 0; i < link.hugging_face.size(); ++i) {
      const std::string& name = link.hugging_face[i];
      const auto found = tensors.find(name, a);
      if (is_optional || is_repeated(link, i)) continue;
      if (!found) {
        const bool is_needed = has_head || name != output;
        if (is_needed && !packed.contains(name)) misfit.missing.push_back(name);
        continue;
      }
      const QuantisedRole role = quantised[found->entry].role;
      if (role == QuantisedRole::packed || role == QuantisedRole::integers) continue;
      const bool fits =
          one_element ? element_count(found->shape, name) == 1 : found->shape == parts[i].shape;
      if (fits) continue;
      if (has_transposed_experts(link) && found->shape == with_matrices_exchanged(parts[i]).shape) {
        continue;
      }
      misfit.misshapen.push_back(fmt::format("{}: has {}, config.json says {}", name,
                                             to_string(found->shape), to_string(parts[i].shape)));
    }
  }
  for (const uint32_t position : tensors.unused()) {
    const std::string& name = catalog.entries[position].name;
    const QuantisedPart& part = quantised[position];
    if (part.role != QuantisedRole::none && (part.values || part.parameter.empty())) continue;
    const bool is_buffer = std::ranges::any_of(
        family->buffers, [&](std::string_view end) { return name.ends_with(end); });
    if (is_buffer || (a.tied && name == output)) continue;
    const bool is_other_head = !has_head && !name.starts_with(family->base_prefix);
    if (!is_other_head) misfit.left_over.push_back(name);
  }
  return misfit;
}

std::optional<KnownModel> known_model(const nlohmann::json& config, const std::string& folder) {
  try {
    ReadConfig read = read_config(config, std::nullopt, folder);
    read.architecture.padded_vocab = read.architecture.vocab;
    return KnownModel{read.family, std::move(read.architecture)};
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    return std::nullopt;
  }
}

std::optional<KnownModel> known_model(const Checkpoint& checkpoint) {
  try {
    const auto config = read_hugging_face_config(*checkpoint.catalog->file_system, checkpoint.path);
    return config ? known_model(*config, checkpoint.path) : std::nullopt;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    return std::nullopt;
  }
}

}  // namespace ferry
