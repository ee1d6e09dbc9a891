// config.json -> Architecture.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <variant>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "convert/config_json.h"
#include "convert/config_value.h"
#include "convert/convert.h"
#include "convert/model/config_numbers.h"
#include "convert/model/sizes.h"
#include "convert/recognise.h"
#include "convert/unread_members.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr double kSameFactor = 1e-6;  // relative

// What a config.json of any family means where it is silent; Family::defaults come first.
constexpr const char* kDefaults = R"({
  "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.02,
  "attention_dropout": 0.0, "tie_word_embeddings": false})";

// Members that say nothing about the model, or that are compared by their meaning.
constexpr std::string_view kNotCompared[] = {
    "architectures", "model_type",   "dtype",           "torch_dtype",  "use_cache", "bos_token_id",
    "eos_token_id",  "pad_token_id", "rope_parameters", "rope_scaling", "rope_theta"};

// Members that matter for further training alone: another value is told, not refused.
constexpr std::string_view kTrainingOnly[] = {
    "initializer_range", "attention_dropout",    "attn_pdrop",    "resid_pdrop",
    "embd_pdrop",        "router_aux_loss_coef", "aux_loss_alpha"};

void read_fields(const Family& family, const json& config, Architecture& a) {
  for (const ConfigField& field : family.fields) {
    const std::string key(field.key);
    std::visit(
        [&](auto member) {
          using T = std::remove_reference_t<decltype(a.*member)>;
          if constexpr (std::is_same_v<T, bool>) {
            a.*member = boolean_of(config, key.c_str(), a.*member);
          } else if constexpr (std::is_same_v<T, double>) {
            a.*member = number_of(config, key.c_str(), a.*member);
          } else {
            a.*member = integer_of(config, key.c_str(), a.*member);
          }
        },
        field.member);
  }
}

std::string scaling_type(const json& scaling) {
  return text_of(scaling, "rope_type", text_of(scaling, "type", "default"));
}

void read_rope(const json& config, Architecture& a) {
  const json scaling = rope_scaling_of(config);
  a.rope_theta = number_of(scaling, "rope_theta", number_of(config, "rope_theta", a.rope_theta));
  const std::string type = scaling_type(scaling);
  if (type == "linear") a.rope_scaling = RopeScaling::linear;
  if (type == "llama3") a.rope_scaling = RopeScaling::llama3;
  if (type == "yarn") a.rope_scaling = RopeScaling::yarn;
  if (a.rope_scaling == RopeScaling::none) return;
  a.rope_factor = number_of(scaling, "factor", 1);
  if (a.rope_scaling == RopeScaling::linear) return;
  const char* original = "original_max_position_embeddings";
  a.rope_original_positions =
      integer_of(scaling, original, integer_of(config, original, a.positions));
  a.rope_low_freq_factor = number_of(scaling, "low_freq_factor", a.rope_low_freq_factor);
  a.rope_high_freq_factor = number_of(scaling, "high_freq_factor", a.rope_high_freq_factor);
  a.rope_beta_fast = number_of(scaling, "beta_fast", a.rope_beta_fast);
  a.rope_beta_slow = number_of(scaling, "beta_slow", a.rope_beta_slow);
  a.rope_mscale = number_of(scaling, "mscale", a.rope_mscale);
  a.rope_mscale_all_dim = number_of(scaling, "mscale_all_dim", a.rope_mscale_all_dim);
}

// What the family has that no member of config.json says.
void imply(const Family& family, Architecture& a) {
  const Traits& traits = family.traits;
  a.norm = traits.norm;
  a.position_kind = traits.positions;
  a.mla = traits.mla == Has::yes;
  a.qkv_bias = traits.qkv_bias == Has::yes;
  a.qk_norm = traits.qk_norm == Has::yes;
  a.shared_gate = traits.shared_gate == Has::yes;
  a.router_score = traits.scores.front();
  if (a.groups == 0) a.groups = a.heads;
  if (a.head_dim == 0 && a.heads > 0) a.head_dim = a.hidden / a.heads;
}

