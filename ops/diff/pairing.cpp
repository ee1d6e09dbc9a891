#include "ops/diff/pairing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <compare>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/megatron/state/edit.h"
#include "ckpt/megatron/state/norm_names.h"
#include "convert/adapters.h"
#include "convert/language_part.h"
#include "convert/model/expert_names.h"
#include "convert/recognise.h"

namespace ferry {
namespace {

using Views = std::vector<TensorView>;
using Names = std::unordered_set<std::string>;

constexpr int kMostStacks = 2;  // inside each other: experts of layers
// Parts of stacks, for each tensor of the other side: what a hostile shape cannot exceed.
constexpr size_t kMostParts = 4;

Names names_of(const Views& views) {
  Names names;
  for (const TensorView& view : views) names.insert(view.name);
  return names;
}

// A number between dots: [begin, end) without the dots.
struct Number {
  size_t begin = 0, end = 0;
};

std::vector<Number> numbers_in(const std::string& name) {
  std::vector<Number> numbers;
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const bool is_number = end > begin && end < name.size() &&
                           std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin),
                                       name.begin() + static_cast<std::ptrdiff_t>(end),
                                       [](unsigned char c) { return std::isdigit(c) != 0; });
    if (is_number) numbers.push_back({begin, end});
    begin = end + 1;
  }
  return numbers;
}

std::string without(std::string name, const Number& number) {
  return name.erase(number.begin, number.end + 1 - number.begin);
}

// Stacks that these names are parts of, and where the outermost number stood: of names with one
// number or with any one of theirs left out, or with all.
std::unordered_map<std::string, size_t> stacks_of(const Views& views, const Names& others) {
  std::unordered_map<std::string, size_t> stacks;
  for (const TensorView& view : views) {
    if (others.contains(view.name)) continue;
    const std::vector<Number> numbers = numbers_in(view.name);
    for (const Number& number : numbers) {
      stacks.emplace(without(view.name, number), number.begin);
    }
    std::string none = view.name;
    for (size_t i = numbers.size(); i-- > 0;) none = without(std::move(none), numbers[i]);
    if (numbers.size() > 1) stacks.emplace(std::move(none), numbers.front().begin);
  }
  return stacks;
}

// Takes stacks of `views` apart whose parts `other` names one by one. False when there are none.
bool unstack_like(Views& views, const Views& other) {
  const Names other_names = names_of(other);
  const auto stacks = stacks_of(other, names_of(views));
  Views result;
  size_t parts_left = kMostParts * other.size();
  bool found = false;
  for (TensorView& view : views) {
    const auto stack = stacks.find(view.name);
    const bool apart = stack != stacks.end() && !other_names.contains(view.name) &&
                       view.constant.empty() && !view.shape.empty() &&
                       static_cast<uint64_t>(view.shape[0]) <= parts_left;
    if (!apart) {
      result.push_back(std::move(view));
      continue;
    }
    found = true;
    parts_left -= static_cast<size_t>(view.shape[0]);
    for (TensorView& part : unstack(view, stack->second)) result.push_back(std::move(part));
  }
  views = std::move(result);
  return found;
}

// Splits fused experts of `views` that `other` has one by one, and gives tensors the names that
// `other` has for them. Returns how many were split.
size_t split_like(Views& views, const Views& other) {
  const Names names = names_of(other);
  Views result;
  size_t split = 0;
  for (TensorView& view : views) {
    const bool is_known = names.contains(view.name) || !view.constant.empty();
    const auto has = [&](const std::string& name) { return names.contains(name); };
    auto form = is_known ? std::nullopt : other_form(view.name, view.shape, has);
    if (form && !form->parts.empty()) {
      ++split;
      std::ranges::move(split_experts(view, std::move(form->parts)), std::back_inserter(result));
      continue;
    }
    if (form && !form->renamed.empty()) view.name = std::move(form->renamed);
    result.push_back(std::move(view));
  }
  views = std::move(result);
  return split;
}

void share_expert_names(Views& a, Views& b, const std::string& path_a, const std::string& path_b,
                        std::vector<std::string>& notes) {
  const auto note = [&](size_t split, const std::string& path) {
    if (split == 0) return;
    notes.push_back(fmt::format("{}: {} tensors of fused experts are compared one expert at a time",
                                path, split));
  };
  note(split_like(a, b), path_a);
  note(split_like(b, a), path_b);
}

// Modules that the names of one side have in front, or after their outermost module, and those of
// the other have not: "language_model." of "model.language_model.norm.weight".
struct ModulesBetween {
  std::string front, between;

  auto operator<=>(const ModulesBetween&) const = default;

  std::optional<std::string> without(const std::string& name) const {
    if (!name.starts_with(front + between)) return std::nullopt;
    return front + name.substr(front.size() + between.size());
  }
};

