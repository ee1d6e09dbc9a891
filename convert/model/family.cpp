#include "convert/model/family.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "convert/families/list.h"

namespace ferry {
namespace {

constexpr std::string_view kDecoderLayer = "decoder.layers.{layer}.";
constexpr std::string_view kMtpLayer = "mtp.layers.{mtp}.transformer_layer.";
constexpr std::string_view kHybridMtpLayer = "mtp.layers.{mtp}.transformer_layer.layers.{inner}.";

bool mentions(std::string_view pattern, std::string_view what) {
  return pattern.find(what) != std::string_view::npos;
}

// Asks the whole rule, not one name: a constant has no Megatron name, a vocabulary copy no layer
// there.
bool mentions(const Rule& rule, std::string_view what) {
  return mentions(rule.megatron, what) ||
         std::any_of(rule.hugging_face.begin(), rule.hugging_face.end(),
                     [&](std::string_view name) { return mentions(name, what); });
}

void replace(std::string& text, std::string_view what, int64_t number) {
  for (size_t at; (at = text.find(what)) != std::string::npos;) {
    text.replace(at, what.size(), std::to_string(number));
  }
}

struct Indices {
  int64_t layer = 0;
  int64_t expert = 0;
  int64_t mtp = -1;    // number of the prediction layer, when the layer is one
  int64_t inner = -1;  // in that, of a hybrid model
};

// `family`: of a name in Hugging Face; null: of one in Megatron.
std::string fill(std::string_view pattern, const Indices& at, const Family* family = nullptr) {
  std::string name(pattern);
  if (at.mtp >= 0 && name.starts_with(kDecoderLayer)) {
    name.replace(0, kDecoderLayer.size(), at.inner >= 0 ? kHybridMtpLayer : kMtpLayer);
  }
  if (at.mtp >= 0 && family != nullptr && !family->mtp_prefix.empty()) {
    const std::string layer = std::string(family->base_prefix) + "layers.{layer}.";
    if (name.starts_with(layer)) name.replace(0, layer.size(), family->mtp_prefix);
  }
  replace(name, "{layer}", at.layer);
  replace(name, "{expert}", at.expert);
  replace(name, "{mtp}", at.mtp);
  replace(name, "{inner}", at.inner);
  return name;
}

// The row of the block tables that a rule is about; nothing for a constant.
std::optional<NamedParameter> parameter_of(const Rule& rule) {
  if (rule.megatron.empty()) return std::nullopt;
  std::string name(rule.megatron);
  for (const std::string_view number : {"{layer}.", "{mtp}.", "{expert}."}) {
    if (const size_t at = name.find(number); at != std::string::npos) name.erase(at, number.size());
  }
  auto parameter = find_parameter(name);
  if (!parameter) fail(ErrorKind::invalid, "{}: no block has this parameter", rule.megatron);
  return parameter;
}

// Empty where the family has no rule for the parameter.
std::string_view name_in(const Family& family, std::string_view megatron) {
  const auto rule = std::ranges::find_if(family.rules, [&](const Rule& each) {
    return each.megatron == megatron && !each.copies && !each.hugging_face.empty();
  });
  return rule == family.rules.end() ? std::string_view() : rule->hugging_face.front();
}

class Expansion {
 public:
  Expansion(const Family& family, const Architecture& architecture)
      : family_(family), rules_(family.rules), a_(architecture) {
    for (const Rule& rule : rules_) parameters_.push_back(parameter_of(rule));
  }

  std::vector<Link> run() {
    for (size_t begin = 0; begin < rules_.size();) {
      const size_t end = run_end(begin, rules_.size(), is_of_layers);
      if (is_of_layers(rules_[begin])) {
        all_layers(begin, end);
      } else {
        for (size_t i = begin; i < end; ++i) add(i, {});
      }
      begin = end;
    }
    return std::move(links_);
  }

 private:
  static bool is_of_layers(const Rule& rule) {
    return mentions(rule, "{layer}") || mentions(rule, "{mtp}");
  }
  static bool is_of_experts(const Rule& rule) { return mentions(rule, "{expert}"); }

  // End of the run of rules that agree with the first one about what they are of.
  size_t run_end(size_t begin, size_t limit, bool (*is_of)(const Rule&)) const {
    const bool first = is_of(rules_[begin]);
    size_t end = begin;
    while (end < limit && is_of(rules_[end]) == first) ++end;
    return end;
  }

  void all_layers(size_t begin, size_t end) {
    for (int64_t layer = 0; layer < a_.all_layers(); ++layer) {
      const int64_t predicting = layer - a_.layers;
      const bool is_mtp = predicting >= 0;
      const Indices at{layer, 0, is_mtp ? predicting / a_.mtp_inner_layers : -1,
                       is_mtp && a_.is_hybrid() ? predicting % a_.mtp_inner_layers : -1};
      for (size_t i = begin; i < end;) {
        const size_t stop = run_end(i, end, is_of_experts);
        const int64_t times = is_of_experts(rules_[i]) ? a_.experts : 1;
        for (int64_t expert = 0; expert < times; ++expert) {
          for (size_t r = i; r < stop; ++r) add(r, {at.layer, expert, at.mtp, at.inner});
        }
        i = stop;
      }
    }
  }

