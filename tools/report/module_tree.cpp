#include "tools/report/module_tree.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "ckpt/format/hugging_face/parameter_count.h"
#include "ckpt/megatron/state/edit.h"

namespace ferry::tool {
namespace {

constexpr size_t kMostLevels = 12;

bool is_number(std::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

// The parts between dots; the last of kMostLevels holds all that is left.
std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < kMostLevels) {
    const size_t dot = name.find('.');
    if (dot == std::string_view::npos) break;
    parts.push_back(name.substr(0, dot));
    name.remove_prefix(dot + 1);
  }
  parts.push_back(name);
  return parts;
}

struct Building {
  ModuleNode node;
  std::map<std::string, Building, std::less<>> children;

  void count(const Entry& entry, int64_t parameters) {
    const auto bytes = static_cast<uint64_t>(entry.bytes());
    ++node.tensors;
    (entry.role == Role::model ? node.model_bytes : node.optimizer_bytes) += bytes;
    node.parameters += parameters;
  }
};

ModuleNode finish(Building building) {
  ModuleNode node = std::move(building.node);
  for (auto& [name, child] : building.children) node.children.push_back(finish(std::move(child)));
  std::stable_sort(node.children.begin(), node.children.end(),
                   [](const ModuleNode& a, const ModuleNode& b) { return a.bytes() > b.bytes(); });
  if (node.children.size() != 1 || node.name.empty()) return node;
  ModuleNode only = std::move(node.children.front());
  if (only.tensors != node.tensors) {  // the node is a tensor, too
    node.children.front() = std::move(only);
    return node;
  }
  only.name = node.name + "." + only.name;
  if (only.numbers.empty()) only.numbers = std::move(node.numbers);
  return only;
}

}  // namespace

std::string starred(std::string_view name, std::vector<std::string>* numbers) {
  std::string text;
  for (std::string_view part : parts_of(name)) {
    if (!text.empty()) text += '.';
    if (is_number(part) && numbers) numbers->emplace_back(part);
    text += is_number(part) ? "*" : part;
  }
  return text;
}

ModuleNode module_tree(const Catalog& catalog) {
  Building root;
  const std::vector<CountedTensor> kinds = element_kinds(catalog);
  for (size_t i = 0; i < kinds.size(); ++i) {
    const Entry& entry = catalog.entries[i];
    const int64_t parameters = parameters_in(entry, kinds[i]);
    Building* at = &root;
    at->count(entry, parameters);
    const std::string_view name =
        entry.role == Role::optimizer ? model_name(entry.name) : std::string_view(entry.name);
    for (std::string_view part : parts_of(name)) {
      const std::string key = is_number(part) ? "*" : std::string(part);
      at = &at->children[key];
      at->node.name = key;
      if (is_number(part)) at->node.numbers.emplace(part);
      at->count(entry, parameters);
    }
  }
  return finish(std::move(root));
}

}  // namespace ferry::tool
