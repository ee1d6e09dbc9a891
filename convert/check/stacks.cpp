#include "convert/check/stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

namespace ferry {
namespace {

bool is_number(std::string_view part) {
  return !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
}

int64_t parse_number(std::string_view part) {
  int64_t number = 0;
  std::from_chars(part.data(), part.data() + part.size(), number);
  return number;
}

// `name` after the layer's number, with '*' for an expert's.
LayerTensor layer_tensor(const Entry& entry, std::string_view rest) {
  LayerTensor tensor{&entry, {}, -1};
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool is_expert = is_number(part) && tensor.suffix.ends_with(kExpertsModule);
    if (is_expert) tensor.expert = parse_number(part);
    tensor.suffix += is_expert ? std::string_view("*") : part;
    if (dot == std::string_view::npos) return tensor;
    tensor.suffix += '.';
    rest.remove_prefix(dot + 1);
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
