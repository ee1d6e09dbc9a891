#include "ckpt/megatron/rank_folders/names.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/megatron/model/hybrid_layers.h"
#include "ckpt/megatron/model/parameter_names.h"

namespace ferry {
namespace {

using Replacement = std::pair<std::string_view, std::string_view>;

// Beginnings of names outside of layers, before Megatron Core (language_model.) and since.
constexpr Replacement kTopLevel[] = {
    {"language_model.encoder.", "decoder."},
    {"language_model.transformer.", "decoder."},
    {"language_model.", ""},
    {"word_embeddings_for_head.", "output_layer."},
    {"word_embeddings.", "embedding.word_embeddings."},
};

// Beginnings of names inside a layer before Megatron Core.
constexpr Replacement kBeforeCore[] = {
    {"attention.", "self_attention."},
};

constexpr Replacement kInLayer[] = {
    {"input_norm.", "input_layernorm."},
    {"post_attention_norm.", "pre_mlp_layernorm."},
    {"post_attention_layernorm.", "pre_mlp_layernorm."},
    {"self_attention.query_key_value.", "self_attention.linear_qkv."},
    {"self_attention.dense.", "self_attention.linear_proj."},
    {"mlp.dense_h_to_4h.", "mlp.linear_fc1."},
    {"mlp.dense_4h_to_h.", "mlp.linear_fc2."},
};

template <size_t kCount>
void replace_start(std::string& text, const Replacement (&table)[kCount]) {
  for (const auto& [from, to] : table) {
    if (!text.starts_with(from)) continue;
    text.replace(0, from.size(), to);
    return;
  }
}

struct LayerName {
  bool mtp = false;
  int64_t layer = -1;  // local; -1: not of a layer
  std::string suffix;  // or the whole name
};

LayerName parse(std::string name) {
  replace_start(name, kTopLevel);
  name = usual_spelling(std::move(name));
  LayerName parsed;
  for (const bool mtp : {false, true}) {
    const std::string_view prefix = mtp ? "mtp.layers." : "decoder.layers.";
    std::string_view rest;
    if (!name.starts_with(prefix)) continue;
    const auto number = leading_number(std::string_view(name).substr(prefix.size()), &rest);
    if (!number) continue;
    parsed.mtp = mtp;
    parsed.layer = *number;
    parsed.suffix = rest;
  }
  if (parsed.layer < 0) {
    parsed.suffix = name;
    return parsed;
  }
  replace_start(parsed.suffix, kBeforeCore);
  replace_start(parsed.suffix, kInLayer);
  return parsed;
}

// "mlp.experts.linear_fc1.weight3", "mlp.experts.local_experts.3.linear_fc1.weight" and the like.
bool name_expert(std::string& suffix, int64_t first_expert) {
  constexpr std::string_view kLocal = "mlp.experts.local_experts.", kAll = "mlp.experts.";
  if (suffix.starts_with(kLocal)) {
    std::string_view rest;
    const auto number = leading_number(std::string_view(suffix).substr(kLocal.size()), &rest);
    if (!number) return false;
    suffix = fmt::format("mlp.experts.experts.{}.{}", first_expert + *number, rest);
    return true;
  }
  if (!suffix.starts_with(kAll)) return false;
  const size_t digits = suffix.find_last_not_of("0123456789") + 1;
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(suffix.data() + digits, suffix.data() + suffix.size(), number);
  if (error != std::errc() || number > (int64_t{1} << 30)) return false;
  suffix = fmt::format("mlp.experts.experts.{}.{}", first_expert + number,
                       suffix.substr(kAll.size(), digits - kAll.size()));
  return true;
}

constexpr std::string_view kQkv = "self_attention.linear_qkv.";

class Namer {
 public:
  Namer(const std::vector<RankTensor>& tensors, const LegacyNaming& naming)
      : tensors_(tensors), naming_(naming) {
    for (const RankTensor& tensor : tensors) {
      names_.push_back(parse(tensor.name));
      const LayerName& name = names_.back();
      const std::pair layer(name.mtp, name.layer);
      if (name.suffix.find("mlp.router.") != std::string::npos) with_experts_.insert(layer);
      const size_t qkv = name.suffix.find(kQkv);
      if (qkv == std::string::npos) continue;
      with_qkv_.insert(layer);
      if (name.suffix.find("layer_norm_", qkv) != std::string::npos) fused_.insert(layer);
    }
  }

  std::vector<std::vector<LocalView>> all() {
    std::vector<std::vector<LocalView>> views;
    for (size_t i = 0; i < tensors_.size(); ++i) views.push_back(one(tensors_[i], names_[i]));
    return views;
  }

