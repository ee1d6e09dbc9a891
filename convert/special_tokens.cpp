#include "convert/special_tokens.h"

namespace ferry {
namespace {

constexpr const char* kBos = "bos_token_id";
constexpr const char* kEos = "eos_token_id";
constexpr const char* kPad = "pad_token_id";

std::optional<int64_t> id_of(const Value& value) {
  const std::optional<int64_t> id = value.integer();
  return id && *id >= 0 ? id : std::nullopt;
}

}  // namespace

SpecialTokens tokens_of_arguments(const Value& args) {
  SpecialTokens tokens{id_of(args.get(kBos)), id_of(args.get(kPad)), {}};
  const Value eos = args.get(kEos);
  if (const auto id = id_of(eos)) tokens.eos.push_back(*id);
  for (size_t i = 0; i < eos.size(); ++i) {
    if (const auto id = id_of(eos[i])) tokens.eos.push_back(*id);
  }
  return tokens;
}

void write_tokens(const SpecialTokens& tokens, Draft& draft, const Value& args) {
  if (tokens.bos) draft.put(args, kBos, draft.integer(*tokens.bos));
  if (tokens.pad) draft.put(args, kPad, draft.integer(*tokens.pad));
  if (tokens.eos.empty()) return;
  std::vector<Value> ids;
  for (const int64_t id : tokens.eos) ids.push_back(draft.integer(id));
  draft.put(args, kEos, ids.size() == 1 ? ids.front() : draft.list(ids));
}

}  // namespace ferry