// `config` with what its class adds where it is silent; `defaults`: of a class that is not the
// family's own.
json completed(const Family& family, std::string_view defaults, const json& config) {
  json whole = json::parse(kDefaults);
  whole.update(json::parse(family.defaults));
  whole.update(json::parse(defaults));
  // A family's own scaling is for configurations that say nothing of any.
  const auto parameters = config.find("rope_parameters");
  if (parameters != config.end() && parameters->is_object()) whole.erase("rope_scaling");
  whole.update(config);
  return whole;
}

// Puts `config` into write_config's words as it reads it.
Architecture read(const Family& family, json& config) {
  Architecture a;
  read_fields(family, config, a);
  if (a.layers < 0 || a.layers > kMaxLayers) {
    fail(ErrorKind::invalid, "config.json: {} layers; from 1 to {} are supported", a.layers,
         kMaxLayers);
  }
  if (family.traits.positions == Positions::rope) {
    a.activation = activation_of(text_of(config, "hidden_act", ""));
    read_rope(config, a);
  }
  imply(family, a);
  if (family.read_config != nullptr) family.read_config(config, a);
  if (a.experts > 0 && a.moe_layers.empty()) a.moe_layers.assign(a.layers, true);
  return a;
}

class Checker {
 public:
  Checker(const Family& family, const Architecture& a) : family_(family), a_(a) {}

  // `config` as read() left it, `given` as the file has it.
  void compare(const json& config, const json& given) {
    std::vector<std::string> unused;
    json written = config_json(family_, a_, DType::bf16, {}, unused);
    if (config.contains("hidden_act") && written.contains("hidden_act") &&
        activation_of(text_of(config, "hidden_act", "")) == a_.activation) {
      written["hidden_act"] = config["hidden_act"];  // several names for one
    }
    const json defaults = json::parse(family_.defaults);
    for (const auto& [key, value] : config.items()) {
      if (value.is_null() || has_name(kNotCompared, key) || odd_.contains(key)) continue;
      const json& expected = written.contains(key) ? written : defaults;
      if (!expected.contains(key) || expected[key] == value) continue;
      const json& found = given.contains(key) ? given[key] : value;
      if (has_name(kTrainingOnly, key)) {
        warnings.push_back(
            fmt::format("config.json's {} is {}; it becomes {}, which matters for "
                        "further training only",
                        key, shown(found), shown(expected[key])));
      } else {
        reasons.push_back(fmt::format("{} is {}, in Megatron a model of family {} has {}", key,
                                      shown(found), family_.name, shown(expected[key])));
      }
    }
  }

  // Members of another kind than they should be, and those that contradict each other because
  // Megatron has one setting for all of them. They are not compared any more.
  void check_fields(const json& given) {
    for (const ConfigField& field : family_.fields) {
      const std::string key(field.key);
      const json value = given.value(key, json());
      const bool is_flag = std::holds_alternative<bool Architecture::*>(field.member);
      if (value.is_null() || !is_flag || value.is_boolean()) continue;
      odd_.insert(key);
      reasons.push_back(fmt::format("{} is {}, not true or false", key, shown(value)));
    }
    for (const ConfigField& field : family_.fields) {
      for (const ConfigField& other : family_.fields) {
        if (&other <= &field || other.member != field.member) continue;
        const bool one = boolean_of(given, std::string(field.key).c_str(), false);
        const bool another = boolean_of(given, std::string(other.key).c_str(), false);
        if (!std::holds_alternative<bool Architecture::*>(field.member) || one == another) continue;
        odd_.insert({std::string(field.key), std::string(other.key)});
        reasons.push_back(fmt::format("{} is {} and {} is {}: Megatron has one setting for both",
                                      field.key, one, other.key, another));
      }
    }
  }

