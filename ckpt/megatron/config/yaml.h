// Configurations that programs wrote as YAML, as values. libyaml reads; tags are passed over.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "ckpt/format/pickle/values/value.h"

namespace ferry {

/// What numbers become.
enum class YamlNumbers : uint8_t {
  values,
  text  // strings, as they are written: 1.10 and 010 are not 1.1 and 10
};

/// Mappings become dicts with strings for keys, sequences lists, scalars none, boolean, integer,
/// real or string, as YAML 1.2's core schema reads them. An alias is the anchored value itself.
/// corrupt, with the line, for what is not YAML, several documents or a key that a mapping has
/// twice; exhausted for nesting deeper than 64. `what` names the file for messages.
std::shared_ptr<const Document> parse_yaml(std::string_view text, std::string_view what,
                                           YamlNumbers numbers = YamlNumbers::values);

}  // namespace ferry
