#include "convert/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>

#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "convert/state_dict/prefix.h"

namespace ferry {
namespace {

using Parts = std::vector<std::string_view>;
using NameSet = std::unordered_set<std::string_view>;  // of parts of the names of one catalog

// Parts of a name; hostile ones must not cost the square of their length.
constexpr size_t kMostParts = 100;

// Around a module's own tensors; what stands next to these inside the module is an adapter's.
constexpr std::string_view kAdapterWrappers[] = {"base_layer", "original_module", "to_wrap"};

// First parts of names inside a module, spelled in lower case.
struct Spelling {
  std::string_view name;
  AdapterPart part;
  std::string_view kind;
};
constexpr Spelling kAdapterSpellings[] = {
    {"lora_a", AdapterPart::factor_in, "lora_"},
    {"lora_b", AdapterPart::factor_out, "lora_"},
    {"lora_down", AdapterPart::factor_in, "lora_"},
    {"lora_up", AdapterPart::factor_out, "lora_"},
    {"lora_right_weight", AdapterPart::factor_in, "lora_"},
    {"lora_left_weight", AdapterPart::factor_out, "lora_"},
    {"lora_weight_1", AdapterPart::factor_in, "lora_"},
    {"lora_weight_2", AdapterPart::factor_out, "lora_"},
    {"lora_magnitude_vector", AdapterPart::magnitude, "lora_"},
    {"lora_magnitude", AdapterPart::magnitude, "lora_"},
    {"modules_to_save", AdapterPart::replacement, "modules_to_save"},
    {"trainable_tokens_delta", AdapterPart::other, "trainable_tokens"},
    {"trainable_tokens_original", AdapterPart::other, "trainable_tokens"},
    {"vera_a", AdapterPart::other, "vera"},  // shared by all modules, outside them
    {"vera_b", AdapterPart::other, "vera"},
    {"randlora_a", AdapterPart::other, "randlora"},
    {"randlora_b", AdapterPart::other, "randlora"},
    {"vblora_vector_bank", AdapterPart::other, "vblora"}};

// Inside Megatron Bridge's "adapter".
constexpr Spelling kInAdapter[] = {{"linear_in", AdapterPart::factor_in, "linear_"},
                                   {"linear_out", AdapterPart::factor_out, "linear_"},
                                   {"weight_magnitude", AdapterPart::magnitude, "linear_"}};

bool is_wrapper(std::string_view part) {
  return std::ranges::find(kAdapterWrappers, part) != std::end(kAdapterWrappers);
}

bool is_leaf(std::string_view part) { return part == "weight" || part == "bias"; }

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

Parts parts_of(std::string_view name) {
  Parts parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// What stands before a part, without the dot; parts are views of one name.
std::string_view before(const Parts& parts, size_t i) {
  const char* begin = parts.front().data();
  return {begin, static_cast<size_t>(parts[i].data() - begin) - 1};
}

std::string joined(std::span<const std::string_view> parts) {
  return fmt::format("{}", fmt::join(parts.begin(), parts.end(), "."));
}

const Spelling* spelled(std::string_view name, std::span<const Spelling> spellings) {
  const auto found = std::ranges::find(spellings, name, &Spelling::name);
  return found == spellings.end() ? nullptr : &*found;
}

// "default" of lora_A.default.weight; nothing where what follows is of no such form.
std::optional<std::string> adapter_name(std::span<const std::string_view> rest) {
  if (!rest.empty() && is_leaf(rest.back())) rest = rest.first(rest.size() - 1);
  if (rest.size() > 1) return std::nullopt;
  return rest.empty() ? std::string() : std::string(rest.front());
}

// By the part of the name that begins `rest`, which stands after the module's.
std::optional<AdapterTensor> by_spelling(std::span<const std::string_view> rest) {
  const std::string first = lower(rest.front());
  if (const Spelling* known = spelled(first, kAdapterSpellings)) {
    const bool replaces = known->part == AdapterPart::replacement;  // whole modules, of any depth
    auto adapter =
        replaces && rest.size() > 1 ? std::string(rest[1]) : adapter_name(rest.subspan(1));
    if (!adapter) return std::nullopt;
    return AdapterTensor{known->part, {}, std::string(known->kind), std::move(*adapter)};
  }
  if (!first.starts_with("lora_")) return std::nullopt;
  auto adapter = adapter_name(rest.subspan(1));
  if (!adapter) return std::nullopt;
  // "lora_embedding_A", "lora_gate_and_up_B"
  const bool in = first.ends_with("_a"), out = first.ends_with("_b");
  if (!in && !out) return AdapterTensor{AdapterPart::other, {}, first, std::move(*adapter)};
  return AdapterTensor{in ? AdapterPart::factor_in : AdapterPart::factor_out,
                       {},
                       first.substr(0, first.size() - 1),
                       std::move(*adapter)};
}

// Megatron Bridge's, after "adapter": of the whole module, or of one of those fused in it.
std::optional<AdapterTensor> in_adapter(std::span<const std::string_view> rest,
                                        std::string_view& inner) {
  if (!rest.empty() && rest.front().starts_with("adapter_")) {
    inner = rest.front();
    rest = rest.subspan(1);
  }
  if (rest.empty()) return std::nullopt;
  const Spelling* known = spelled(rest.front(), kInAdapter);
  if (!known) return std::nullopt;
  return AdapterTensor{known->part, {}, std::string(known->kind), {}};
}

class Names {
 public:
  // `names` must outlive it.
  explicit Names(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const Parts parts = parts_of(name);
      if (parts.size() > kMostParts) continue;
      for (size_t i = 1; i < parts.size(); ++i) {
        if (is_wrapper(parts[i])) wrapped_.insert(before(parts, i));
        if (lower(parts[i]).starts_with("lora_")) low_rank_.insert(before(parts, i));
      }
    }
    const auto starts = [&](std::string_view with) {
      return std::ranges::any_of(names,
                                 [&](const std::string& name) { return name.starts_with(with); });
    };
    has_prompts_ = starts("prompt_encoder.") && starts("base_model.");
  }

  AdapterTensor of(const std::string& name) const {
    const Parts parts = parts_of(name);
    Parts own;
    AdapterTensor result;
    if (parts.size() > kMostParts) {
      result.name = name;
      return result;
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      if (is_wrapper(parts[i]) && i > 0) {
        result.wrapped = true;
        continue;
      }
      const std::span<const std::string_view> rest = std::span(parts).subspan(i);
      if (auto found = adapter_at(parts, i, rest, own)) {
        erase_outer(own);
        found->name = joined(own);
        if (found->name == "base_model") found->name.clear();  // shared by all modules
        return std::move(*found);
      }
      const bool around_tokens = parts[i] == "token_adapter" && rest.size() > 1;
      if (!around_tokens) own.push_back(parts[i]);
    }
    erase_outer(own);
    result.name = joined(own);
    return result;
  }

 private:
  // Removes what stands for PEFT's models around the whole one, however many there are, and for
  // DDP's around them.
  void erase_outer(Parts& own) const {
    for (size_t i = 0; i + 1 < own.size();) {
      if (own[i] != "base_model" || (!has_prompts_ && own[i + 1] != "model")) {
        ++i;
        continue;
      }
      const auto at = own.begin() + static_cast<std::ptrdiff_t>(i);
      const bool outermost =
          std::all_of(own.begin(), at, [](std::string_view part) { return part == "module"; });
      own.erase(outermost ? own.begin() : at, at + (has_prompts_ ? 1 : 2));
      if (outermost) i = 0;
    }
  }

  std::optional<AdapterTensor> adapter_at(const Parts& parts, size_t i,
                                          std::span<const std::string_view> rest,
                                          Parts& own) const {
    // With the embedding's second name, under which prompts are computed.
    if (i == 0 && has_prompts_ && (parts[0] == "prompt_encoder" || parts[0] == "word_embeddings")) {
      return AdapterTensor{AdapterPart::other, {}, "prompt_encoder", {}};
    }
    if (auto found = by_spelling(rest)) return found;
    if (i == 0) return std::nullopt;
    if (parts[i] == "adapter") {
      std::string_view inner;
      auto found = in_adapter(rest.subspan(1), inner);
      if (found && !inner.empty()) own.push_back(inner);
      return found;
    }
    const std::string_view module = before(parts, i);
    const bool magnitude = parts[i] == "magnitude" && rest.size() == 1;
    if (magnitude && low_rank_.contains(module)) {
      return AdapterTensor{AdapterPart::magnitude, {}, "lora_", {}};
    }
    if (is_leaf(parts[i]) || !wrapped_.contains(module)) return std::nullopt;
    // A copy of the module's own stands in older versions' token_adapter.base_layer.
    if (parts[i] == "token_adapter") {
      return AdapterTensor{AdapterPart::other, {}, "trainable_tokens", {}};
    }
    return AdapterTensor{
        AdapterPart::other, {}, std::string(parts[i]), adapter_name(rest.subspan(1)).value_or("")};
  }

  NameSet wrapped_;           // modules that have a wrapper inside
  NameSet low_rank_;          // modules that have "lora_..." inside
  bool has_prompts_ = false;  // learnt in front of the text, of a model inside base_model alone
};

}  // namespace

std::string name_without_wrappers(std::string_view name) {
  return Names({}).of(without_wrappers(name)).name;
}

std::vector<std::string_view> modules_around(std::string_view name) {
  const Parts parts = parts_of(name);
  std::vector<std::string_view> modules;
  if (parts.size() > kMostParts) return modules;
  for (size_t i = 1; i < parts.size(); ++i) modules.push_back(before(parts, i));
  return modules;
}

std::vector<AdapterTensor> adapter_tensors(const Catalog& catalog) {
  std::vector<std::string> names;
  names.reserve(catalog.entries.size());
  for (const Entry& entry : catalog.entries) {
    const auto state =
        entry.role == Role::optimizer ? parse_optimizer_entry_name(entry.name) : std::nullopt;
    names.push_back(without_wrappers(state ? state->key : entry.name));
  }
  const Names known(names);
  std::vector<AdapterTensor> tensors;
  tensors.reserve(names.size());
  for (const std::string& name : names) tensors.push_back(known.of(name));
  return tensors;
}

}  // namespace ferry
