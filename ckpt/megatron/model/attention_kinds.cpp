#include "ckpt/megatron/model/attention_kinds.h"

#include <algorithm>
#include <utility>

namespace ferry {
namespace {

constexpr std::string_view kOneKind = "self_attention.", kSlidingKind = "self_attention_sliding.",
                           kGlobalKind = "self_attention_global.";
constexpr int64_t kMostOfKinds = int64_t{1} << 16;

}  // namespace

std::vector<int64_t> AttentionKinds::layers_of(std::string_view name, int64_t layers) const {
  const bool is_windowed = name.find(kSlidingKind) != std::string_view::npos;
  const bool is_full = name.find(kGlobalKind) != std::string_view::npos;
  std::vector<int64_t> of_stack;
  for (int64_t layer = 0; layer < std::min(layers, kMostOfKinds); ++layer) {
    const auto at = static_cast<size_t>(layer);
    if (is_windowed || is_full) {
      if (at >= windowed.size() || windowed[at] != is_windowed) continue;
    }
    of_stack.push_back(layer);
  }
  return of_stack;
}

std::string AttentionKinds::with_kind(std::string_view suffix, int64_t layer) const {
  const auto at = static_cast<size_t>(layer);
  if (layer < 0 || at >= windowed.size() || !suffix.starts_with(kOneKind)) {
    return std::string(suffix);
  }
  return std::string(windowed[at] ? kSlidingKind : kGlobalKind)
      .append(suffix.substr(kOneKind.size()));
}

AttentionKinds attention_kinds(const Architecture& a) {
  AttentionKinds kinds;
  if (!a.attention_by_kind) return kinds;
  for (int64_t layer = 0; layer < std::min(a.layers, kMostOfKinds); ++layer) {
    kinds.windowed.push_back(a.has_window(layer));
  }
  return kinds;
}

std::vector<bool> windowed_layers(const Value& args, int64_t layers) {
  std::vector<bool> windowed;
  const Value turns = args.get("interleaved_attn_pattern");
  const Value skip = args.get("window_attn_skip_freq");
  const bool in_turn = args.get("window_size").integer().has_value() && turns.size() == 2;
  const bool is_list = skip.kind() == ValueKind::list;
  int64_t every = is_list ? 0 : skip.integer().value_or(0);
  if (in_turn) {
    const auto part = [&](size_t at) {
      return std::clamp<int64_t>(turns[at].integer().value_or(0), 0, kMostOfKinds);
    };
    every = part(0) + part(1);
  }
  if (every <= 0 && (in_turn || !is_list)) return windowed;
  for (int64_t layer = 0; layer < std::clamp<int64_t>(layers, 0, kMostOfKinds); ++layer) {
    if (every > 0) {
      windowed.push_back((layer + 1) % every != 0);
    } else {
      const auto at = static_cast<size_t>(layer);
      windowed.push_back(at < skip.size() && skip[at].integer().value_or(0) != 0);
    }
  }
  return windowed;
}

std::string without_kind(std::string_view name) {
  std::string plain(name);
  for (const std::string_view kind : {kSlidingKind, kGlobalKind}) {
    if (const size_t at = plain.find(kind); at != std::string::npos) {
      plain.replace(at, kind.size(), kOneKind);
    }
  }
  return plain;
}

}  // namespace ferry
