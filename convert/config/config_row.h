// What a family's config.json says, as rows: each reads some of its members into an Architecture
// and writes them from one. A family can express a model when writing its rows and reading them
// again gives the same model (convert/config/expressible.h), so no row describes what it cannot do.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "convert/model/sizes.h"

namespace ferry {

/// A member that must be a whole number within these bounds, or any finite number.
struct ConfigNumber {
  std::string key = {};
  int64_t least = 0;
  int64_t most = kMaxModelSize;
  bool real = false;
  bool epsilon = false;        // above 0 and below 1: what is added to a variance lest it be 0
  std::string_view with = {};  // has a meaning only where this member is true
};

/// Whether the file has a parameter of a layer, which a rule of the family names as `megatron`
/// (with its {layer} or {mtp}).
using HasParameter = std::function<bool(std::string_view megatron, int64_t layer)>;

struct ConfigRow {
  std::vector<std::string> keys = {};      // the members that it reads or writes
  std::vector<std::string> nullable = {};  // those of them that may be null
  std::vector<ConfigNumber> numbers = {};
  int64_t Architecture::*size = nullptr;  // what the member is, where it is a size,
  bool Architecture::*flag = nullptr;     // or true or false

  /// `config` holds the defaults of its class where the file is silent. Puts what it may say in
  /// several ways into the words of `write`, with which it is compared.
  std::function<void(nlohmann::json& config, Architecture&)> read = nullptr;
  std::function<void(const Architecture&, nlohmann::json& config)> write = nullptr;

  /// What the tensors of the file say and config.json does not.
  std::function<void(const HasParameter& has, Architecture&)> read_tensors = nullptr;
  /// The same without a file: takes from `model` what its tensors would say.
  std::function<void(const Architecture& model, Architecture& read)> take_from_tensors = nullptr;

  /// Numbers beyond those above that cannot be; called before `read`.
  std::function<void(const nlohmann::json& config, std::vector<std::string>& reasons)>
      check_numbers = nullptr;
  /// Why a config.json says what Megatron's model cannot be, beyond what `write` says otherwise.
  std::function<void(const nlohmann::json& config, const Architecture&,
                     std::vector<std::string>& reasons)>
      check = nullptr;
  /// Why the class, of the family of that name, cannot load a model, though its config.json could
  /// be written.
  std::function<void(const Architecture&, std::string_view family,
                     std::vector<std::string>& reasons)>
      unsupported = nullptr;
};

}  // namespace ferry
