// What the numbers of a config.json may be, before anything is computed with them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "convert/model/family.h"

namespace ferry {

/// Checks members of a JSON object; adds a sentence to `reasons` for each that is not what it must
/// be. Missing members and null pass. Both arguments outlive this.
class NumberChecks {
 public:
  NumberChecks(const nlohmann::json& object, std::vector<std::string>& reasons)
      : object_(object), reasons_(reasons) {}

  void check(const ConfigNumber& number);
  void check_whole(std::string_view key, int64_t least, int64_t most);
  void check_real(std::string_view key);
  /// What is added to a variance lest it be 0: transformers and Megatron-LM would compute with
  /// anything, and a model of a negative one with NaN.
  void check_epsilon(std::string_view key);

 private:
  const nlohmann::json& at(std::string_view key) const;
  void reject(std::string_view key, const nlohmann::json& value, std::string_view expected);

  const nlohmann::json& object_;
  std::vector<std::string>& reasons_;
};

/// Members that `family` reads a number from and that hold none it can be, one sentence each with
/// what is found and expected. `config` holds the class's defaults where the file is silent.
std::vector<std::string> wrong_numbers(const Family& family, const nlohmann::json& config);

/// Sizes that the model must have and that `config`, without wrong numbers, does not say.
std::vector<std::string> missing_sizes(const Family& family, const Architecture& architecture,
                                       const nlohmann::json& config);

}  // namespace ferry
