#include "convert/model/config_numbers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <variant>

#include "convert/config_value.h"

namespace ferry {
namespace {

using nlohmann::json;
using Member = int64_t Architecture::*;

constexpr size_t kMostShown = 80;  // bytes

struct Range {
  int64_t least = 1, most = kMaxModelSize;
};

Range range_of(Member member) {
  using A = Architecture;
  static constexpr struct {
    Member member;
    Range range;
  } kRanges[] = {
      {&A::layers, {1, kMaxLayers}},  {&A::mtp_layers, {0, kMaxLayers}},
      {&A::heads, {1, kMaxHeads}},    {&A::groups, {1, kMaxHeads}},
      {&A::head_dim, {1, kMaxHeads}}, {&A::experts, {0, kMaxExperts}},
      {&A::expert_ffn, {0}},          {&A::experts_per_token, {0, kMaxExperts}},
      {&A::shared_ffn, {0}},
  };
  const auto* found = std::find_if(std::begin(kRanges), std::end(kRanges),
                                   [&](const auto& each) { return each.member == member; });
  return found != std::end(kRanges) ? found->range : Range();
}

std::string expectation(Range range) {
  return fmt::format("a whole number from {} to {}", range.least, range.most);
}

class Numbers {
 public:
  explicit Numbers(const json& config) : config_(config) {}

  void check_whole(std::string_view key, Range range) {
    const json& value = at(key);
    if (value.is_null()) return;
    const int64_t number = integer_of(value, -1);  // which no range holds
    if (number < range.least || number > range.most) object(key, value, expectation(range));
  }

  void check_real(std::string_view key) {
    const json& value = at(key);
    if (value.is_null() || (value.is_number() && std::isfinite(value.get<double>()))) return;
    object(key, value, value.is_number() ? "a finite number" : "a number");
  }

  // What is added to a variance lest it be 0: transformers and Megatron-LM would compute with
  // anything, and a model of a negative one with NaN.
  void check_epsilon(std::string_view key) {
    check_real(key);
    const json& value = at(key);
    const double number = value.is_number() ? value.get<double>() : NAN;
    if (std::isfinite(number) && (number <= 0 || number >= 1)) {
      object(key, value, "a number above 0 and below 1");
    }
  }

  std::vector<std::string> reasons;

 private:
  const json& at(std::string_view key) const {
    static const json none;
    const auto found = config_.find(std::string(key));
    return found != config_.end() ? *found : none;
  }

  void object(std::string_view key, const json& value, std::string_view expected) {
    std::string reason = fmt::format("{} is {}, not {}", key, shown(value), expected);
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) {
      reasons.push_back(std::move(reason));
    }
  }

  const json& config_;
};

void check_rope(const json& config, Numbers& numbers) {
  constexpr std::string_view kReal[] = {"rope_theta",       "partial_rotary_factor",
                                        "factor",           "low_freq_factor",
                                        "high_freq_factor", "beta_fast",
                                        "beta_slow",        "mscale",
                                        "mscale_all_dim",   "attention_factor"};
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  numbers.check_real("rope_theta");
  numbers.check_real("partial_rotary_factor");
  numbers.check_whole(kOriginal, {});
  const json scaling = rope_scaling_of(config);
  Numbers of_scaling(scaling);
  for (const std::string_view key : kReal) of_scaling.check_real(key);
  of_scaling.check_whole(kOriginal, {});
  numbers.reasons.insert(numbers.reasons.end(), of_scaling.reasons.begin(),
                         of_scaling.reasons.end());
}

// The keys that say a member, in the family's words.
std::vector<std::string> keys_of(const Family& family, Member member) {
  std::vector<std::string> keys;
  for (const ConfigField& field : family.fields) {
    const Member* size = std::get_if<Member>(&field.member);
    if (size != nullptr && *size == member) keys.emplace_back(field.key);
  }
  return keys;
}

}  // namespace

std::string shown(const json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double number = value.get<double>();
    return std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
  }
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMostShown) text.resize(kMostShown), text += "...";
  return text;
}

std::vector<std::string> wrong_numbers(const Family& family, const json& config) {
  Numbers numbers(config);
  for (const ConfigField& field : family.fields) {
    if (const Member* size = std::get_if<Member>(&field.member)) {
      numbers.check_whole(field.key, range_of(*size));
    } else if (field.member == decltype(field.member)(&Architecture::norm_eps)) {
      numbers.check_epsilon(field.key);
    } else if (std::holds_alternative<double Architecture::*>(field.member)) {
      numbers.check_real(field.key);
    }
  }
  for (const ConfigNumber& number : family.numbers) {
    const bool means_something =
        number.with.empty() || boolean_of(config, std::string(number.with).c_str(), false);
    if (!means_something) continue;
    if (number.real) {
      numbers.check_real(number.key);
    } else {
      numbers.check_whole(number.key, {number.least, number.most});
    }
  }
  if (family.traits.positions == Positions::rope) check_rope(config, numbers);
  return std::move(numbers.reasons);
}

std::vector<std::string> missing_sizes(const Family& family, const Architecture& a,
                                       const json& config) {
  using A = Architecture;
  std::vector<Member> needed = {&A::layers, &A::hidden,    &A::heads,
                                &A::ffn,    &A::positions, &A::vocab};
  if (a.mla) {
    needed.insert(needed.end(), {&A::kv_lora_rank, &A::qk_nope_dim, &A::qk_rope_dim, &A::v_dim});
  }
  const int64_t dense = integer_of(config, "first_k_dense_replace", a.layers);
  const bool may_be_dense = family.traits.moe == Has::either && dense >= a.layers;
  if (family.traits.moe != Has::no && !may_be_dense) needed.push_back(&A::experts);
  if (a.experts > 0) {
    needed.insert(needed.end(), {&A::experts_per_token, &A::expert_ffn});
    if (family.traits.shared_expert == Has::yes) needed.push_back(&A::shared_ffn);
  }
  std::vector<std::string> reasons;
  for (const Member member : needed) {
    const std::vector<std::string> keys = keys_of(family, member);
    if (a.*member >= 1 || keys.empty()) continue;
    const std::string expected = expectation({1, range_of(member).most});
    const auto said = std::find_if(keys.begin(), keys.end(),
                                   [&](const std::string& key) { return config.contains(key); });
    reasons.push_back(
        said != keys.end()
            ? fmt::format("{} is {}, not {}", *said, shown(config[*said]), expected)
            : fmt::format("{} is missing; it must be {}", fmt::join(keys, " or "), expected));
  }
  if (a.experts > 0 && a.experts_per_token > a.experts) {
    reasons.push_back(fmt::format("a token goes to {} experts ({}) where there are {} ({})",
                                  a.experts_per_token,
                                  keys_of(family, &A::experts_per_token).front(), a.experts,
                                  keys_of(family, &A::experts).front()));
  }
  return reasons;
}

}  // namespace ferry