  void add(size_t number, const Indices& at) {
    const Rule& rule = rules_[number];
    const auto& parameter = parameters_[number];
    const bool for_mtp_only = mentions(rule, "{mtp}") || rule.copies;
    if (for_mtp_only && at.mtp < 0) return;
    if (parameter && at.inner >= 0 && at.inner != place_around(*parameter->row, at.inner)) return;
    if (rule.when != nullptr && !rule.when(a_, at.layer)) return;
    if (parameter && !has_parameter(parameter->block, *parameter->row, a_, at.layer)) return;
    Link link;
    link.rule = &rule;
    link.fp32 = parameter ? parameter->row->buffer && !parameter->row->of_model_dtype : rule.fp32;
    link.megatron = fill(rule.megatron, at);
    Indices numbered = at;  // Hugging Face counts all layers inside MTP layers
    if (at.mtp >= 0) numbered.mtp = at.layer - a_.layers;
    for (std::string_view name : rule.hugging_face) {
      link.hugging_face.push_back(fill(name, numbered, &family_));
    }
    if (parameter) {
      link.row = parameter->row;
      link.layer = at.layer;
      link.shape = parameter->row->extents(in_layer(at.layer));
      if (link.row->is_zero_centered_norm()) link.addend = addend_of(rule);
    }
    const bool has_experts_apart =
        rule.hugging_face.empty() || mentions(rule.hugging_face.front(), "{expert}");
    if (mentions(rule.megatron, "{expert}") && !has_experts_apart) link.expert = at.expert;
    for (const AxisSize size : rule.shape) link.shape.push_back(size(a_));
    links_.push_back(std::move(link));
  }

  // The layer inside an MTP layer with which a parameter around those is written: what comes before
  // them with the first, what comes after them with the last. `inner` for all other parameters.
  int64_t place_around(const ParameterRow& row, int64_t inner) const {
    const auto is_of = [&](std::span<const ParameterRow> rows) {
      return std::ranges::any_of(rows, [&](const ParameterRow& each) { return &each == &row; });
    };
    if (is_of(mtp_input_parameters())) return 0;
    return is_of(mtp_output_parameters()) ? a_.mtp_inner_layers - 1 : inner;
  }

  const Architecture& in_layer(int64_t layer) {
    if (!a_.differs_by_layer()) return a_;
    if (layer != layer_) of_layer_ = a_.in_layer(layer);
    layer_ = layer;
    return of_layer_;
  }

  // From how Megatron stores a norm to how the family does.
  double addend_of(const Rule& rule) const {
    const bool is_less_1 = family_.zero_centered_norms && !rule.plain_norm;
    return (a_.zero_centered_norms ? 1 : 0) - (is_less_1 ? 1 : 0);
  }

  const Family& family_;
  const std::vector<Rule>& rules_;
  std::vector<std::optional<NamedParameter>> parameters_;  // of the rules; nothing for a constant
  const Architecture& a_;
  int64_t layer_ = -1;
  Architecture of_layer_;  // with the sizes of that layer
  std::vector<Link> links_;
};

}  // namespace

std::vector<Link> expand(const Family& family, const Architecture& architecture) {
  return Expansion(family, architecture).run();
}

bool Family::has_member(std::string_view key) const {
  return std::ranges::any_of(config, [&](const ConfigRow& row) {
    return std::ranges::find(row.keys, key) != row.keys.end();
  });
}

std::string Family::embedding_name() const {
  return std::string(name_in(*this, "embedding.word_embeddings.weight"));
}

std::string Family::output_layer_name() const {
  const std::string_view named = name_in(*this, "output_layer.weight");
  return std::string(named.empty() ? kOutputLayerName : named);
}

void Family::read_tensors(const std::function<bool(const std::string& name)>& has,
                          Architecture& architecture) const {
  const HasParameter has_parameter = [&](std::string_view megatron, int64_t layer) {
    const std::string_view tensor = name_in(*this, megatron);
    const int64_t mtp = std::max<int64_t>(-1, layer - architecture.layers);
    return !tensor.empty() && has(fill(tensor, {layer, 0, mtp}, this));
  };
  for (const ConfigRow& row : config) {
    if (row.read_tensors) row.read_tensors(has_parameter, architecture);
  }
}

namespace {

// Families only come: whoever holds one of them needs no lock.
class Registry {
 public:
  std::vector<const Family*> all() {
    const std::scoped_lock lock(mutex_);
    std::vector<const Family*> all;
    for (const Family& family : families_) all.push_back(&family);
    return all;
  }

  const Family& add(Family family) {
    const std::scoped_lock lock(mutex_);
    if (std::ranges::find(families_, family.name, &Family::name) != families_.end()) {
      fail(ErrorKind::invalid, "there is a family {} already", family.name);
    }
    return families_.emplace_back(std::move(family));
  }

 private:
  std::mutex mutex_;
  std::deque<Family> families_ = built_in_families();
};

Registry& registry() {
  static Registry registry;
  return registry;
}

}  // namespace

std::vector<const Family*> families() { return registry().all(); }

const Family* find_family(std::string_view name) {
  for (const Family* family : families()) {
    if (family->name == name) return family;
  }
  return nullptr;
}

const Family& add_family(Family family) {
  for (const Rule& rule : family.rules) parameter_of(rule);
  if (family.embedding_name().empty()) {
    fail(ErrorKind::invalid, "family {} has no rule for embedding.word_embeddings.weight",
         family.name);
  }
  return registry().add(std::move(family));
}

}  // namespace ferry
