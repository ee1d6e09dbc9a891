#include "convert/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "convert/state_dict/prefix.h"

namespace ferry {
namespace {

using Parts = std::vector<std::string_view>;
using NameSet = std::unordered_set<std::string>;

constexpr size_t kShown = 12;  // targets and the like in a text

// Around a module's own tensors; what stands next to these inside the module is an adapter's.
constexpr std::string_view kWrappers[] = {"base_layer", "original_module", "to_wrap"};

// First parts of names inside a module, spelled in lower case.
struct Spelling {
  std::string_view name;
  AdapterPart part;
  std::string_view kind;
};
constexpr Spelling kSpellings[] = {
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
  return std::ranges::find(kWrappers, part) != std::end(kWrappers);
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

// By the part of the name that begins `rest`, which stands behind the module's.
std::optional<AdapterTensor> by_spelling(std::span<const std::string_view> rest) {
  const std::string first = lower(rest.front());
  if (const Spelling* known = spelled(first, kSpellings)) {
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

// Megatron Bridge's, behind "adapter": of the whole module, or of one of those fused in it.
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
  explicit Names(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const Parts parts = parts_of(name);
      for (size_t i = 1; i < parts.size(); ++i) {
        const std::span<const std::string_view> before(parts.data(), i);
        if (is_wrapper(parts[i])) wrapped_.insert(joined(before));
        if (lower(parts[i]).starts_with("lora_")) low_rank_.insert(joined(before));
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
    const std::string module = joined(std::span(parts).first(i));
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

void add_once(std::vector<std::string>& list, std::string text) {
  if (!text.empty() && std::ranges::find(list, text) == list.end()) list.push_back(std::move(text));
}

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

std::string module_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? std::string() : name.substr(0, dot);
}

// The last part of a module's name; of Megatron Bridge's parts of a fused one both.
std::string target_of(const std::string& module) {
  const std::string last = last_part(module);
  return last.starts_with("adapter_") ? last_part(module_of(module)) + "." + last : last;
}

// The extent that both factors have: [..., rank, in] and [..., out, rank], or of convolutions
// [rank, in, ...] and [out, rank, ...], or both transposed. 0: none.
int64_t rank_of(const Dims& in, const Dims& out) {
  if (in.size() < 2 || out.size() < 2) return 0;
  const bool stacked = in.size() != out.size() || in.size() == 2 || in.front() == out.front();
  if (stacked && in[in.size() - 2] == out.back()) return out.back();
  if (stacked && in.back() == out[out.size() - 2]) return in.back();
  return in.front() == out[1] ? in.front() : 0;
}

class Summary {
 public:
  Summary(const Catalog& catalog, const std::vector<AdapterTensor>& tensors)
      : catalog_(catalog), tensors_(tensors) {}

  AdapterSummary run() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (catalog_.entries[i].role != Role::model) continue;
      tensors_[i].part == AdapterPart::none ? add_own(i) : add(i);
    }
    add_ranks();
    result_.alone = result_.tensors > 0 && !has_own();
    return std::move(result_);
  }

 private:
  struct Factors {
    Dims in, out;
    std::string module;
  };

  void add_own(size_t i) {
    const AdapterTensor& tensor = tensors_[i];
    result_.wrapped += tensor.wrapped;
    const Dims& shape = catalog_.entries[i].shape;
    if (tensor.wrapped && shape.size() == 3) stacks_[module_of(tensor.name)] = shape.front();
  }

  void add(size_t i) {
    const AdapterTensor& tensor = tensors_[i];
    const Entry& entry = catalog_.entries[i];
    ++result_.tensors;
    result_.parameters = checked_add(result_.parameters, entry.elements(), entry.name);
    modules_.insert(tensor.name);
    add_once(result_.names, tensor.adapter);
    switch (tensor.part) {
      case AdapterPart::factor_in:
      case AdapterPart::factor_out: {
        low_rank_ = true;
        Factors& factors = factors_[{tensor.name, tensor.kind, tensor.adapter}];
        factors.module = tensor.name;
        // A bias of lora_B is of one axis.
        if (entry.shape.size() < 2) return;
        (tensor.part == AdapterPart::factor_in ? factors.in : factors.out) = entry.shape;
        break;
      }
      case AdapterPart::magnitude:
        magnitudes_ = true;
        break;
      case AdapterPart::replacement:
        return add_once(result_.replaced, target_of(tensor.name));
      case AdapterPart::other:
        add_once(result_.methods, tensor.kind);
        break;
      case AdapterPart::none:
        return;
    }
    add_once(result_.targets, target_of(tensor.name));
  }

  void add_ranks() {
    std::set<int64_t> ranks;
    for (const auto& [key, factors] : factors_) {
      int64_t rank = rank_of(factors.in, factors.out);
      const auto stack = stacks_.find(factors.module);
      const bool fused = stack != stacks_.end() && factors.in.size() == 2 && stack->second > 0;
      if (fused && rank % stack->second == 0) rank /= stack->second;
      if (rank > 0) ranks.insert(rank);
    }
    result_.ranks.assign(ranks.begin(), ranks.end());
    if (!low_rank_ && !magnitudes_) return;
    result_.methods.insert(result_.methods.begin(), magnitudes_ ? "DoRA" : "LoRA");
  }

  // Whether most of the adapted modules have tensors of the model's own: an adapter's file may have
  // a resized embedding next to what adapts it.
  bool has_own() const {
    if (modules_.contains("")) return true;
    std::unordered_set<std::string_view> found;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].part != AdapterPart::none) continue;
      for (std::string module = module_of(tensors_[i].name); !module.empty();
           module = module_of(module)) {
        if (const auto at = modules_.find(module); at != modules_.end()) found.insert(*at);
      }
    }
    return 2 * found.size() >= modules_.size();
  }

  const Catalog& catalog_;
  const std::vector<AdapterTensor>& tensors_;
  AdapterSummary result_;
  bool low_rank_ = false, magnitudes_ = false;
  NameSet modules_;                                  // that are adapted
  std::unordered_map<std::string, int64_t> stacks_;  // experts of modules with 3-D parameters
  std::map<std::tuple<std::string, std::string, std::string>, Factors> factors_;
};

std::string listed(const std::vector<std::string>& all) {
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), kShown));
  std::string text = fmt::format("{}", fmt::join(all.begin(), end, ", "));
  if (all.size() > kShown) text += fmt::format(" and {} more", all.size() - kShown);
  return text;
}

}  // namespace

std::string name_without_wrappers(std::string_view name) {
  return Names({}).of(without_wrappers(name)).name;
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

AdapterSummary summarise(const Catalog& catalog, const std::vector<AdapterTensor>& tensors) {
  return Summary(catalog, tensors).run();
}

std::string to_text(const AdapterSummary& adapter) {
  const std::vector<std::string>& methods = adapter.methods;
  std::string text = methods.empty() ? "trained copies" : methods.front();
  if (!adapter.ranks.empty()) {
    text += fmt::format(" of rank{} {}", adapter.ranks.size() > 1 ? "s" : "",
                        fmt::join(adapter.ranks, ", "));
  }
  if (!adapter.targets.empty()) text += " on " + listed(adapter.targets);
  if (methods.size() > 1) text += ", with " + listed({methods.begin() + 1, methods.end()});
  if (!adapter.replaced.empty()) {
    text += methods.empty() ? " of " : ", with trained copies of ";
    text += listed(adapter.replaced);
  }
  if (adapter.names.size() > 1) text += fmt::format(" (adapters {})", listed(adapter.names));
  return text;
}

}  // namespace ferry
