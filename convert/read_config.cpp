// config.json -> Architecture.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "convert/config/expressible.h"
#include "convert/config/layer_values.h"
#include "convert/config/number_checks.h"
#include "convert/config_json.h"
#include "convert/config_value.h"
#include "convert/export.h"
#include "convert/model/sizes.h"
#include "convert/recognise.h"
#include "convert/unread_members.h"

namespace ferry {
namespace {

using nlohmann::json;

// What a config.json means where it is silent, of the members that a family has; Family::defaults
// come first.
constexpr const char* kDefaults = R"({
  "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.02,
  "attention_dropout": 0.0, "tie_word_embeddings": false})";

// Members that say nothing about the model, or that are compared by their meaning.
constexpr std::string_view kNotCompared[] = {
    "architectures", "model_type",   "dtype",           "torch_dtype",  "use_cache", "bos_token_id",
    "eos_token_id",  "pad_token_id", "rope_parameters", "rope_scaling", "rope_theta"};

// Members that matter for further training alone: another value is reported, not refused.
constexpr std::string_view kTrainingOnly[] = {
    "initializer_range", "attention_dropout", "attn_pdrop",           "resid_pdrop",
    "embd_pdrop",        "residual_dropout",  "router_aux_loss_coef", "aux_loss_alpha"};

// `config` with what its class adds where it is silent; `defaults`: of a class that is not the
// family's own.
json completed(const Family& family, std::string_view defaults, const json& config) {
  json whole = json::object();
  const json usual = json::parse(kDefaults);
  for (const auto& [key, value] : usual.items()) {
    if (family.has_member(key)) whole[key] = value;
  }
  whole.update(json::parse(family.defaults));
  whole.update(json::parse(defaults));
  // A family's own scaling is for configurations that say nothing of any.
  const auto parameters = config.find("rope_parameters");
  if (parameters != config.end() && parameters->is_object()) whole.erase("rope_scaling");
  whole.update(config);
  return whole;
}

// Puts `config` into the words that the rows write.
Architecture read(const Family& family, json& config) {
  Architecture a;
  for (const ConfigRow& row : family.config) {
    if (row.read) row.read(config, a);
    if (a.layers < 0 || a.layers > kMaxLayers) {
      fail(ErrorKind::invalid, "config.json: {} layers; from 1 to {} are supported", a.layers,
           kMaxLayers);
    }
  }
  if (a.groups == 0) a.groups = a.heads;
  if (a.mla && a.heads > 0) a.head_dim = std::max<int64_t>(1, a.hidden / a.heads);
  if (a.head_dim == 0 && a.heads > 0) a.head_dim = a.hidden / a.heads;
  if (a.experts > 0 && a.moe_layers.empty()) a.moe_layers.assign(a.layers, true);
  return a;
}

class Checker {
 public:
  Checker(const Family& family, const Architecture& a) : family_(family), a_(a) {}

  // `config` as read() left it, `given` as the file has it.
  void compare(const json& config, const json& given) {
    const json written = members_json(family_, a_);
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
    for (const ConfigRow& row : family_.config) {
      if (row.flag == nullptr) continue;
      const std::string& key = row.keys.front();
      const json value = given.value(key, json());
      if (value.is_null() || value.is_boolean()) continue;
      odd_.insert(key);
      reasons.push_back(fmt::format("{} is {}, not true or false", key, shown(value)));
    }
    for (const ConfigRow& row : family_.config) {
      for (const ConfigRow& other : family_.config) {
        if (&other <= &row || row.flag == nullptr || other.flag != row.flag) continue;
        const std::string &key = row.keys.front(), &another = other.keys.front();
        const bool one = boolean_of(given, key.c_str(), false);
        const bool two = boolean_of(given, another.c_str(), false);
        if (one == two) continue;
        odd_.insert({key, another});
        reasons.push_back(fmt::format("{} is {} and {} is {}: Megatron has one setting for both",
                                      key, one, another, two));
      }
    }
  }

  // A class that was given null would compute with that, or fail.
  void check_nulls(const json& given) {
    for (const ConfigRow& row : family_.config) {
      for (const std::string& key : row.keys) {
        if (has_name(kTrainingOnly, key) || !given.contains(key) || !given[key].is_null()) continue;
        const bool is_nullable = std::ranges::any_of(family_.config, [&](const ConfigRow& each) {
          return std::ranges::find(each.nullable, key) != each.nullable.end();
        });
        if (is_nullable || !odd_.insert(key).second) continue;
        reasons.push_back(
            fmt::format("{} is null, which {} does not take", key, family_.class_name));
      }
    }
  }

  // Classes that have no windows of their own, too: what transformers takes from its base classes
  // (masks, caches) goes by this member.
  void check_attention_types(const json& given) {
    const auto types = given.find("layer_types");
    if (types == given.end() || types->is_null() || *types == attention_types(a_)) return;
    if (!odd_.insert("layer_types").second) return;
    reasons.push_back(fmt::format("layer_types is {}, but the model's other members say {}",
                                  shown(*types), shown(attention_types(a_))));
  }

  void check_rows(const json& config) {
    for (const ConfigRow& row : family_.config) {
      if (row.check) row.check(config, a_, reasons);
    }
  }

  std::vector<std::string> reasons, warnings;

 private:
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
    const std::string hint = known ? ""
                                   : fmt::format(": if it changes nothing, {} leaves it out",
                                                 option("ignored_members", each.name));
    reasons.push_back(fmt::format("{} is {}, which family {} does not read{}", each.name,
                                  each.value, family.name, hint));
  }
  if (known) return;
  const std::vector<std::string> members = assumed(config, whole);
  warnings.push_back(fmt::format(
      "{}, and is read as {} because {} says so: only its members and tensors were "
      "compared, and classes that share both may compute otherwise (ernie4_5 and helium rotate "
      "positions otherwise than llama); compare logits before you use it{}",
      text_of(config, "model_type", "").empty()
          ? "config.json has no model_type"
          : fmt::format("config.json's model_type {} is not known",
                        text_of(config, "model_type", "")),
      family.name, option("family"),
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
      "model is read as {}'s class; auto_map is not carried along, convert with {} and {} "
      "puts it back",
      model.empty() ? "" : ": " + model, family.name, option("to", "hugging_face"),
      option("fill_from", "DIR")));
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

ReadConfig read_config(const json& given, const std::optional<std::string>& requested,
                       const std::string& path, const std::vector<std::string>& ignored) {
  ReadConfig result;
  json config = given;
  result.warnings = remove_members(ignored, path, config);
  const FamilyChoice choice = choose_family(config, requested, path);
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
  checker.check_nulls(config);
  checker.check_fields(config);
  if (choice.how == FamilyChoice::How::its_own) checker.check_attention_types(config);
  checker.compare(whole, config);
  checker.check_rows(before);
  result.warnings.insert(result.warnings.end(), checker.warnings.begin(), checker.warnings.end());
  report_differences(*result.family, result.architecture, result.warnings);
  std::vector<std::string> reasons = unsupported_reasons(*result.family, result.architecture);
  reasons.insert(reasons.begin(), checker.reasons.begin(), checker.reasons.end());
  check_unread(choice, result.architecture, config, before, reasons, result.warnings);
  refuse(reasons, path);
  check_sizes(result.architecture, path, "its members");
  return result;
}

}  // namespace ferry