constexpr int kMostModulesBetween = 6;

// Calls visit(modules, name without them) for all that a name may lose; numbers stay.
template <typename Visit>
void for_each_between(const std::string& name, const Visit& visit) {
  const size_t outermost = name.find('.');
  for (const size_t begin : {size_t{0}, outermost == name.npos ? name.size() : outermost + 1}) {
    const bool is_repeated = begin > 0 && name.compare(begin, begin, name, 0, begin) == 0;
    if (is_repeated) continue;  // either may go, with the same result
    size_t end = begin;
    for (int i = 0; i < kMostModulesBetween; ++i) {
      const size_t dot = name.find('.', end);
      if (dot == name.npos || std::isdigit(static_cast<unsigned char>(name[end])) != 0) break;
      end = dot + 1;
      visit(ModulesBetween{name.substr(0, begin), name.substr(begin, end - begin)},
            name.substr(0, begin) + name.substr(end));
    }
  }
}

// Names of `views` that `other` has without some modules lose these, where that pairs at least half
// of what one side has alone, and no other modules pair as many.
bool drop_modules(Views& views, const Views& other, const std::string& path,
                  std::vector<std::string>& notes) {
  const Names own = names_of(views);
  std::unordered_map<std::string_view, const Dims*> unmatched;
  for (const TensorView& view : other) {
    if (!own.contains(view.name)) unmatched.emplace(view.name, &view.shape);
  }
  const Names others = names_of(other);
  std::map<ModulesBetween, size_t> counts;
  size_t alone = 0;
  for (const TensorView& view : views) {
    if (others.contains(view.name)) continue;
    ++alone;
    for_each_between(view.name, [&](const ModulesBetween& modules, const std::string& name) {
      const auto found = unmatched.find(name);
      if (found != unmatched.end() && *found->second == view.shape) ++counts[modules];
    });
  }
  const auto best =
      std::ranges::max_element(counts, {}, [](const auto& each) { return each.second; });
  if (best == counts.end() || 2 * best->second < std::min(alone, unmatched.size())) return false;
  const auto as_many = [&](const auto& each) { return each.second == best->second; };
  if (std::ranges::count_if(counts, as_many) > 1) return false;  // which is meant is not known
  const ModulesBetween& modules = best->first;
  for (TensorView& view : views) {
    if (others.contains(view.name)) continue;
    const auto name = modules.without(view.name);
    if (name && !own.contains(*name)) view.name = *name;
  }
  notes.push_back(fmt::format("{}: its names are compared without '{}'{}", path, modules.between,
                              modules.front.empty() ? "" : " after '" + modules.front + "'"));
  return true;
}

bool is_hugging_face(const Checkpoint& checkpoint) {
  return checkpoint.format == Format::hugging_face || checkpoint.format == Format::safetensors;
}

// Names around prediction layers are the same in both worlds (mtp.layers.0.enorm.weight).
bool have_common_names(const Catalog& a, const Catalog& b) {
  Names names;
  for (const Entry& entry : a.entries) names.insert(entry.name);
  const auto common = static_cast<size_t>(
      std::ranges::count_if(b.entries, [&](const Entry& e) { return names.contains(e.name); }));
  return common > 0 && 4 * common >= std::min(a.entries.size(), b.entries.size());
}

// The family that config.json of a model names; nothing where there is none that is known.
std::optional<std::string> named_family_of(const Checkpoint& model) {
  if (model.format != Format::hugging_face) return std::nullopt;
  try {
    const auto config = read_hugging_face_config(*model.catalog->file_system, model.path);
    if (!config) return std::nullopt;
    return choose_family(language_config(*config), std::nullopt, model.path).family->name;
  } catch (const Error&) {  // the tensors are compared all the same
    return std::nullopt;
  }
}

// The names that the other's own family has for the tensors, where the run can be of that one.
Views views_as(const Checkpoint& checkpoint, const Checkpoint& other) {
  if (const auto family = named_family_of(other)) {
    try {
      return hugging_face_views(checkpoint, family);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::mismatch) throw;
    }
  }
  return hugging_face_views(checkpoint, std::nullopt);
}

// Views of a Megatron checkpoint for comparison with a Hugging Face one.
Views mapped_views(const Checkpoint& checkpoint, const Checkpoint& other,
                   std::vector<std::string>& notes) {
  const auto optimizer =
      std::count_if(checkpoint.catalog->entries.begin(), checkpoint.catalog->entries.end(),
                    [](const Entry& entry) { return entry.role == Role::optimizer; });
  std::string note =
      fmt::format("{}: its tensors are compared under the names of Hugging Face", checkpoint.path);
  if (optimizer > 0) {
    note += fmt::format("; {} of the optimizer, which has none there, are left out", optimizer);
  }
  notes.push_back(std::move(note));
  return views_as(checkpoint, other);
}

