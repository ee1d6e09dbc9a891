#include "convert/check/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "ckpt/base/dtype.h"

namespace ferry {
namespace {

constexpr size_t kFewest = 3;     // layers that show what is usual
constexpr size_t kMostForms = 8;  // of a part, in layers that can be compared
constexpr size_t kFewOdd = 2;     // tensors of another 16-bit type that are an accident

bool is_plain_float(const Entry& entry) {
  return is_floating_point(entry.dtype) && size_bytes(entry.dtype) > 1;
}

// Where one value alone differs from all others: the positions of that one and of another.
template <typename Value>
std::pair<size_t, size_t> odd_one(const std::vector<Value>& values) {
  const std::pair<size_t, size_t> none(0, 0);
  if (values.size() < kFewest) return none;
  std::map<Value, std::vector<size_t>> places;
  for (size_t i = 0; i < values.size(); ++i) places[values[i]].push_back(i);
  if (places.size() != 2) return none;
  const auto& first = places.begin()->second;
  const auto& second = std::next(places.begin())->second;
  if (first.size() == 1) return {first[0], second[0]};
  if (second.size() == 1) return {second[0], first[0]};
  return none;
}

// The layers of one kind: which of them holds a tensor, by suffix.
struct NamedLayers {
  std::vector<int64_t> layers;
  std::map<std::string, std::map<int64_t, const Entry*>> tensors;  // the first of several experts
};

// Tensors that a layer alone lacks, and those that it alone has.
struct Difference {
  std::vector<std::string> lacks, has;
};

std::map<int64_t, Difference> differences(const NamedLayers& kind,
                                          std::string_view not_in_the_first) {
  std::map<int64_t, Difference> found;
  for (const auto& [suffix, holders] : kind.tensors) {
    std::vector<int64_t> layers = kind.layers;
    if (!not_in_the_first.empty() && suffix.starts_with(not_in_the_first)) std::erase(layers, 0);
    if (holders.size() == 1) found[holders.begin()->first].has.push_back(suffix);
    if (holders.size() + 1 != layers.size()) continue;
    for (const int64_t layer : layers) {
      if (!holders.contains(layer)) found[layer].lacks.push_back(suffix);
    }
  }
  return found;
}

// Whether the layers are stages of a pyramid, each of other sizes than the one before, and so may
// have other parts.
bool are_stages(const NamedLayers& kind) {
  size_t several = 0, different = 0;
  for (const auto& [suffix, holders] : kind.tensors) {
    if (holders.size() < kFewest) continue;
    std::set<Dims> shapes;
    for (const auto& [layer, entry] : holders) shapes.insert(entry->shape);
    ++several;
    different += shapes.size() == holders.size();
  }
  return 2 * different > several;
}

// The tensors of one part of a layer: of "self_attn", ".q_proj.weight".
using PartTensors = std::set<std::string_view>;

std::map<std::string_view, PartTensors> parts_of(const std::vector<LayerTensor>& tensors) {
  std::map<std::string_view, PartTensors> parts;
  for (const LayerTensor& tensor : tensors) {
    const std::string_view suffix = tensor.suffix;
    const size_t dot = std::min(suffix.find('.'), suffix.size());
    parts[suffix.substr(0, dot)].insert(suffix.substr(dot));
  }
  return parts;
}

class LayerComparison {
 public:
  LayerComparison(const Stack& stack, const std::vector<std::string>& kinds,
                  std::string_view not_in_the_first, Findings& findings)
      : stack_(stack), kinds_(kinds), not_in_the_first_(not_in_the_first), findings_(findings) {
    for (const auto& [layer, tensors] : stack.layers) {
      const bool has_experts = std::ranges::any_of(tensors, [](const LayerTensor& tensor) {
        return tensor.suffix.find(kExpertsModule) != std::string::npos;
      });
      add(by_kind_[type_of(layer) + (has_experts ? " experts" : "")], layer, tensors);
      add(all_, layer, tensors);
      ++layers_of_type_[type_of(layer)];
      for (auto& [part, form] : parts_of(tensors)) ++forms_[part][std::move(form)];
    }
  }

  void run() {
    if (all_.layers.size() < kFewest || are_stages(all_)) return;
    for (const auto& [name, kind] : by_kind_) {
      if (kind.layers.size() >= kFewest) {
        compare(kind);
      } else {
        for (const int64_t layer : kind.layers) compare_parts(layer);
      }
    }
  }

 private:
  static void add(NamedLayers& named, int64_t layer, const std::vector<LayerTensor>& tensors) {
    named.layers.push_back(layer);
    for (const LayerTensor& tensor : tensors) {
      named.tensors[tensor.suffix].emplace(layer, tensor.entry);
    }
  }

  std::string type_of(int64_t layer) const {
    const auto at = static_cast<size_t>(layer);
    return at < kinds_.size() ? kinds_[at] : "";
  }

  std::string name_of(int64_t layer, std::string_view suffix) const {
    return fmt::format("{}.{}.{}", stack_.prefix, layer, suffix);
  }

  void compare(const NamedLayers& kind) {
    if (are_stages(kind)) return;
    for (const auto& [layer, difference] : differences(kind, not_in_the_first_)) {
      // One that has several of its own in place of several others is a layer of another kind.
      if (difference.lacks.size() > 1 && difference.has.size() > 1) {
        compare_parts(layer);
        continue;
      }
      for (const std::string& suffix : difference.lacks) {
        const std::string name = name_of(layer, suffix);
        findings_.add(
            layer != 0, "missing", name,
            fmt::format("{} is missing; all other layers of its kind have one{}", name,
                        difference.has.empty() ? "" : ", and none has " + difference.has.front()));
      }
    }
    for (const auto& [suffix, holders] : kind.tensors) compare_shapes(holders);
  }

