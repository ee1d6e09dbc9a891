#include "convert/check/stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "ckpt/base/dtype.h"

namespace ferry {
namespace {

constexpr size_t kFewest = 3;  // layers that show what is usual
constexpr size_t kFewOdd = 2;  // tensors of another 16-bit type that are an accident
constexpr std::string_view kExpertsModule = "experts.";

bool is_number(std::string_view part) {
  return !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
}

int64_t parse_number(std::string_view part) {
  int64_t number = 0;
  std::from_chars(part.data(), part.data() + part.size(), number);
  return number;
}

// `name` after the layer's number, with '*' for further numbers.
LayerTensor layer_tensor(const Entry& entry, std::string_view rest) {
  LayerTensor tensor{&entry, {}, -1};
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    if (is_number(part) && tensor.suffix.ends_with(kExpertsModule))
      tensor.expert = parse_number(part);
    tensor.suffix += is_number(part) ? std::string_view("*") : part;
    if (dot == std::string_view::npos) return tensor;
    tensor.suffix += '.';
    rest.remove_prefix(dot + 1);
  }
}

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
  std::map<std::string, std::map<int64_t, const Entry*>> tensors;  // experts left out
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

void compare_layers(const std::string& prefix, const NamedLayers& kind,
                    std::string_view not_in_the_first, Findings& findings) {
  if (kind.layers.size() < kFewest || are_stages(kind)) return;
  for (const auto& [layer, difference] : differences(kind, not_in_the_first)) {
    // One that has several of its own in place of several others is a layer of another kind.
    if (difference.lacks.size() > 1 && difference.has.size() > 1) continue;
    for (const std::string& suffix : difference.lacks) {
      const std::string name = fmt::format("{}.{}.{}", prefix, layer, suffix);
      findings.add(
          layer != 0, "missing", name,
          fmt::format("{} is missing; all other layers of its kind have one{}", name,
                      difference.has.empty() ? "" : ", and none has " + difference.has.front()));
    }
  }
  for (const auto& [suffix, holders] : kind.tensors) {
    std::vector<Dims> shapes;
    std::vector<const Entry*> entries;
    for (const auto& [layer, entry] : holders) {
      shapes.push_back(entry->shape);
      entries.push_back(entry);
    }
    const auto [odd, usual] = odd_one(shapes);
    if (odd == usual) continue;
    findings.problem(
        "shape", entries[odd]->name,
        fmt::format("{}: has shape {}; that of all other layers is {}", entries[odd]->name,
                    to_string(shapes[odd]), to_string(shapes[usual])));
  }
}

// "0 to 3, 5"
std::string ranges(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (last > i) text += fmt::format(" to {}", numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

std::vector<Stack> stacks_of(const Catalog& catalog) {
  std::map<std::string, Stack> stacks;
  for (const Entry& entry : catalog.entries) {
    if (entry.role != Role::model) continue;
    const std::string_view name = entry.name;
    for (size_t dot = name.find('.'); dot != name.npos;) {
      const size_t end = name.find('.', dot + 1);
      if (end == name.npos) break;
      const std::string_view part = name.substr(dot + 1, end - dot - 1);
      if (!is_number(part)) {
        dot = end;
        continue;
      }
      Stack& stack = stacks[std::string(name.substr(0, dot))];
      stack.layers[parse_number(part)].push_back(layer_tensor(entry, name.substr(end + 1)));
      stack.elements += entry.elements();
      break;
    }
  }
  std::vector<Stack> result;
  for (auto& [prefix, stack] : stacks) {
    stack.prefix = prefix;
    result.push_back(std::move(stack));
  }
  return result;
}

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
  std::map<std::string, NamedLayers> by_kind;
  for (const auto& [layer, tensors] : stack.layers) {
    const bool has_experts = std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
      return tensor.suffix.find(kExpertsModule) != std::string::npos;
    });
    const auto at = static_cast<size_t>(layer);
    NamedLayers& kind =
        by_kind[(at < kinds.size() ? kinds[at] : "") + (has_experts ? " experts" : "")];
    kind.layers.push_back(layer);
    for (const LayerTensor& tensor : tensors) {
      if (tensor.expert < 0) kind.tensors[tensor.suffix].emplace(layer, tensor.entry);
    }
  }
  for (const auto& [name, kind] : by_kind)
    compare_layers(stack.prefix, kind, not_in_the_first, findings);
}

void compare_experts(const Stack& stack, int64_t experts, int64_t most, Findings& findings) {
  for (const auto& [layer, tensors] : stack.layers) {
    std::map<std::string, std::set<int64_t>> found;
    for (const LayerTensor& tensor : tensors) {
      if (tensor.expert >= 0) found[tensor.suffix].insert(tensor.expert);
    }
    int64_t seen = experts;
    for (const auto& [suffix, numbers] : found) seen = std::max(seen, *numbers.rbegin() + 1);
    for (const auto& [suffix, numbers] : found) {
      if (experts > 0 && seen > most) {
        const std::string name = fmt::format("{}.{}.{}", stack.prefix, layer, suffix);
        findings.problem(
            "left_over", name,
            fmt::format("{}: there are {} experts; config.json has {}", name, seen, experts));
        break;
      }
      const int64_t needed = experts > 0 ? experts : seen;
      if (static_cast<int64_t>(numbers.size()) >= needed) continue;
      const std::string name = fmt::format("{}.{}.{}", stack.prefix, layer, suffix);
      findings.problem("missing", name,
                       fmt::format("{}: {} of {} experts are there: {}", name, numbers.size(),
                                   needed, ranges({numbers.begin(), numbers.end()})));
    }
  }
}

}  // namespace ferry
