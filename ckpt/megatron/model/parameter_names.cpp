#include "ckpt/megatron/model/parameter_names.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace ferry {
namespace {

constexpr std::string_view kDecoderLayerNames = "decoder.layers.", kMtpLayerNames = "mtp.layers.";

// The rows of a list of blocks by name, each with its place in the list.
class RowIndex {
 public:
  void add(std::span<const ParameterRow> rows, const Block* block = nullptr) {
    for (const ParameterRow& row : rows) {
      rows_.emplace(row.name, NamedParameter{&row, block, next_, next_});
      next_ += 1 + static_cast<int>(row.stored_pieces().size());
    }
  }

  // After the last row: norms are registered where their own modules are.
  void place_separate_norms() {
    for (auto& [name, parameter] : rows_) {
      const auto found = rows_.find(parameter.row->separate_norm);
      if (found != rows_.end()) parameter.separate_order = found->second.order;
    }
  }

  std::optional<NamedParameter> find(std::string_view name) const {
    const auto found = rows_.find(name);
    return found != rows_.end() ? std::optional(found->second) : std::nullopt;
  }

  // Also pieces of parameters.
  std::optional<NamedParameter> find_part(std::string_view name) const {
    if (auto whole = find(name)) return whole;
    const size_t end = name.find_last_of("._");
    auto part = end != std::string_view::npos ? find(name.substr(0, end)) : std::nullopt;
    if (!part) return std::nullopt;
    const auto pieces = part->row->stored_pieces();
    const auto piece = std::ranges::find(pieces, name.substr(end), &RowPiece::suffix);
    if (piece == pieces.end()) return std::nullopt;
    part->piece = static_cast<int>(piece - pieces.begin());
    part->order += part->piece;
    part->separate_order = part->order;
    return part;
  }

 private:
  std::unordered_map<std::string_view, NamedParameter> rows_;
  int next_ = 0;
};

const RowIndex& layer_rows() {
  static const RowIndex kRows = [] {
    RowIndex rows;
    for (const Block& block : layer_blocks()) rows.add(block.parameters, &block);
    rows.place_separate_norms();
    return rows;
  }();
  return kRows;
}

RowIndex index_of(std::span<const ParameterRow> rows) {
  RowIndex index;
  index.add(rows);
  return index;
}

}  // namespace

std::optional<NamedParameter> layer_parameter(std::string_view suffix) {
  constexpr std::string_view kKinds = "self_attention_";
  if (suffix.starts_with(kKinds)) {
    const std::string plain = without_kind(suffix);
    return plain.starts_with(kKinds) ? std::nullopt : layer_parameter(plain);
  }
  if (!suffix.starts_with(kRoutedExperts)) return layer_rows().find_part(suffix);
  std::string_view rest = suffix.substr(kRoutedExperts.size());
  const auto number = leading_number(rest, &rest);
  auto found = layer_rows().find_part(std::string(kRoutedExperts).append(rest));
  if (found) found->expert = number.value_or(-1);
  return found;
}

std::optional<NamedParameter> mtp_parameter(std::string_view suffix) {
  static const RowIndex kInput = index_of(mtp_input_parameters());
  static const RowIndex kOutput = index_of(mtp_output_parameters());
  constexpr int kAfterAll = 1 << 20;  // parameters of the inner layer
  auto found = kInput.find(suffix);
  const int first = found ? -kAfterAll : kAfterAll;
  if (!found) found = kOutput.find(suffix);
  if (found) found->separate_order = found->order += first;
  return found;
}

std::optional<NamedParameter> find_parameter(std::string_view name) {
  static const RowIndex kOutside = [] {
    RowIndex rows;
    rows.add(embedding_parameters());
    rows.add(head_parameters());
    rows.add(layer_embedding_parameters());
    return rows;
  }();
  const bool mtp = name.starts_with(kMtpLayerNames);
  if (!mtp && !name.starts_with(kDecoderLayerNames)) {
    constexpr std::string_view kHybridNorm = "decoder.final_norm.";
    if (!name.starts_with(kHybridNorm)) return kOutside.find(name);
    return kOutside.find(
        std::string("decoder.final_layernorm.").append(name.substr(kHybridNorm.size())));
  }
  std::string_view suffix = name.substr(mtp ? kMtpLayerNames.size() : kDecoderLayerNames.size());
  leading_number(suffix, &suffix);
  if (!mtp) return layer_parameter(suffix);
  if (const auto inner = inside_mtp(suffix)) return layer_parameter(*inner);
  return mtp_parameter(suffix);
}

bool is_buffer(std::string_view name) {
  const auto found = find_parameter(name);
  return found && found->row->buffer;
}

