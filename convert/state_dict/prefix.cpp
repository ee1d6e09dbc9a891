#include "convert/state_dict/prefix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr std::string_view kWrappers[] = {"_orig_mod.", "_fsdp_wrapped_module.",
                                          "_checkpoint_wrapped_module."};

// Names of what programs put around a model's state dict.
constexpr std::string_view kContainers[] = {
    "module",           "state_dict", "model_state_dict",  "state",           "app",
    "model_state",      "policy",     "model_optim",       "pytorch_model",   "actor",
    "checkpoint_state", "weights",    "state_dict.module", "_forward_module", "base_model"};

// First parts of names inside transformers' models.
constexpr std::string_view kInner[] = {"model.", "lm_head.", "transformer.", "language_model."};

struct Count {
  size_t whole = 0;  // names that are expected
  size_t bare = 0;   // names that would be, after the outermost module
};

// Every prefix of `name` that ends at a dot, the empty one too.
template <typename Visit>
void for_each_prefix(std::string_view name, Visit visit) {
  visit(size_t{0});
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    visit(dot + 1);
  }
}

std::string prefix_text(std::string_view prefix) {
  return prefix.empty() ? "no prefix" : fmt::format("'{}'", prefix);
}

using Counts = std::map<std::string, Count, std::less<>>;

// The prefix that most names have; it must be alone in that.
std::string most(const Counts& counts, size_t Count::*member, const std::string& path) {
  const auto best = std::max_element(
      counts.begin(), counts.end(),
      [&](const auto& a, const auto& b) { return a.second.*member < b.second.*member; });
  for (auto other = std::next(best); other != counts.end(); ++other) {
    if (other->second.*member != best->second.*member) continue;
    fail(ErrorKind::invalid,
         "{}: holds several models, {} tensors each under {} and under {}; choose one "
         "({})",
         path, best->second.*member, prefix_text(best->first), prefix_text(other->first),
         option("only", other->first + "*"));
  }
  return best->first;
}

bool all_start(const std::vector<std::string>& names, size_t from, std::string_view with) {
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::string_view(name).substr(from).starts_with(with);
  });
}

}  // namespace

std::string without_wrappers(std::string_view name) {
  std::string result(name);
  for (const std::string_view wrapper : kWrappers) {
    for (size_t at = 0; (at = result.find(wrapper, at)) != std::string::npos;) {
      if (at == 0 || result[at - 1] == '.') {
        result.erase(at, wrapper.size());
      } else {
        ++at;
      }
    }
  }
  return result;
}

std::string find_prefix(const std::vector<std::string>& names,
                        const std::unordered_set<std::string>& expected, std::string_view base,
                        const std::string& path) {
  Counts counts;
  Count best;
  for (const std::string& name : names) {
    for_each_prefix(name, [&](size_t length) {
      const std::string rest = name.substr(length);
      const bool whole = expected.contains(rest);
      const bool bare = !whole && expected.contains(std::string(base) + rest);
      if (!whole && !bare) return;
      Count& count = counts[name.substr(0, length)];
      best.whole = std::max(best.whole, count.whole += whole);
      best.bare = std::max(best.bare, count.bare += bare);
    });
  }
  if (counts.empty()) return {};
  // Under a longer prefix a whole model looks like a bare one with a tensor or two less.
  return most(counts, 2 * best.whole >= best.bare ? &Count::whole : &Count::bare, path);
}

std::string guess_container(const std::vector<std::string>& names) {
  size_t length = 0;
  for (bool found = !names.empty(); found;) {
    found = std::any_of(std::begin(kContainers), std::end(kContainers), [&](std::string_view part) {
      const std::string module = std::string(part) + ".";
      if (!all_start(names, length, module)) return false;
      length += module.size();
      return true;
    });
  }
  return names.empty() ? std::string() : names.front().substr(0, length);
}

std::string container_in_paths(const Value& paths, const std::vector<std::string>& names) {
  std::unordered_map<std::string_view, Value> known;
  for (size_t i = 0; i < paths.pair_count(); ++i) {
    if (const auto key = paths.pair_key(i).string()) known.emplace(*key, paths.pair_value(i));
  }
  std::string container;
  size_t dotted = 0;  // keys of the innermost dict that are whole names of parameters
  for (size_t i = 0; i < names.size(); ++i) {
    const auto found = known.find(names[i]);
    if (found == known.end() || found->second.size() < 2) return {};
    const Value& path = found->second;
    const auto key = path[path.size() - 1].string();
    if (!key || key->size() >= names[i].size() || !names[i].ends_with(*key)) return {};
    const std::string_view own =
        std::string_view(names[i]).substr(0, names[i].size() - key->size());
    if (i == 0) container = own;
    if (own != container) return {};
    dotted += key->find('.') != key->npos;
  }
  // Keys without dots are of dicts of modules, which are the model's own.
  return 2 * dotted > names.size() ? container : std::string();
}

std::string guess_prefix(const std::vector<std::string>& names) {
  std::string prefix = guess_container(names);
  while (!names.empty() && all_start(names, prefix.size(), "model.")) {
    const size_t inside = prefix.size() + 6;
    const bool found = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return std::any_of(std::begin(kInner), std::end(kInner), [&](std::string_view inner) {
        return std::string_view(name).substr(inside).starts_with(inner);
      });
    });
    if (!found) break;
    std::vector<std::string> rest;
    for (const std::string& name : names) rest.push_back(name.substr(inside));
    prefix = names.front().substr(0, inside) + guess_container(rest);
  }
  return prefix;
}

}  // namespace ferry