 private:
  std::vector<LocalView> one(const RankTensor& tensor, const LayerName& name) const {
    if (tensor.name.ends_with("inv_freq")) return {};
    LocalView view{"", tensor.shape, row_major_strides(tensor.shape)};
    if (name.layer < 0) {
      view.name = spelled(name.suffix);
      if (naming_.tied && view.name == "output_layer.weight") {
        view.name = "embedding.word_embeddings.weight";
      }
      return {view};
    }
    const int64_t first = name.mtp ? naming_.stage.first_mtp : naming_.stage.first_layer;
    const std::string prefix =
        fmt::format("{}.layers.{}.", name.mtp ? "mtp" : "decoder", first + name.layer);
    std::string inner;  // of the transformer layer inside an MTP layer
    std::string suffix = name.suffix;
    if (const auto layer = name.mtp ? inside_mtp(suffix) : std::nullopt) {
      inner = suffix.substr(0, suffix.size() - layer->size());
      suffix.erase(0, inner.size());
    }
    const bool grouped = suffix == "mlp.experts.weight1" || suffix == "mlp.experts.weight2";
    if (grouped) return grouped_views(tensor, prefix + inner, suffix.back() == '1');
    if (!name_expert(suffix, naming_.first_expert)) name_norms(name, suffix);
    view.name = spelled(prefix + inner + suffix);
    if (suffix.starts_with(kQkv) && suffix.find("layer_norm") == std::string::npos) {
      view.qkv_version = naming_.checkpoint_version;
    }
    return {view};
  }

  std::string spelled(std::string name) const {
    return naming_.run->hybrid ? hybrid_spelling(std::move(name)) : std::move(name);
  }

  // Norms that are modules of their own get the names that these modules give them in torch_dist
  // (ckpt/megatron/state/norm_names.h). Megatron-LM's own have all norms apart, whatever else the
  // arguments call so. Where other modules have a norm before a dense MLP apart, they do as if it
  // were inside (ModelOpt's).
  void name_norms(const LayerName& name, std::string& suffix) const {
    const std::pair layer(name.mtp, name.layer);
    const auto rename = [&](std::string_view from, std::string_view to) {
      if (suffix.starts_with(from)) suffix.replace(0, from.size(), to);
    };
    if (naming_.run->norm_modules) return;
    const bool has_qkv = with_qkv_.contains(layer);
    const bool local = !naming_.run->transformer_engine && !fused_.contains(layer);
    if (has_qkv) rename("input_layernorm.", "self_attention.linear_qkv.layer_norm_");
    if (local ? has_qkv : !with_experts_.contains(layer)) {
      rename("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_");
    }
  }

  // One tensor for all experts of a rank, each transposed: expert by expert [H, F] and [F, H],
  // whatever the tensor's own shape says.
  std::vector<LocalView> grouped_views(const RankTensor& tensor, const std::string& prefix,
                                       bool first) const {
    const int64_t experts = naming_.local_experts;
    const auto& shape = tensor.shape;
    const int64_t hidden = shape.size() == 2 ? (first ? shape[0] : shape[1]) : 0;
    const int64_t elements = element_count(shape, tensor.name);
    if (experts <= 0 || hidden <= 0 || elements % (experts * hidden) != 0) {
      fail(ErrorKind::mismatch, "tensor {} of shape {} does not hold {} experts", tensor.name,
           to_string(shape), experts);
    }
    const int64_t inner = elements / experts / hidden;
    std::vector<LocalView> views;
    for (int64_t e = 0; e < experts; ++e) {
      LocalView view;
      view.name = fmt::format("{}mlp.experts.experts.{}.linear_fc{}.weight", prefix,
                              naming_.first_expert + e, first ? 1 : 2);
      view.shape = first ? Dims{inner, hidden} : Dims{hidden, inner};
      view.strides = {1, first ? inner : hidden};
      view.offset = e * inner * hidden;
      views.push_back(std::move(view));
    }
    return views;
  }

  const std::vector<RankTensor>& tensors_;
  const LegacyNaming& naming_;
  std::vector<LayerName> names_;
  std::set<std::pair<bool, int64_t>> with_experts_, with_qkv_;
  std::set<std::pair<bool, int64_t>> fused_;  // with the norm before attention inside linear_qkv
};

}  // namespace

std::vector<std::vector<LocalView>> name_tensors(const std::vector<RankTensor>& tensors,
                                                 const LegacyNaming& naming) {
  return Namer(tensors, naming).all();
}

void detect_modules(const std::vector<RankTensor>& tensors, ModuleChoice& modules) {
  using Experts = ModuleChoice::Experts;
  bool apart = false, before_qkv = false;  // latent attention has a norm apart in any case
  for (const RankTensor& tensor : tensors) {
    const std::string suffix = parse(tensor.name).suffix;
    const auto is_of = [&](std::string_view module) {
      return suffix.find(module) != std::string::npos;
    };
    apart |= is_of("input_layernorm.");
    before_qkv |= is_of(kQkv);
    if (is_of(".linear_qkv.layer_norm_") || is_of("mlp.linear_fc1.layer_norm_")) {
      modules.norms_in_linears = true;
    }
    if (!is_of("mlp.experts.")) continue;
    modules.experts = is_of(".local_experts.") ? Experts::sequential : Experts::grouped;
  }
  if (apart && before_qkv) modules.norms_in_linears = false;
}

}  // namespace ferry
