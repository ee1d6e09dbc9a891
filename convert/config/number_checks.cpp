#include "convert/config/number_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "convert/config_value.h"

namespace ferry {
namespace {

using nlohmann::json;
using Member = int64_t Architecture::*;

std::string whole_number(int64_t least, int64_t most) {
  return fmt::format("a whole number from {} to {}", least, most);
}

// The rows of config.json that say a size.
std::vector<const ConfigRow*> rows_of(const Family& family, Member member) {
  std::vector<const ConfigRow*> rows;
  for (const ConfigRow& row : family.config) {
    if (row.size == member) rows.push_back(&row);
  }
  return rows;
}

}  // namespace

void NumberChecks::check(const ConfigNumber& number) {
  const bool matters =
      number.with.empty() || boolean_of(object_, std::string(number.with).c_str(), false);
  if (!matters) return;
  if (number.epsilon) {
    check_epsilon(number.key);
  } else if (number.real) {
    check_real(number.key);
  } else {
    check_whole(number.key, number.least, number.most);
  }
}

void NumberChecks::check_whole(std::string_view key, int64_t least, int64_t most) {
  const json& value = at(key);
  if (value.is_null()) return;
  const int64_t number = integer_of(value, -1);  // which is always below `least`
  if (number < least || number > most) reject(key, value, whole_number(least, most));
}

void NumberChecks::check_real(std::string_view key) {
  const json& value = at(key);
  if (value.is_null() || (value.is_number() && std::isfinite(value.get<double>()))) return;
  reject(key, value, value.is_number() ? "a finite number" : "a number");
}

void NumberChecks::check_epsilon(std::string_view key) {
  check_real(key);
  const json& value = at(key);
  const double number = value.is_number() ? value.get<double>() : NAN;
  if (std::isfinite(number) && (number <= 0 || number >= 1)) {
    reject(key, value, "a number above 0 and below 1");
  }
}

const json& NumberChecks::at(std::string_view key) const {
  static const json none;
  const auto found = object_.find(std::string(key));
  return found != object_.end() ? *found : none;
}

void NumberChecks::reject(std::string_view key, const json& value, std::string_view expected) {
  std::string reason = fmt::format("{} is {}, not {}", key, shown(value), expected);
  if (std::ranges::find(reasons_, reason) == reasons_.end()) reasons_.push_back(std::move(reason));
}

std::vector<std::string> wrong_numbers(const Family& family, const json& config) {
  std::vector<std::string> reasons;
  NumberChecks numbers(config, reasons);
  for (const ConfigRow& row : family.config) {
    for (const ConfigNumber& number : row.numbers) numbers.check(number);
    if (row.check_numbers) row.check_numbers(config, reasons);
  }
  return reasons;
}

std::vector<std::string> missing_sizes(const Family& family, const Architecture& a,
                                       const json& config) {
  using A = Architecture;
  std::vector<Member> needed = {&A::layers, &A::hidden,    &A::heads,
                                &A::ffn,    &A::positions, &A::vocab};
  needed.insert(needed.end(), {&A::index_heads, &A::index_dim, &A::index_tokens});
  if (a.mla) {
    needed.insert(needed.end(), {&A::kv_lora_rank, &A::qk_nope_dim, &A::qk_rope_dim, &A::v_dim});
  }
  if (a.any_linear()) {
    needed.insert(needed.end(), {&A::linear_key_heads, &A::linear_value_heads, &A::linear_key_dim,
                                 &A::linear_value_dim, &A::linear_conv});
  }
  if (a.any_mamba()) {
    needed.insert(needed.end(),
                  {&A::mamba_heads, &A::mamba_head_dim, &A::mamba_groups, &A::mamba_state});
  }
  const bool all_dense = integer_of(config, "first_k_dense_replace", 0) >= a.layers ||
                         !boolean_of(config, "enable_moe_block", true);
  const bool has_no_mixture =
      a.is_hybrid() && std::ranges::count(a.kinds, LayerKind::mixture) == 0;
  if (!all_dense && !has_no_mixture) needed.push_back(&A::experts);
  if (a.experts > 0) {
    needed.insert(needed.end(), {&A::experts_per_token, &A::expert_ffn, &A::shared_ffn});
  }
  const auto keys_of = [&](Member member) {
    std::vector<std::string> keys;
    for (const ConfigRow* row : rows_of(family, member)) keys.push_back(row->keys.front());
    return keys;
  };
  std::vector<std::string> reasons;
  for (const Member member : needed) {
    const std::vector<const ConfigRow*> rows = rows_of(family, member);
    if (a.*member >= 1 || rows.empty()) continue;
    const std::vector<std::string> keys = keys_of(member);
    const std::string expected = whole_number(1, rows.front()->numbers.front().most);
    const auto said =
        std::ranges::find_if(keys, [&](const std::string& key) { return config.contains(key); });
    reasons.push_back(
        said != keys.end()
            ? fmt::format("{} is {}, not {}", *said, shown(config[*said]), expected)
            : fmt::format("{} is missing; it must be {}", fmt::join(keys, " or "), expected));
  }
  if (a.experts > 0 && a.experts_per_token > a.experts) {
    reasons.push_back(fmt::format("a token goes to {} experts ({}) where there are {} ({})",
                                  a.experts_per_token, keys_of(&A::experts_per_token).front(),
                                  a.experts, keys_of(&A::experts).front()));
  }
  return reasons;
}

}  // namespace ferry
