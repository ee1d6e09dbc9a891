#include "trainer/model/attention/latent_attention.h"

#include <cmath>

#include "trainer/model/attention/context_attention.h"
#include "trainer/model/attention/rope.h"

namespace ferry {

using kernels::Array;
using kernels::ConstArray;

namespace {

void copy_rows(Pass& pass, int64_t rows, int64_t width, ConstArray x, int64_t x_stride, Array y,
               int64_t y_stride, bool accumulate = false) {
  pass.kernels.run(kernels::CopyRows{.rows = rows,
                                     .width = width,
                                     .x_stride = x_stride,
                                     .y_stride = y_stride,
                                     .x = x,
                                     .y = y,
                                     .accumulate = accumulate});
}

}  // namespace

LatentAttention::LatentAttention(const ParameterSet& parameters, const std::string& prefix,
                                 const Architecture& a, int64_t layer, int64_t tensor_ranks)
    : layer_(layer),
      hidden_(a.hidden),
      heads_(a.heads / tensor_ranks),
      q_lora_(a.q_lora_rank),
      lora_(a.kv_lora_rank),
      nope_(a.qk_nope_dim),
      rope_(a.qk_rope_dim),
      v_(a.v_dim),
      has_norms_(a.qk_norm) {
  const int64_t query_width = heads_ * query_dim();
  if (q_lora_ > 0) {
    query_down_ = ReplicatedLinear(parameters, prefix + ".linear_q_down_proj.weight", hidden_,
                                   q_lora_, tensor_ranks);
    if (has_norms_) query_norm_ = NormLayer(parameters, prefix + ".q_layernorm", q_lora_, a);
    query_ = ColumnLinear(parameters, prefix + ".linear_q_up_proj", q_lora_, query_width);
  } else {
    query_ = ColumnLinear(parameters, prefix + ".linear_q_proj", hidden_, query_width);
  }
  down_ = ReplicatedLinear(parameters, prefix + ".linear_kv_down_proj.weight", hidden_,
                           lora_ + rope_, tensor_ranks);
  if (has_norms_) norm_ = NormLayer(parameters, prefix + ".kv_layernorm", lora_, a);
  up_ = ColumnLinear(parameters, prefix + ".linear_kv_up_proj", lora_, heads_ * value_dim());
  output_ = RowLinear(parameters, prefix + ".linear_proj", heads_ * v_, hidden_);
  scale_ = attention_scale(a);
}

kernels::AttentionShape LatentAttention::shape(const Pass& pass) const {
  kernels::AttentionShape shape;
  shape.sequences = pass.sequences;
  shape.queries = shape.keys = pass.positions;
  shape.heads = shape.groups = heads_;
  shape.dim = query_dim();
  shape.value_dim = v_;
  shape.scale = scale_;
  shape.document_begin = pass.document_begin;
  drop_out(pass, layer_, shape);
  return shape;
}

void LatentAttention::apply_rope(Pass& pass, Array x, int64_t heads, int64_t head_stride,
                                 bool backward) const {
  pass.kernels.run(kernels::Rotary{.positions = pass.positions,
                                   .tokens_per_position = pass.sequences,
                                   .heads = heads,
                                   .dim = rope_,
                                   .token_stride = heads * head_stride,
                                   .group_stride = head_stride,
                                   .interleaved = true,
                                   .backward = backward,
                                   .cosine = pass.cosine,
                                   .sine = pass.sine,
                                   .x = x});
}

// `latent` itself if there are no norms.
Array LatentAttention::normed(Pass& pass, const NormLayer& norm, int64_t width, Array latent,
                              NormLayer::Saved& saved) const {
  if (!has_norms_) return latent;
  const int64_t own = pass.own_rows();
  const Array result = pass.kept.take(own * width, latent.type);
  saved = norm.forward(pass, {own}, latent, result);
  return result;
}

// From hidden states to the latents, which all heads share.
void LatentAttention::compress(Pass& pass, ConstArray x, Saved& saved) const {
  const int64_t own = pass.own_rows(), rows = pass.rows(), width = lora_ + rope_;
  if (q_lora_ > 0) {
    saved.query_latent = pass.kept.take(own * q_lora_, x.type);
    saved.query_down_input = query_down_.forward(pass, x, saved.query_latent);
    saved.query_normed = normed(pass, query_norm_, q_lora_, saved.query_latent, saved.query_norm);
  }
  saved.latent = pass.kept.take(own * lora_, x.type);
  Arena& arena = pass.recompute.latent_up ? pass.kept : pass.scratch;
  saved.shared_key = arena.take(rows * rope_, x.type);
  const ArenaScope scope(pass.scratch);
  const Array compressed = pass.scratch.take(own * width, x.type);
  saved.down_input = down_.forward(pass, x, compressed);
  copy_rows(pass, own, lora_, compressed, width, saved.latent, lora_);
  saved.latent_normed = normed(pass, norm_, lora_, saved.latent, saved.norm);
  const Array own_shared = pass.scratch.take(own * rope_, x.type);
  copy_rows(pass, own, rope_, compressed.from(lora_), width, own_shared, rope_);
  const ConstArray shared = all_rows(pass, own_shared, rope_);
  pass.kernels.run(kernels::Copy{.count = rows * rope_, .x = shared, .y = saved.shared_key});
  apply_rope(pass, saved.shared_key, 1, rope_, false);
}

// From the latents to each head's queries, keys and values, in memory of `arena`.
void LatentAttention::expand(Pass& pass, Arena& arena, ConstArray x, Saved& saved) const {
  const int64_t rows = pass.rows();
  saved.query = arena.take(rows * heads_ * query_dim(), x.type);
  saved.value = arena.take(rows * heads_ * value_dim(), x.type);
  saved.key = arena.take(rows * heads_ * query_dim(), x.type);
  saved.query_input =
      query_.forward(pass, q_lora_ > 0 ? ConstArray(saved.query_normed) : x, {saved.query});
  apply_rope(pass, saved.query.from(nope_), heads_, query_dim(), false);
  saved.up_input = up_.forward(pass, saved.latent_normed, {saved.value});
  copy_rows(pass, rows * heads_, nope_, saved.value, value_dim(), saved.key, query_dim());
  for (int64_t head = 0; head < heads_; ++head) {
    copy_rows(pass, rows, rope_, saved.shared_key, rope_,
              saved.key.from(head * query_dim() + nope_), heads_ * query_dim());
  }
}

LatentAttention::Saved LatentAttention::forward(Pass& pass, ConstArray x, Array y) const {
  Saved saved;
  const ArenaScope scope(pass.scratch);
  compress(pass, x, saved);
  expand(pass, pass.recompute.latent_up ? pass.scratch : pass.kept, x, saved);
  saved.context = pass.kept.take(pass.rows() * heads_ * v_, x.type);
  saved.log_sum = pass.kept.take<float>(pass.rows() * heads_);
  attend(pass, kernels::AttentionForward{.shape = shape(pass),
                                         .q = saved.query,
                                         .k = saved.key,
                                         .v = saved.value.from(nope_),
                                         .q_strides = strides(pass, query_dim()),
                                         .k_strides = strides(pass, query_dim()),
                                         .v_strides = strides(pass, value_dim()),
                                         .output = saved.context,
                                         .output_strides = strides(pass, v_),
                                         .log_sum = saved.log_sum});
  saved.context_input = output_.forward(pass, saved.context, y);
  return saved;
}

void LatentAttention::backward(Pass& pass, const Saved& kept, ConstArray x, ConstArray dy,
                               Array dx) const {
  const ArenaScope scope(pass.scratch);
  Saved saved = kept;
  if (pass.recompute.latent_up) expand(pass, pass.scratch, x, saved);
  const int64_t rows = pass.rows();
  const Array dcontext = pass.scratch.take(rows * heads_ * v_, x.type);
  output_.backward(pass, saved.context_input, saved.context, dy, dcontext);
  const Array dquery = pass.scratch.take(rows * heads_ * query_dim(), x.type);
  const Array dkey = pass.scratch.take(rows * heads_ * query_dim(), x.type);
  const Array dvalue = pass.scratch.take(rows * heads_ * value_dim(), x.type);
  attend(pass, kernels::AttentionBackward{.shape = shape(pass),
                                          .q = saved.query,
                                          .k = saved.key,
                                          .v = saved.value.from(nope_),
                                          .output = saved.context,
                                          .doutput = dcontext,
                                          .q_strides = strides(pass, query_dim()),
                                          .k_strides = strides(pass, query_dim()),
                                          .v_strides = strides(pass, value_dim()),
                                          .output_strides = strides(pass, v_),
                                          .log_sum = saved.log_sum,
                                          .dq = dquery,
                                          .dk = dkey,
                                          .dv = dvalue.from(nope_)});
  apply_rope(pass, dquery.from(nope_), heads_, query_dim(), true);
  queries_backward(pass, saved, x, dquery, dx);
  keys_and_values_backward(pass, saved, x, dkey, dvalue, dx);
}

// Sets dx.
void LatentAttention::queries_backward(Pass& pass, const Saved& saved, ConstArray x,
                                       ConstArray dquery, Array dx) const {
  if (q_lora_ == 0) {
    query_.backward(pass, saved.query_input, x, dquery, dx);
    return;
  }
  const ArenaScope scope(pass.scratch);
  const Array d = pass.scratch.take(pass.own_rows() * q_lora_, x.type);
  query_.backward(pass, saved.query_input, saved.query_normed, dquery, d);
  if (has_norms_) {
    query_norm_.backward(pass, {pass.own_rows()}, saved.query_norm, saved.query_latent, d, d,
                         false);
  }
  query_down_.backward(pass, saved.query_down_input, x, d, dx, false);
}

// Adds to dx.
void LatentAttention::keys_and_values_backward(Pass& pass, const Saved& saved, ConstArray x,
                                               ConstArray dkey, Array dvalue, Array dx) const {
  const ArenaScope scope(pass.scratch);
  const int64_t own = pass.own_rows(), rows = pass.rows(), width = lora_ + rope_;
  copy_rows(pass, rows * heads_, nope_, dkey, query_dim(), dvalue, value_dim());
  const Array sum = pass.scratch.take(rows * rope_, kernels::Type::f32);
  for (int64_t head = 0; head < heads_; ++head) {
    copy_rows(pass, rows, rope_, dkey.from(head * query_dim() + nope_), heads_ * query_dim(), sum,
              rope_, head > 0);
  }
  apply_rope(pass, sum, 1, rope_, true);
  const Array dshared =
      pass.ranks.sequence_parallel ? pass.scratch.take(own * rope_, kernels::Type::f32) : sum;
  sum_rows(pass, sum, dshared, rope_);

  const Array dlatent = pass.scratch.take(own * lora_, x.type);
  up_.backward(pass, saved.up_input, saved.latent_normed, dvalue, dlatent);
  if (has_norms_) {
    norm_.backward(pass, {own}, saved.norm, saved.latent, dlatent, dlatent, false);
  }
  const Array dcompressed = pass.scratch.take(own * width, x.type);
  copy_rows(pass, own, lora_, dlatent, lora_, dcompressed, width);
  copy_rows(pass, own, rope_, dshared, rope_, dcompressed.from(lora_), width);
  down_.backward(pass, saved.down_input, x, dcompressed, dx, true);
}

}  // namespace ferry