  void compare_shapes(const std::map<int64_t, const Entry*>& holders) {
    std::vector<Dims> shapes;
    std::vector<const Entry*> entries;
    for (const auto& [layer, entry] : holders) {
      shapes.push_back(entry->shape);
      entries.push_back(entry);
    }
    const auto [odd, usual] = odd_one(shapes);
    if (odd == usual) return;
    findings_.problem(
        "shape", entries[odd]->name,
        fmt::format("{}: has shape {}; that of all other layers is {}", entries[odd]->name,
                    to_string(shapes[odd]), to_string(shapes[usual])));
  }

  // A layer with too few of its kind to show what is usual has a part as some other layer has it,
  // or with tensors of its own. One whose type is said and is no other's may differ in all.
  void compare_parts(int64_t layer) {
    const std::string type = type_of(layer);
    if (!type.empty() && layers_of_type_.at(type) == 1) return;
    const auto own = parts_of(stack_.layers.at(layer));
    const bool has_its_own = std::ranges::any_of(own, [&](const auto& part) {
      const auto& forms = forms_.at(part.first);
      return forms.size() == 1 && forms.begin()->second == 1;
    });
    for (const auto& [part, forms] : forms_) {
      const auto found = own.find(part);
      if (found != own.end()) {
        if (forms.at(found->second) == 1) compare_part(layer, part, found->second);
        continue;
      }
      size_t holders = 0;
      for (const auto& [form, count] : forms) holders += count;
      if (!has_its_own && holders + 1 == all_.layers.size()) compare_part(layer, part, {});
    }
  }

  void compare_part(int64_t layer, std::string_view part, const PartTensors& own) {
    const PartTensors* whole = nullptr;
    const auto& forms = forms_.at(part);
    if (forms.size() > kMostForms) return;
    for (const auto& [form, count] : forms) {
      if (form.size() <= own.size() || !std::ranges::includes(form, own)) continue;
      if (whole == nullptr || form.size() < whole->size()) whole = &form;
    }
    if (whole == nullptr) return;
    std::vector<std::string> missing;
    std::set<std::string> modules;
    for (const std::string_view tensor : *whole) {
      const std::string suffix = fmt::format("{}{}", part, tensor);
      const bool is_by_design =
          layer == 0 && !not_in_the_first_.empty() && suffix.starts_with(not_in_the_first_);
      if (own.contains(tensor) || is_by_design) continue;
      missing.push_back(name_of(layer, suffix));
      const size_t experts = suffix.find(kExpertsModule);
      modules.insert(suffix.substr(0, experts == suffix.npos ? suffix.rfind('.') : experts));
    }
    // Without several modules, attention to another layer's keys and values is whole.
    if (!own.empty() && modules.size() > 1) return;
    for (const std::string& name : missing) {
      findings_.warning("missing", name,
                        fmt::format("{} is missing; layers of other kinds have one", name));
    }
  }

  const Stack& stack_;
  const std::vector<std::string>& kinds_;
  std::string_view not_in_the_first_;
  Findings& findings_;
  NamedLayers all_;
  std::map<std::string, NamedLayers> by_kind_;
  std::map<std::string, size_t> layers_of_type_;
  // How many layers have a part with the same tensors.
  std::map<std::string_view, std::map<PartTensors, size_t>> forms_;
};

}  // namespace

void find_odd_dtypes(const Catalog& catalog, Findings& findings) {
  bool any = false;
  for (const Stack& stack : stacks_of(catalog)) {
    std::map<std::string, std::vector<const Entry*>> same;
    for (const auto& [layer, tensors] : stack.layers) {
      for (const LayerTensor& tensor : tensors) same[tensor.suffix].push_back(tensor.entry);
    }
    for (const auto& [suffix, entries] : same) {
      if (!std::all_of(entries.begin(), entries.end(),
                       [](const Entry* entry) { return is_plain_float(*entry); })) {
        continue;  // quantised, and some layers may not be
      }
      std::vector<DType> dtypes;
      for (const Entry* entry : entries) dtypes.push_back(entry->dtype);
      const auto [odd, usual] = odd_one(dtypes);
      if (odd == usual) continue;
      any = true;
      findings.warning("dtype", entries[odd]->name,
                       fmt::format("{}: is {}; that of all other layers is {}", entries[odd]->name,
                                   torch_name(dtypes[odd]), torch_name(dtypes[usual])));
    }
  }
  if (any) return;
  std::map<DType, std::vector<const Entry*>> halves;
  for (const Entry& entry : catalog.entries) {
    const bool is_half = entry.dtype == DType::f16 || entry.dtype == DType::bf16;
    if (is_half && entry.role == Role::model) halves[entry.dtype].push_back(&entry);
  }
  if (halves.size() < 2) return;
  const auto& [few, many] = std::minmax(halves.begin()->second, halves.rbegin()->second,
                                        [](auto& a, auto& b) { return a.size() < b.size(); });
  if (few.size() > kFewOdd || many.size() <= kFewOdd) return;
  for (const Entry* entry : few) {
    findings.warning(
        "dtype", entry->name,
        fmt::format("{}: is {}; {} other tensors are {}", entry->name, torch_name(entry->dtype),
                    many.size(), torch_name(many.front()->dtype)));
  }
}

void compare_with_each_other(const Stack& stack, const std::vector<std::string>& kinds,
                             std::string_view not_in_the_first, Findings& findings) {
  LayerComparison(stack, kinds, not_in_the_first, findings).run();
}

}  // namespace ferry
