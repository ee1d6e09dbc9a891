// The YAML that PyYAML's safe_dump writes by default: block mappings and sequences, plain or quoted
// scalars, anchors and aliases, short flow sequences. Enough for configuration files that programs
// wrote; no tags, no block scalars, no complex keys.
//
// Source: YAML 1.1; PyYAML lib/yaml/emitter.py.
#pragma once

#include <memory>
#include <string_view>

#include "ckpt/format/pickle/values/value.h"

namespace ferry {

/// Mappings become dicts, sequences lists, scalars none, boolean, integer, real or string. An alias
/// is the anchored value itself. corrupt with the line number for anything that does not fit;
/// exhausted for nesting deeper than 64. `what` names the file for messages.
std::shared_ptr<const Document> parse_plain_yaml(std::string_view text, std::string_view what);

}  // namespace ferry