  void check_rope(const json& config) {
    if (family_.traits.positions != Positions::rope) return;
    const json scaling = rope_scaling_of(config);
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
      const json value = config.value(key, json());
      if (value.is_null() || value.is_object()) continue;
      reasons.push_back(fmt::format("{} is {}, not an object", key, shown(value)));
    }
    const std::string type = scaling_type(scaling);
    const bool known = type == "default" || a_.rope_scaling != RopeScaling::none;
    const bool nested = std::any_of(scaling.begin(), scaling.end(),
                                    [](const json& value) { return value.is_object(); });
    if (!known || nested) {
      reasons.push_back(fmt::format("the scaling of positions is {}, which Megatron has not",
                                    nested ? "by kind of layer" : type));
    }
    const double rotated =
        number_of(scaling, "partial_rotary_factor", number_of(config, "partial_rotary_factor", 1));
    if (rotated != 1) {
      reasons.push_back(
          fmt::format("partial_rotary_factor is {}, here all of a head is rotated", rotated));
    }
    if (a_.rope_scaling == RopeScaling::yarn) check_yarn(scaling);
  }

  std::vector<std::string> reasons, warnings;

 private:
  // transformers takes the quotient only where both factors are said.
  void check_yarn(const json& scaling) {
    const double scale = number_of(scaling, "mscale", 0);
    const double all = number_of(scaling, "mscale_all_dim", 0);
    const bool both = scale != 0 && all != 0;
    const double usual = both ? yarn_scale(a_.rope_factor, scale) / yarn_scale(a_.rope_factor, all)
                              : yarn_scale(a_.rope_factor, 1);
    const double wanted = number_of(scaling, "attention_factor", usual);
    const double megatron = yarn_scale(a_.rope_factor, a_.rope_mscale) /
                            yarn_scale(a_.rope_factor, a_.rope_mscale_all_dim);
    if (std::fabs(wanted - megatron) > kSameFactor * std::fabs(wanted)) {
      reasons.push_back(fmt::format("YaRN's attention factor is {}, Megatron's formula gives {}",
                                    wanted, megatron));
    }
    if (!boolean_of(scaling, "truncate", true)) {
      reasons.push_back("YaRN's truncate is false, Megatron always rounds the bounds");
    }
  }

  const Family& family_;
  const Architecture& a_;
  std::set<std::string> odd_;  // members that were refused as they are
};

// What the file leaves to a class that is not known: the family's is assumed. What matters for
// training only is left out.
std::vector<std::string> assumed(const json& config, const json& whole) {
  std::vector<std::string> members;
  const json scaling = rope_scaling_of(config);
  for (const auto& [key, value] : whole.items()) {
    const auto given = config.find(key);
    const bool said = given != config.end() && !given->is_null();
    if (said || value.is_null() || scaling.contains(key) || has_name(kTrainingOnly, key)) continue;
    members.push_back(fmt::format("{} {}", key, shown(value)));
  }
  return members;
}

// Members that the family does not read: they change nothing in the class that it is of, and
// perhaps the whole computation of another one.
void check_unread(const FamilyChoice& choice, const Architecture& a, const json& config,
                  const json& whole, std::vector<std::string>& reasons,
                  std::vector<std::string>& warnings) {
  const Family& family = *choice.family;
  const std::vector<UnreadMember> unread = unread_members(family, a, whole);
  if (choice.how == FamilyChoice::How::its_own) {
    std::vector<std::string> names;
    for (const UnreadMember& each : unread) names.push_back(each.name + " " + each.value);
    if (names.empty()) return;
    warnings.push_back(fmt::format("config.json has members that {} does not read: {}",
                                   family.class_name, fmt::join(names, ", ")));
    return;
  }
  // The class of a type that is known may read the member: its user is not asked.
  const bool known = choice.how == FamilyChoice::How::same;
  for (const UnreadMember& each : unread) {
    const std::string hint =
        known ? ""
              : fmt::format(": if it changes nothing, --ignore-member {} leaves it out", each.name);
    reasons.push_back(fmt::format("{} is {}, which family {} does not read{}", each.name,
                                  each.value, family.name, hint));
  }
  if (known) return;
  const std::vector<std::string> members = assumed(config, whole);
  warnings.push_back(fmt::format(
      "{}, and is read as {} because --family says so: only its members and tensors were "
      "compared, and classes that share both may compute otherwise (ernie4_5 and helium rotate "
      "positions otherwise than llama); compare logits before you use it{}",
      text_of(config, "model_type", "").empty()
          ? "config.json has no model_type"
          : fmt::format("config.json's model_type {} is not known",
                        text_of(config, "model_type", "")),
      family.name,
      members.empty()
          ? ""
          : fmt::format("; assumed, as config.json does not say: {}", fmt::join(members, ", "))));
}

