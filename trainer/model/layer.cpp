#include "trainer/model/layer.h"

#include <algorithm>

#include "trainer/model/pass/recompute.h"

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
  RouterOptions router = options.router;
  if (layer >= a.layers) router.times = std::max<int64_t>(1, options.predictions / a.mtp_layers);
  return Moe(parameters, prefix, a, router, options.experts, options.tensor_ranks, kernels);
}

template <typename Module>
bool is_repeated(const Recompute& recompute) {
  if constexpr (std::is_same_v<Module, Mlp>) return recompute.mlp;
  if constexpr (std::is_same_v<Module, Moe>) return recompute.moe;
  return false;
}

// Whether the module's backward pass does not need its input.
template <typename Module>
bool keeps_input(const Module& module, const Pass& pass) {
  return std::visit(
      [&](const auto& one) {
        if constexpr (requires { one.keeps_input(pass); }) return one.keeps_input(pass);
        return false;
      },
      module);
}

// y = module(x), for a variant of modules.
template <typename Module, typename Saved>
void forward_one(const Module& module, Pass& pass, ConstArray x, Array y, Saved& saved) {
  std::visit(
      [&](const auto& one) {
        using One = std::decay_t<decltype(one)>;
        saved = forward_of(one, is_repeated<One>(pass.recompute), pass, x, y);
      },
      module);
}

// The backward pass of the module that saved this.
template <typename Module, typename Saved>
void backward_one(const Module& module, const Saved& saved, Pass& pass, int64_t width, ConstArray x,
                  ConstArray dy, Array dx) {
  std::visit(
      [&](const auto& one) {
        using One = std::decay_t<decltype(one)>;
        backward_of(one, is_repeated<One>(pass.recompute), pass,
                    std::get<typename One::Saved>(saved), width, x, dy, dx);
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
  const ArenaScope scope(pass.scratch);
  const Array change = pass.scratch.take(pass.own_rows() * hidden_, x.type);
  // The input is not modified.
  Saved saved = forward(pass, {}, Array(const_cast<void*>(x.data), x.type), change);
  add_residual(pass, hidden_, output(saved, change), y);
  return saved;
}

// sum and y = norm(sum).
NormLayer::Saved Layer::norm_of_sum(Pass& pass, const NormLayer& norm, const PendingResidual& open,
                                    Array sum, Array y) const {
  if (pass.hidden_dropout == 0) return norm.forward(pass, rows(pass), open.change, open.x, sum, y);
  add_residual(pass, hidden_, open, sum);
  return norm.forward(pass, rows(pass), sum, y);
}

Layer::Saved Layer::forward(Pass& pass, const PendingResidual& input, Array x, Array change) const {
  Saved saved;
  const int64_t count = pass.own_rows() * hidden_;
  const ArenaScope scope(pass.scratch);
  const auto arena = [&](bool is_kept) -> Arena& {
    return is_kept && !pass.recompute.norms ? pass.kept : pass.scratch;
  };
  const bool needs_input = !keeps_input(attention_, pass), needs_middle = !keeps_input(mlp_, pass);
  saved.middle = pass.kept.take(count, x.type);
  saved.attention_input = arena(needs_input).take(count, x.type);
  saved.attention_norm = input
                             ? norm_of_sum(pass, attention_norm_, input, x, saved.attention_input)
                             : attention_norm_.forward(pass, rows(pass), x, saved.attention_input);
  forward_one(attention_, pass, saved.attention_input, change, saved.attention);
  saved.mlp_input = arena(needs_middle).take(count, x.type);
  saved.mlp_norm = norm_of_sum(pass, mlp_norm_, {x, change, place(DropoutPart::after_attention)},
                               saved.middle, saved.mlp_input);
  forward_one(mlp_, pass, saved.mlp_input, change, saved.mlp);
  if (!needs_input) saved.attention_input.data = nullptr;
  if (!needs_middle) saved.mlp_input.data = nullptr;
  return saved;
}

// The norm's output, recomputed if it was not kept.
ConstArray Layer::normed(Pass& pass, const NormLayer& norm, ConstArray x, ConstArray kept) const {
  if (!pass.recompute.norms) return kept;
  const ArenaScope scope(pass.transient);
  const Array y = pass.scratch.take(pass.own_rows() * hidden_, x.type);
  Pass again = repeating(pass);
  norm.forward(again, rows(pass), x, y);
  return y;
}

void Layer::backward(Pass& pass, const Saved& saved, ConstArray x, Array d) const {
  const ArenaScope scope(pass.scratch);
  const Array dinput = pass.scratch.take(pass.own_rows() * hidden_, d.type);
  {
    const ArenaScope inner(pass.scratch);
    const ConstArray input = normed(pass, mlp_norm_, saved.middle, saved.mlp_input);
    backward_one(mlp_, saved.mlp, pass, hidden_, input,
                 change_gradient(pass, place(DropoutPart::after_mlp), hidden_, d), dinput);
  }
  mlp_norm_.backward(pass, rows(pass), saved.mlp_norm, saved.middle, dinput, d, true);
  {
    const ArenaScope inner(pass.scratch);
    const ConstArray input = normed(pass, attention_norm_, x, saved.attention_input);
    backward_one(attention_, saved.attention, pass, hidden_, input,
                 change_gradient(pass, place(DropoutPart::after_attention), hidden_, d), dinput);
  }
  attention_norm_.backward(pass, rows(pass), saved.attention_norm, x, dinput, d, true);
}

}  // namespace ferry
