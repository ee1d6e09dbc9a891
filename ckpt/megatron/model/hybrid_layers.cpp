#include "ckpt/megatron/model/hybrid_layers.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr std::pair<char, LayerKind> kKindLetters[] = {{'M', LayerKind::mamba},
                                                       {'*', LayerKind::attention},
                                                       {'-', LayerKind::mlp},
                                                       {'E', LayerKind::mixture}};
constexpr size_t kMostPatternLetters = size_t{1} << 16;
constexpr std::string_view kPattern = "hybrid_layer_pattern",
                           kOldPattern = "hybrid_override_pattern",
                           kOldMtpPattern = "mtp_hybrid_override_pattern";

LayerKind kind_of(char letter, std::string_view text) {
  for (const auto& [each, kind] : kKindLetters) {
    if (each == letter) return kind;
  }
  fail(ErrorKind::unsupported,
       "the hybrid layer pattern {} has layers of kind '{}'; Mamba (M), attention (*), MLP (-) and "
       "mixtures (E) are known",
       text, letter);
}

char letter_of(LayerKind kind) {
  for (const auto& [letter, each] : kKindLetters) {
    if (each == kind) return letter;
  }
  fail(ErrorKind::internal, "a layer of no kind that hybrid models have");
}

std::vector<LayerKind> kinds_of(std::string_view letters, std::string_view text) {
  std::vector<LayerKind> kinds;
  for (const char letter : letters) kinds.push_back(kind_of(letter, text));
  return kinds;
}

std::string text_of(const Value& args, std::string_view name) {
  return std::string(args.get(name).string().value_or(""));
}

}  // namespace

HybridPattern parse_hybrid_pattern(std::string_view text) {
  if (text.size() > kMostPatternLetters) {
    fail(ErrorKind::unsupported, "a hybrid layer pattern of {} letters; the maximum is {}",
         text.size(), kMostPatternLetters);
  }
  HybridPattern pattern;
  const size_t slash = std::min(text.find('/'), text.size());
  std::string_view decoder = text.substr(0, slash), mtp = text.substr(slash);
  for (bool more = decoder.find('|') != std::string_view::npos; !decoder.empty() || more;) {
    const size_t end = std::min(decoder.find('|'), decoder.size());
    const auto stage = kinds_of(decoder.substr(0, end), text);
    pattern.decoder.insert(pattern.decoder.end(), stage.begin(), stage.end());
    const bool is_last = end == decoder.size();
    if (more || !is_last) pattern.stage_layers.push_back(static_cast<int64_t>(stage.size()));
    if (is_last) break;
    decoder.remove_prefix(end + 1);
  }
  while (!mtp.empty()) {
    mtp.remove_prefix(1);
    const size_t end = std::min(mtp.find('/'), mtp.size());
    auto kinds = kinds_of(mtp.substr(0, end), text);
    if (pattern.mtp_layers++ > 0 && kinds != pattern.mtp) {
      fail(ErrorKind::unsupported, "the MTP layers of the hybrid layer pattern {} differ", text);
    }
    pattern.mtp = std::move(kinds);
    mtp.remove_prefix(end);
  }
  if (pattern.mtp.empty()) pattern.mtp_layers = 0;
  return pattern;
}

std::string HybridPattern::text() const {
  std::string text;
  size_t stage = 0;
  int64_t left = stage_layers.empty() ? -1 : stage_layers.front();
  const auto end_stages = [&] {
    while (left == 0 && stage + 1 < stage_layers.size()) {
      text += '|';
      left = stage_layers[++stage];
    }
  };
  for (const LayerKind kind : decoder) {
    end_stages();
    text += letter_of(kind);
    --left;
  }
  end_stages();
  for (int64_t layer = 0; layer < mtp_layers; ++layer) {
    text += '/';
    for (const LayerKind kind : mtp) text += letter_of(kind);
  }
  return text;
}

std::optional<HybridPattern> hybrid_pattern(const Value& args) {
  std::string text = text_of(args, kPattern);
  if (text.empty()) text = text_of(args, kOldPattern);
  if (text.empty()) return std::nullopt;
  const std::string mtp = text_of(args, kOldMtpPattern);
  HybridPattern pattern = parse_hybrid_pattern(text);
  if (pattern.mtp.empty() && !mtp.empty()) {
    pattern.mtp = kinds_of(mtp, mtp);
    const int64_t depths = args.get("mtp_num_layers").integer().value_or(0);
    if (depths < 0 || depths > static_cast<int64_t>(kMostPatternLetters / mtp.size())) {
      fail(ErrorKind::unsupported, "{} MTP layers of {} layers each (mtp_num_layers)", depths,
           mtp.size());
    }
    pattern.mtp_layers = depths;
  }
  return pattern;
}

HybridPattern pattern_of(const Architecture& a) {
  HybridPattern pattern;
  if (static_cast<int64_t>(a.kinds.size()) < a.all_layers()) return pattern;  // it is not a hybrid
  const auto begin = a.kinds.begin(), decoder_end = begin + a.layers;
  pattern.decoder.assign(begin, decoder_end);
  pattern.mtp_layers = a.mtp_layers;
  if (a.mtp_layers > 0) pattern.mtp.assign(decoder_end, decoder_end + a.mtp_inner_layers);
  return pattern;
}

void set_layers(const HybridPattern& pattern, Architecture& a) {
  a.layers = static_cast<int64_t>(pattern.decoder.size());
  a.mtp_layers = pattern.mtp_layers;
  a.mtp_inner_layers = std::max<int64_t>(1, static_cast<int64_t>(pattern.mtp.size()));
  a.kinds = pattern.decoder;
  for (int64_t layer = 0; layer < a.mtp_layers; ++layer) {
    a.kinds.insert(a.kinds.end(), pattern.mtp.begin(), pattern.mtp.end());
  }
  a.moe_layers.clear();
  for (const LayerKind kind : a.kinds) a.moe_layers.push_back(kind == LayerKind::mixture);
}

std::optional<LayerKind> mlp_of_gpt(const std::vector<LayerKind>& kinds) {
  if (kinds.size() % 2 != 0 || kinds.empty()) return std::nullopt;
  const LayerKind mlp = kinds[1];
  if (mlp != LayerKind::mlp && mlp != LayerKind::mixture) return std::nullopt;
  for (size_t layer = 0; layer < kinds.size(); layer += 2) {
    if (kinds[layer] != LayerKind::attention || kinds[layer + 1] != mlp) return std::nullopt;
  }
  return mlp;
}

std::string hybrid_spelling(std::string name) {
  constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {
      {"decoder.final_layernorm.", "decoder.final_norm."},
      {".transformer_layer.", ".mtp_model_layer."}};
  for (const auto& [usual, hybrid] : kSpellings) {
    if (const size_t at = name.find(usual); at != std::string::npos) {
      name.replace(at, usual.size(), hybrid);
    }
  }
  return name;
}

}  // namespace ferry