// Classes that the folder brings along, which transformers takes with trust_remote_code.
void warn_of_code(const json& config, const Family& family, std::vector<std::string>& warnings) {
  const auto map = config.find("auto_map");
  if (map == config.end() || !map->is_object() || map->empty()) return;
  const std::string model = text_of(*map, "AutoModelForCausalLM", "");
  warnings.push_back(fmt::format(
      "config.json names code of the folder's own (auto_map{}), whose computation is not known: "
      "the "
      "model is read as {}'s class; auto_map is not carried along, convert --to hf --fill-from "
      "FOLDER puts it back",
      model.empty() ? "" : ": " + model, family.name));
}

std::vector<int64_t> token_ids(const json& config, const char* key) {
  std::vector<int64_t> ids;
  const json value = config.value(key, json());
  const json all = value.is_array() ? value : json::array({value});
  for (const json& each : all) {
    if (const int64_t id = integer_of(each, -1); id >= 0) ids.push_back(id);
  }
  return ids;
}

SpecialTokens read_tokens(const json& config) {
  const auto one = [&](const char* key) {
    const std::vector<int64_t> ids = token_ids(config, key);
    return ids.empty() ? std::nullopt : std::optional(ids.front());
  };
  return {one("bos_token_id"), one("pad_token_id"), token_ids(config, "eos_token_id")};
}

void refuse(const std::vector<std::string>& reasons, const std::string& path) {
  if (reasons.empty()) return;
  fail(ErrorKind::unsupported, "{}: cannot become a Megatron model:\n  {}", path,
       fmt::join(reasons, "\n  "));
}

}  // namespace

Architecture read_architecture(const Family& family, const json& config) {
  json whole = completed(family, "{}", config);
  return read(family, whole);
}

ReadConfig read_config(const json& given, const std::optional<std::string>& wanted,
                       const std::string& path, const std::vector<std::string>& ignored) {
  ReadConfig result;
  json config = given;
  result.warnings = remove_members(ignored, path, config);
  const FamilyChoice choice = choose_family(config, wanted, path);
  result.family = choice.family;
  result.quantisation = quantisation_of(&given);
  result.tokens = read_tokens(config);
  json whole = completed(*result.family, choice.defaults, config);
  refuse(wrong_numbers(*result.family, whole), path);
  const json before = whole;
  result.architecture = read(*result.family, whole);
  refuse(missing_sizes(*result.family, result.architecture, before), path);
  warn_of_code(config, *result.family, result.warnings);
  Checker checker(*result.family, result.architecture);
  checker.check_fields(config);
  checker.compare(whole, config);
  checker.check_rope(before);
  result.warnings.insert(result.warnings.end(), checker.warnings.begin(), checker.warnings.end());
  tell_differences(*result.family, result.architecture, result.warnings);
  std::vector<std::string> reasons = objections(*result.family, result.architecture);
  reasons.insert(reasons.begin(), checker.reasons.begin(), checker.reasons.end());
  check_unread(choice, result.architecture, config, before, reasons, result.warnings);
  refuse(reasons, path);
  check_sizes(result.architecture, path, "its members");
  return result;
}

}  // namespace ferry
