#include "trainer/model/attention/attention.h"

#include "trainer/model/attention/context_attention.h"
#include "trainer/model/attention/rope.h"

namespace ferry {

using kernels::Array;
using kernels::ConstArray;

Attention::Attention(const ParameterSet& parameters, const std::string& prefix,
                     const Architecture& a, int64_t layer, int64_t tensor_ranks)
    : layer_(layer),
      groups_(a.groups / tensor_ranks),
      group_heads_(a.heads / a.groups),
      dim_(a.head_dim),
      scale_(attention_scale(a)) {
  input_ = ColumnLinear(parameters, prefix + ".linear_qkv", a.hidden, width());
  output_ = RowLinear(parameters, prefix + ".linear_proj", heads() * dim_, a.hidden);
  if (a.qk_norm) {
    query_norm_ = NormLayer(parameters, prefix + ".q_layernorm", dim_, a);
    key_norm_ = NormLayer(parameters, prefix + ".k_layernorm", dim_, a);
  }
  if (a.sinks) sinks_ = parameters.get(prefix + ".core_attention.softmax_offset", heads());
  window_ = a.has_window(layer) ? a.window : 0;
  const bool is_rotary = a.position_kind == Positions::rope && a.is_rotated(layer);
  rotary_dim_ = is_rotary ? a.rotary_dim() : 0;
  rope_interleaved_ = a.rope_interleaved;
}

NormRows Attention::rows_of(const Pass& pass, const Part& part) const {
  return {pass.rows() * groups_, part.heads, group_width(), dim_};
}

kernels::HeadStrides Attention::strides(const Pass& pass) const {
  return {pass.sequences * width(), width(), group_width(), dim_};
}

kernels::HeadStrides Attention::context_strides(const Pass& pass) const {
  const int64_t row = heads() * dim_;
  return {pass.sequences * row, row, group_heads_ * dim_, dim_};
}

kernels::AttentionShape Attention::shape(const Pass& pass) const {
  kernels::AttentionShape shape;
  shape.sequences = pass.sequences;
  shape.queries = shape.keys = pass.positions;
  shape.heads = heads();
  shape.groups = groups_;
  shape.dim = shape.value_dim = dim_;
  shape.scale = scale_;
  shape.window = window_;
  shape.document_begin = pass.document_begin;
  drop_out(pass, layer_, shape);
  return shape;
}

void Attention::apply_rope(Pass& pass, Array fused, const Part& part, bool backward) const {
  if (rotary_dim_ == 0) return;
  pass.kernels.run(kernels::Rotary{.positions = pass.positions,
                                   .tokens_per_position = pass.sequences,
                                   .heads = groups_ * part.heads,
                                   .dim = rotary_dim_,
                                   .token_stride = width(),
                                   .group_stride = group_width(),
                                   .head_stride = dim_,
                                   .heads_per_group = part.heads,
                                   .interleaved = rope_interleaved_,
                                   .backward = backward,
                                   .cosine = pass.cosine,
                                   .sine = pass.sine,
                                   .x = fused.from(part.first)});
}

Attention::Saved Attention::forward(Pass& pass, ConstArray x, Array y) const {
  Saved saved;
  const int64_t context_width = heads() * dim_;
  saved.fused = pass.kept.take(pass.rows() * width(), x.type);
  saved.context = pass.kept.take(pass.rows() * context_width, x.type);
  saved.log_sum = pass.kept.take<float>(pass.rows() * heads());
  saved.input = input_.forward(pass, x, {saved.fused}, keeps_input(pass));
  saved.rotated = saved.fused;
  if (query_norm_) {
    saved.rotated = pass.kept.take(pass.rows() * width(), x.type);
    const Part q = queries(), k = keys();
    saved.query_norm = query_norm_.forward(pass, rows_of(pass, q), saved.fused.from(q.first),
                                           saved.rotated.from(q.first));
    saved.key_norm = key_norm_.forward(pass, rows_of(pass, k), saved.fused.from(k.first),
                                       saved.rotated.from(k.first));
  }
  apply_rope(pass, saved.rotated, queries(), false);
  apply_rope(pass, saved.rotated, keys(), false);
  attend(pass,
         kernels::AttentionForward{.shape = shape(pass),
                                   .q = saved.rotated.from(queries().first),
                                   .k = saved.rotated.from(keys().first),
                                   .v = saved.fused.from(values().first),
                                   .q_strides = strides(pass),
                                   .k_strides = strides(pass),
                                   .v_strides = strides(pass),
                                   .output = saved.context,
                                   .output_strides = context_strides(pass),
                                   .log_sum = saved.log_sum},
         sinks_);
  saved.context_input = output_.forward(pass, saved.context, y);
  return saved;
}

void Attention::backward(Pass& pass, const Saved& saved, ConstArray x, ConstArray dy,
                         Array dx) const {
  const ArenaScope scope(pass.scratch);
  const int64_t context_width = heads() * dim_;
  const Array dcontext = pass.scratch.take(pass.rows() * context_width, x.type);
  output_.backward(pass, saved.context_input, saved.context, dy, dcontext);
  const Array dfused = pass.scratch.take(pass.rows() * width(), x.type);
  attend(pass,
         kernels::AttentionBackward{.shape = shape(pass),
                                    .q = saved.rotated.from(queries().first),
                                    .k = saved.rotated.from(keys().first),
                                    .v = saved.fused.from(values().first),
                                    .output = saved.context,
                                    .doutput = dcontext,
                                    .q_strides = strides(pass),
                                    .k_strides = strides(pass),
                                    .v_strides = strides(pass),
                                    .output_strides = context_strides(pass),
                                    .log_sum = saved.log_sum,
                                    .dq = dfused.from(queries().first),
                                    .dk = dfused.from(keys().first),
                                    .dv = dfused.from(values().first)},
         sinks_);
  apply_rope(pass, dfused, queries(), true);
  apply_rope(pass, dfused, keys(), true);
  if (query_norm_) {
    const auto back = [&](const NormLayer& norm, const NormLayer::Saved& statistics,
                          const Part& part) {
      norm.backward(pass, rows_of(pass, part), statistics, saved.fused.from(part.first),
                    dfused.from(part.first), dfused.from(part.first), false);
    };
    back(query_norm_, saved.query_norm, queries());
    back(key_norm_, saved.key_norm, keys());
  }
  input_.backward(pass, saved.input, x, dfused, dx);
}

}  // namespace ferry
