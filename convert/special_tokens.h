// The ids of tokens that begin, end and pad texts: config.json has them, and a conversion keeps
// them among Megatron's arguments, which have no place for them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry {

struct SpecialTokens {
  std::optional<int64_t> bos, pad;
  std::vector<int64_t> eos;  // any of them ends a text
};

/// What a conversion left in `args`; nothing where it left nothing.
SpecialTokens tokens_of_arguments(const Value& args);

/// Puts them into `args`, of `draft`.
void write_tokens(const SpecialTokens& tokens, Draft& draft, const Value& args);

}  // namespace ferry