// The names of norms that one choice of modules gives to views of a run.
std::vector<std::string> norm_names_of(const Views& views, bool transformer_engine) {
  std::vector<std::string_view> keys;
  for (const TensorView& view : views) keys.push_back(model_name(view.name));
  const NormNames norms(keys, transformer_engine);
  std::vector<std::string> names;
  for (size_t i = 0; i < views.size(); ++i) {
    const std::string& name = views[i].name;
    names.push_back(name.substr(0, name.size() - keys[i].size()) + norms.of(keys[i]));
  }
  return names;
}

bool have_names(const Views& views, const std::vector<std::string>& names) {
  return std::equal(
      views.begin(), views.end(), names.begin(), names.end(),
      [](const TensorView& view, const std::string& name) { return view.name == name; });
}

// Norms whose names differ because the runs are built of other modules get the names of `a`.
void share_norm_names(const Views& a, Views& b, const std::string& path,
                      std::vector<std::string>& notes) {
  for (const bool transformer_engine : {true, false}) {
    if (!have_names(a, norm_names_of(a, transformer_engine))) continue;
    const std::vector<std::string> names = norm_names_of(b, transformer_engine);
    if (have_names(b, names)) return;
    const Names all(names.begin(), names.end());
    if (all.size() != b.size()) return;  // a checkpoint that holds a norm under both
    for (size_t i = 0; i < b.size(); ++i) b[i].name = names[i];
    notes.push_back(
        fmt::format("{}: its norms are compared under the names that {} modules look for", path,
                    transformer_engine ? "Transformer Engine's" : "Megatron-LM's local"));
    return;
  }
}

// A model with an adapter inside is held against one without under its own names, which wrappers
// changed; the adapter's tensors stay, and are on one side alone.
void name_without_adapter(const Checkpoint& with, const Checkpoint& without, Views& views,
                          std::vector<std::string>& notes) {
  const std::vector<AdapterTensor> tensors = adapter_tensors(with.catalog);
  const AdapterSummary adapter = summarise(with.catalog, tensors);
  const Catalog& other = without.catalog;
  if (!adapter.any() || summarise(other, adapter_tensors(other)).any()) return;
  notes.push_back(
      fmt::format("{}: holds an adapter ({}: {} tensors); its other tensors are compared under the "
                  "names of the model",
                  with.path, to_text(adapter), adapter.tensors));
  for (size_t i = 0; i < tensors.size() && i < views.size(); ++i) {
    const bool own = tensors[i].part == AdapterPart::none;
    if (own && with.catalog->entries[i].role == Role::model) views[i].name = tensors[i].name;
  }
}

}  // namespace

std::vector<TensorPair> pair_views(Views a, Views b) {
  for (int i = 0; i < kMostStacks; ++i) {
    const bool in_a = unstack_like(a, b);
    const bool in_b = unstack_like(b, a);
    if (!in_a && !in_b) break;
  }
  std::unordered_map<std::string, size_t> positions;
  for (size_t i = 0; i < b.size(); ++i) positions.emplace(b[i].name, i);
  std::vector<TensorPair> pairs;
  std::vector<bool> paired(b.size());
  for (TensorView& view : a) {
    TensorPair& pair = pairs.emplace_back();
    if (const auto found = positions.find(view.name); found != positions.end()) {
      pair.b = std::move(b[found->second]);
      paired[found->second] = true;
    }
    pair.a = std::move(view);
  }
  for (size_t i = 0; i < b.size(); ++i) {
    if (!paired[i]) pairs.push_back({std::nullopt, std::move(b[i])});
  }
  return pairs;
}

std::vector<TensorPair> pair_tensors(const Checkpoint& a, const Checkpoint& b,
                                     std::vector<std::string>& notes) {
  const bool apart = !have_common_names(a.catalog, b.catalog);
  const bool map_a = apart && is_hugging_face(b) && !a.args.value.is_none();
  const bool map_b = apart && is_hugging_face(a) && !b.args.value.is_none();
  Views of_a = map_a ? mapped_views(a, b, notes) : stored_views(a.catalog);
  Views of_b = map_b ? mapped_views(b, a, notes) : stored_views(b.catalog);
  if (!map_a) name_without_adapter(a, b, of_a, notes);
  if (!map_b) name_without_adapter(b, a, of_b, notes);
  if (!drop_modules(of_a, of_b, a.path, notes)) {
    drop_modules(of_b, of_a, b.path, notes);
  }
  share_expert_names(of_a, of_b, a.path, b.path, notes);
  share_norm_names(of_a, of_b, b.path, notes);
  return pair_views(std::move(of_a), std::move(of_b));
}

}  // namespace ferry