bool is_fp32_buffer(std::string_view name) {
  const auto found = find_parameter(name);
  return found && found->row->buffer && !found->row->of_model_dtype;
}

std::optional<std::string_view> inside_mtp(std::string_view suffix, int64_t* layer) {
  constexpr std::string_view kInnerLayers = "layers.";
  for (std::string_view prefix : {"transformer_layer.", "mtp_model_layer."}) {
    if (!suffix.starts_with(prefix)) continue;
    std::string_view inner = suffix.substr(prefix.size());
    std::optional<int64_t> number;
    if (inner.starts_with(kInnerLayers)) {
      number = leading_number(inner.substr(kInnerLayers.size()), &inner);
    }
    if (layer != nullptr) *layer = number.value_or(0);
    return inner;
  }
  return std::nullopt;
}

std::string usual_spelling(std::string name) {
  constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {
      {"decoder.final_norm.", "decoder.final_layernorm."},
      {".mtp_model_layer.", ".transformer_layer."},
      {".mixer.conv1d_", ".mixer.conv1d."},
      {".self_attention.q_norm.", ".self_attention.q_layernorm."},
      {".self_attention.k_norm.", ".self_attention.k_layernorm."},
      {".mlp.0.", ".mlp.linear_fc1.layer_norm_"},
      {".mlp.1.basic_ops.0.", ".mlp.linear_fc1."},
      {".mlp.1.basic_ops.1.", ".mlp.linear_fc1."},
      {".mlp.3.basic_ops.0.", ".mlp.linear_fc2."},
      {".mlp.3.basic_ops.1.", ".mlp.linear_fc2."},
  };
  if (!name.starts_with("decoder.") && !name.starts_with(kMtpLayerNames)) return name;
  for (const auto& [other, usual] : kSpellings) {
    if (const size_t at = name.find(other); at != std::string::npos) {
      name.replace(at, other.size(), usual);
    }
  }
  return name;
}

std::string separate_norm_name(std::string_view name, const NamedParameter& parameter) {
  const ParameterRow& row = *parameter.row;
  if (row.separate_norm.empty()) return std::string(name);
  name.remove_suffix(row.name.size());
  return std::string(name).append(row.separate_norm);
}

std::optional<int64_t> leading_number(std::string_view text, std::string_view* rest) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  constexpr int64_t kMost = int64_t{1} << 30;  // layers, experts
  if (error != std::errc() || number < 0 || number > kMost || text.starts_with('-')) {
    return std::nullopt;
  }
  const size_t used = end - text.data();
  if (used < text.size() && text[used] != '.') return std::nullopt;
  *rest = text.substr(std::min(text.size(), used + 1));
  return number;
}

namespace {

constexpr std::string_view kLayerNames = "decoder.layers.";

}  // namespace

GlobalName global_name(std::string_view local, bool stacked, int64_t layers,
                       const AttentionKinds& kinds) {
  GlobalName global;
  global.name = local;
  std::string_view rest;
  if (local.starts_with(kLayerNames)) {
    const auto layer = leading_number(local.substr(kLayerNames.size()), &rest);
    global.layer = layer.value_or(-1);
    global.layer_axis = layer && stacked;
    if (layer && kinds) {
      const std::string suffix = kinds.with_kind(rest, *layer);
      global.name = std::string(local.substr(0, local.size() - rest.size())).append(suffix);
    }
    if (global.layer_axis) {
      global.name = std::string(kLayerNames) + kinds.with_kind(rest, *layer);
      const std::vector<int64_t> of_stack = kinds.layers_of(global.name, layers);
      global.stack = static_cast<int64_t>(of_stack.size());
      global.place = std::ranges::find(of_stack, *layer) - of_stack.begin();
    }
  }
  const size_t experts = global.name.find(kRoutedExperts);
  if (experts == std::string::npos) return global;
  const size_t number = experts + kRoutedExperts.size();
  if (const auto expert = leading_number(std::string_view(global.name).substr(number), &rest)) {
    global.expert = *expert;
    global.expert_axis = true;
    global.name = global.name.substr(0, number) + std::string(rest);
  }
  return global;
}

bool layers_are_alike(const std::vector<std::string>& names) {
  std::map<int64_t, std::set<std::string>> suffixes;
  for (const std::string& name : names) {
    GlobalName global = global_name(name, true);
    if (global.layer >= 0) suffixes[global.layer].insert(std::move(global.name));
  }
  return std::all_of(suffixes.begin(), suffixes.end(),
                     [&](const auto& layer) { return layer.second == suffixes.begin()->second; });
}

}  // namespace ferry
