#include "trainer/model/layer.h"

namespace ferry {

using kernels::Array;
using kernels::ConstArray;

namespace {

using AttentionModule = std::variant<Attention, LatentAttention>;
using MlpModule = std::variant<Mlp, Moe>;

AttentionModule make_attention(const ParameterSet& parameters, const std::string& prefix,
                               const Architecture& a, int64_t layer, int64_t tensor_ranks) {
  if (a.mla) return LatentAttention(parameters, prefix, a, layer, tensor_ranks);
  return Attention(parameters, prefix, a, layer, tensor_ranks);
}

MlpModule make_mlp(const ParameterSet& parameters, const std::string& prefix, const Architecture& a,
                   int64_t layer, const ModelOptions& options, kernels::Kernels& kernels) {
  if (!a.is_moe(layer)) return Mlp(parameters, prefix, a, a.ffn / options.tensor_ranks);
  return Moe(parameters, prefix, a, options.router, options.experts, options.tensor_ranks, kernels);
}

// module.backward() with what its own forward() saved.
template <typename Module, typename Saved>
void backward_of(const Module& module, const Saved& saved, Pass& pass, ConstArray x, ConstArray dy,
                 Array dx) {
  std::visit(
      [&](const auto& one) {
        using One = std::decay_t<decltype(one)>;
        one.backward(pass, std::get<typename One::Saved>(saved), x, dy, dx);
      },
      module);
}

}  // namespace

Layer::Layer(const ParameterSet& parameters, const std::string& prefix, const Architecture& a,
             int64_t layer, const ModelOptions& options, kernels::Kernels& kernels)
    : attention_norm_(parameters, prefix + ".input_layernorm", a.hidden, a),
      mlp_norm_(parameters, prefix + ".pre_mlp_layernorm", a.hidden, a),
      attention_(
          make_attention(parameters, prefix + ".self_attention", a, layer, options.tensor_ranks)),
      mlp_(make_mlp(parameters, prefix + ".mlp", a, layer, options, kernels)),
      hidden_(a.hidden),
      layer_(layer) {}

Layer::Saved Layer::forward(Pass& pass, ConstArray x, Array y) const {
  Saved saved;
  const int64_t count = pass.own_rows() * hidden_;
  const ArenaScope scope(pass.scratch);
  const Array change = pass.scratch.take(count, x.type);

  saved.attention_input = pass.kept.take(count, x.type);
  saved.attention_norm = attention_norm_.forward(pass, rows(pass), x, saved.attention_input);
  std::visit(
      [&](const auto& one) { saved.attention = one.forward(pass, saved.attention_input, change); },
      attention_);
  saved.middle = pass.kept.take(count, x.type);
  add_residual(pass, place(DropoutPart::behind_attention), hidden_, x, change, saved.middle);

  saved.mlp_input = pass.kept.take(count, x.type);
  saved.mlp_norm = mlp_norm_.forward(pass, rows(pass), saved.middle, saved.mlp_input);
  std::visit([&](const auto& one) { saved.mlp = one.forward(pass, saved.mlp_input, change); },
             mlp_);
  add_residual(pass, place(DropoutPart::behind_mlp), hidden_, saved.middle, change, y);
  return saved;
}

void Layer::backward(Pass& pass, const Saved& saved, ConstArray x, Array d) const {
  const ArenaScope scope(pass.scratch);
  const Array dinput = pass.scratch.take(pass.own_rows() * hidden_, d.type);
  {
    const ArenaScope inner(pass.scratch);
    backward_of(mlp_, saved.mlp, pass, saved.mlp_input,
                change_gradient(pass, place(DropoutPart::behind_mlp), hidden_, d), dinput);
  }
  mlp_norm_.backward(pass, rows(pass), saved.mlp_norm, saved.middle, dinput, d, true);
  {
    const ArenaScope inner(pass.scratch);
    backward_of(attention_, saved.attention, pass, saved.attention_input,
                change_gradient(pass, place(DropoutPart::behind_attention), hidden_, d), dinput);
  }
  attention_norm_.backward(pass, rows(pass), saved.attention_norm, x, dinput, d, true);
}

}  // namespace ferry
