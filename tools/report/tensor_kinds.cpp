#include "tools/report/tensor_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <unordered_map>

#include "ckpt/base/digest.h"
#include "ckpt/megatron/state/edit.h"
#include "tools/report/module_tree.h"

namespace ferry::tool {
namespace {

constexpr size_t kMostRanges = 12;
constexpr size_t kMostStates = 12;

// All that makes two tensors of one kind.
std::string likeness(const Entry& entry, const std::string& name) {
  std::string text = fmt::format("{}|{}|{}|{}", name, static_cast<int>(entry.role),
                                 torch_name(entry.dtype), to_string(entry.shape));
  for (const Chunk& chunk : entry.chunks) {
    text += fmt::format("|{} {} {} {}", to_string(chunk.box), chunk.run_begin, chunk.run_count,
                        chunk.extent.file);
  }
  return to_hex(digest_of(std::as_bytes(std::span(text))));
}

// "exp_avg" of "optimizer.state.exp_avg.layers.0.w", whose parameter is "layers.0.w".
std::string state_of(std::string_view name, std::string_view parameter) {
  constexpr std::string_view kBefore = "optimizer.state.";
  name.remove_suffix(std::min(name.size(), parameter.size() + 1));
  if (name.starts_with(kBefore)) name.remove_prefix(kBefore.size());
  return name.empty() ? "state" : std::string(name);
}

void add_state(TensorKind& kind, std::string state) {
  const bool is_there =
      std::find(kind.states.begin(), kind.states.end(), state) != kind.states.end();
  if (!is_there && kind.states.size() < kMostStates) kind.states.push_back(std::move(state));
}

std::string_view last_parts(const std::string& path, int parts) {
  size_t at = path.size();
  while (parts-- > 0 && at != std::string::npos && at > 0) at = path.rfind('/', at - 1);
  return at == std::string::npos ? std::string_view(path) : std::string_view(path).substr(at + 1);
}

// Empty when the name is of another form.
std::string rank_label(const std::string& path) {
  int rank = 0, number = 0, tensor = 0, pipeline = 0, used = 0;
  const std::string name(last_parts(path, 1)), folder(last_parts(path, 2));
  if (std::sscanf(name.c_str(), "__%6d_%6d.distcp%n", &rank, &number, &used) == 2 &&
      static_cast<size_t>(used) == name.size()) {
    return number == 0 ? std::to_string(rank) : fmt::format("{}.{}", rank, number);
  }
  const int got = std::sscanf(folder.c_str(), "mp_rank_%6d_%6d", &tensor, &pipeline);
  if (got == 2) return fmt::format("{}.{}", tensor, pipeline);
  if (got == 1) return std::to_string(tensor);
  return "";
}

}  // namespace

std::string ranges(std::vector<uint64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::string text;
  size_t count = 0;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (count++ == kMostRanges) return text + ", ...";
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
    if (end - i > 1) text += fmt::format("-{}", numbers[end - 1]);
    i = end;
  }
  return text;
}

std::vector<TensorKind> tensor_kinds(const Catalog& catalog) {
  std::vector<TensorKind> kinds;
  std::vector<std::vector<uint64_t>> numbers;  // of each kind
  std::unordered_map<std::string, size_t> positions;
  for (const Entry& entry : catalog.entries) {
    std::vector<std::string> in_name;
    const std::string_view parameter =
        entry.role == Role::optimizer ? model_name(entry.name) : std::string_view(entry.name);
    std::string name = starred(parameter, &in_name);
    const auto [at, is_new] = positions.try_emplace(likeness(entry, name), kinds.size());
    if (is_new) {
      kinds.push_back({std::move(name), {}, {}, 0, 0, &entry});
      numbers.emplace_back();
    }
    TensorKind& kind = kinds[at->second];
    if (entry.role == Role::optimizer) add_state(kind, state_of(entry.name, parameter));
    ++kind.tensors;
    kind.bytes += static_cast<uint64_t>(entry.bytes());
    uint64_t number = 0;
    if (!in_name.empty() &&
        std::from_chars(in_name[0].data(), in_name[0].data() + in_name[0].size(), number).ec ==
            std::errc()) {
      numbers[at->second].push_back(number);
    }
  }
  for (size_t i = 0; i < kinds.size(); ++i) kinds[i].numbers = ranges(std::move(numbers[i]));
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const TensorKind& a, const TensorKind& b) { return a.bytes > b.bytes; });
  return kinds;
}

std::vector<std::string> file_labels(const Catalog& catalog) {
  std::vector<std::string> labels;
  std::unordered_map<std::string, int> seen;
  for (const FileInfo& file : catalog.files) {
    labels.push_back(rank_label(file.path));
    ++seen[labels.back()];
  }
  // A label that is missing or not one file's own (the model's and the optimizer's of a rank) would
  // mislead.
  const bool good = !seen.contains("") && seen.size() == labels.size();
  for (size_t i = 0; i < labels.size() && !good; ++i) labels[i] = std::to_string(i);
  return labels;
}

}  // namespace ferry::tool
