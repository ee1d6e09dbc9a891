#include "trainer/model/attention/context_attention.h"

#include <array>
#include <utility>

#include "trainer/model/norm.h"

namespace ferry {

using kernels::Array;
using kernels::AttentionBackward;
using kernels::AttentionForward;
using kernels::AttentionShape;
using kernels::ConstArray;
using kernels::HeadStrides;
using kernels::Type;

namespace {

// The two parts of each sequence that a rank has, and the layout of its tensors by part.
class Parts {
 public:
  Parts(const Pass& pass, const AttentionShape& own)
      : ranks_(pass.ranks.context.size()),
        rank_(pass.ranks.context.rank()),
        length_(own.queries / 2),
        own_(own) {}

  int64_t length() const { return length_; }
  /// The index of part `half` (0 or 1) of a rank among the 2 · ranks parts of a sequence.
  int64_t number(int half, int rank) const { return half == 0 ? rank : 2 * ranks_ - 1 - rank; }

  /// Whether queries of this rank's part attend to keys of another rank's.
  bool sees(int query_half, int key_half, int key_rank) const {
    return number(key_half, key_rank) <= number(query_half, rank_);
  }

  AttentionShape shape(int query_half, int key_half, int key_rank) const {
    AttentionShape shape = own_;
    shape.queries = shape.keys = length_;
    shape.query_begin = number(query_half, rank_) * length_;
    shape.key_begin = number(key_half, key_rank) * length_;
    shape.document_stride = own_.queries;
    if (own_.document_begin != nullptr) shape.document_begin += query_half * length_;
    return shape;
  }

  /// Where a part's elements start in a tensor with these strides, and its log_sums.
  int64_t begin(int half, const HeadStrides& strides) const {
    return half * length_ * strides.position;
  }
  int64_t log_sum_begin(int half) const { return half * own_.sequences * own_.heads * length_; }

 private:
  int64_t ranks_;
  int rank_;
  int64_t length_;
  const AttentionShape& own_;
};

// Keys and values of one rank after another, as they move around the ring.
class Ring {
 public:
  Ring(Pass& pass, int64_t key_elements, int64_t value_elements, Type type)
      : ranks_(pass.ranks.context),
        elements_(key_elements + value_elements),
        keys_(key_elements),
        owner_(ranks_.rank()) {
    for (Array& buffer : buffers_) buffer = pass.scratch.take(elements_, type);
  }

  Array keys() const { return buffers_[0]; }
  Array values() const { return buffers_[0].from(keys_); }
  int owner() const { return owner_; }

  /// Sends the current ones to the next rank and receives those of the previous one.
  void rotate() {
    const int next = (ranks_.rank() + 1) % ranks_.size();
    const int before = (ranks_.rank() + ranks_.size() - 1) % ranks_.size();
    const Communicator::Ticket sent = ranks_.send(buffers_[0], elements_, next);
    ranks_.wait(ranks_.receive(buffers_[1], elements_, before));
    ranks_.wait(sent);
    std::swap(buffers_[0], buffers_[1]);
    owner_ = (owner_ + ranks_.size() - 1) % ranks_.size();
  }

 private:
  Communicator& ranks_;
  int64_t elements_, keys_;
  int owner_;
  std::array<Array, 2> buffers_;
};

HeadStrides packed(const AttentionShape& shape, int64_t heads, int64_t dim) {
  const int64_t per_group = heads / shape.groups;
  return {shape.sequences * heads * dim, heads * dim, per_group * dim, dim};
}

// Copies contiguous rows of heads · dim elements from or to a strided tensor.
void copy_heads(Pass& pass, const AttentionShape& shape, int64_t dim, ConstArray x,
                const HeadStrides& x_strides, Array y, const HeadStrides& y_strides) {
  for (int64_t group = 0; group < shape.groups; ++group) {
    pass.kernels.run(kernels::CopyRows{.rows = shape.sequences * shape.keys,
                                       .width = dim,
                                       .x_stride = x_strides.sequence,
                                       .y_stride = y_strides.sequence,
                                       .x = x.from(group * x_strides.group),
                                       .y = y.from(group * y_strides.group)});
  }
}

int64_t elements_of(const AttentionShape& shape, int64_t heads, int64_t dim) {
  return shape.sequences * shape.queries * heads * dim;
}

void copy_all(Pass& pass, const AttentionShape& shape, int64_t dim, ConstArray x, Array y) {
  pass.kernels.run(kernels::Copy{.count = elements_of(shape, shape.heads, dim), .x = x, .y = y});
}

// Once all keys have taken part: for queries of one of a rank's parts, or of the whole.
void add_sinks(Pass& pass, const AttentionForward& own, const AttentionShape& shape, Array output,
               float* log_sum, const Parameter& sinks) {
  if (!sinks) return;
  pass.kernels.run(kernels::AttentionSink{.shape = shape,
                                          .score = sinks.value,
                                          .output = output,
                                          .output_strides = own.output_strides,
                                          .log_sum = log_sum});
}

void add_sink_gradient(Pass& pass, const AttentionBackward& own, const AttentionShape& shape,
                       int64_t output_begin, int64_t log_sum_begin, const Parameter& sinks) {
  if (!sinks) return;
  pass.kernels.run(kernels::AttentionSinkGradient{.shape = shape,
                                                  .score = sinks.value,
                                                  .output = own.output.from(output_begin),
                                                  .doutput = own.doutput.from(output_begin),
                                                  .output_strides = own.output_strides,
                                                  .log_sum = own.log_sum + log_sum_begin,
                                                  .dscore = sinks.take_gradient()});
}

void attend_in_ring(Pass& pass, const AttentionForward& own, const Parameter& sinks) {
  const ArenaScope scope(pass.scratch);
  const AttentionShape& shape = own.shape;
  const Parts parts(pass, shape);
  const HeadStrides key_strides = packed(shape, shape.groups, shape.dim);
  const HeadStrides value_strides = packed(shape, shape.groups, shape.value_dim);
  Ring ring(pass, elements_of(shape, shape.groups, shape.dim),
            elements_of(shape, shape.groups, shape.value_dim), own.k.type);
  copy_heads(pass, shape, shape.dim, own.k, own.k_strides, ring.keys(), key_strides);
  copy_heads(pass, shape, shape.value_dim, own.v, own.v_strides, ring.values(), value_strides);

  const int64_t output_elements = elements_of(shape, shape.heads, shape.value_dim);
  const HeadStrides& out = own.output_strides;
  const Array total = pass.scratch.take(output_elements, Type::f32);
  const Array part = pass.scratch.take(output_elements, Type::f32);
  auto* const part_log_sum =
      pass.scratch.take<float>(shape.sequences * shape.heads * parts.length());
  std::array<bool, 2> has_total{};
  for (int step = 0; step < pass.ranks.context.size(); ++step) {
    if (step > 0) ring.rotate();
    for (int query = 0; query < 2; ++query) {
      for (int key = 0; key < 2; ++key) {
        if (!parts.sees(query, key, ring.owner())) continue;
        const bool is_first = !std::exchange(has_total[static_cast<size_t>(query)], true);
        float* const log_sum = own.log_sum + parts.log_sum_begin(query);
        const Array output = total.from(parts.begin(query, out));
        AttentionForward operation{.shape = parts.shape(query, key, ring.owner()),
                                   .q = own.q.from(parts.begin(query, own.q_strides)),
                                   .k = ring.keys().from(parts.begin(key, key_strides)),
                                   .v = ring.values().from(parts.begin(key, value_strides)),
                                   .q_strides = own.q_strides,
                                   .k_strides = key_strides,
                                   .v_strides = value_strides,
                                   .output = is_first ? output : part,
                                   .output_strides = out,
                                   .log_sum = is_first ? log_sum : part_log_sum};
        pass.kernels.run(operation);
        if (is_first) continue;
        pass.kernels.run(kernels::AttentionMerge{.shape = operation.shape,
                                                 .part = static_cast<const float*>(part.data),
                                                 .part_log_sum = part_log_sum,
                                                 .output = static_cast<float*>(output.data),
                                                 .output_strides = out,
                                                 .log_sum = log_sum});
      }
    }
  }
  for (int half = 0; half < 2; ++half) {
    add_sinks(pass, own, parts.shape(half, half, pass.ranks.context.rank()),
              total.from(parts.begin(half, out)), own.log_sum + parts.log_sum_begin(half), sinks);
  }
  copy_all(pass, shape, shape.value_dim, total, own.output);
}

void attend_in_ring(Pass& pass, const AttentionBackward& own, const Parameter& sinks) {
  const ArenaScope scope(pass.scratch);
  const AttentionShape& shape = own.shape;
  const Parts parts(pass, shape);
  for (int half = 0; half < 2; ++half) {
    add_sink_gradient(pass, own, parts.shape(half, half, pass.ranks.context.rank()),
                      parts.begin(half, own.output_strides), parts.log_sum_begin(half), sinks);
  }
  const HeadStrides key_strides = packed(shape, shape.groups, shape.dim);
  const HeadStrides value_strides = packed(shape, shape.groups, shape.value_dim);
  const HeadStrides query_strides = packed(shape, shape.heads, shape.dim);
  const int64_t key_elements = elements_of(shape, shape.groups, shape.dim);
  const int64_t value_elements = elements_of(shape, shape.groups, shape.value_dim);
  Ring ring(pass, key_elements, value_elements, own.k.type);
  Ring gradients(pass, key_elements, value_elements,
                 Type::f32);  // gradients of the keys and values in `ring`
  copy_heads(pass, shape, shape.dim, own.k, own.k_strides, ring.keys(), key_strides);
  copy_heads(pass, shape, shape.value_dim, own.v, own.v_strides, ring.values(), value_strides);
  pass.kernels.run(kernels::Clear{.count = key_elements + value_elements, .y = gradients.keys()});
  // Contiguous queries, so that their fp32 gradient has the same layout.
  const int64_t query_elements = elements_of(shape, shape.heads, shape.dim);
  const Array q = pass.scratch.take(query_elements, own.q.type);
  const Array dq = pass.scratch.take(query_elements, Type::f32);
  const auto copy_queries = [&](ConstArray from, const HeadStrides& from_strides, Array to,
                                const HeadStrides& to_strides) {
    const int64_t heads_of_group = shape.heads / shape.groups;
    for (int64_t head = 0; head < heads_of_group; ++head) {
      copy_heads(pass, shape, shape.dim, from.from(head * from_strides.head), from_strides,
                 to.from(head * to_strides.head), to_strides);
    }
  };
  copy_queries(own.q, own.q_strides, q, query_strides);
  pass.kernels.run(kernels::Clear{.count = query_elements, .y = dq});
  for (int step = 0; step < pass.ranks.context.size(); ++step) {
    for (int query = 0; query < 2; ++query) {
      for (int key = 0; key < 2; ++key) {
        if (!parts.sees(query, key, ring.owner())) continue;
        const int64_t query_begin = parts.begin(query, query_strides);
        const int64_t key_begin = parts.begin(key, key_strides);
        const int64_t value_begin = parts.begin(key, value_strides);
        const int64_t output_begin = parts.begin(query, own.output_strides);
        pass.kernels.run(AttentionBackward{.shape = parts.shape(query, key, ring.owner()),
                                           .q = q.from(query_begin),
                                           .k = ring.keys().from(key_begin),
                                           .v = ring.values().from(value_begin),
                                           .output = own.output.from(output_begin),
                                           .doutput = own.doutput.from(output_begin),
                                           .q_strides = query_strides,
                                           .k_strides = key_strides,
                                           .v_strides = value_strides,
                                           .output_strides = own.output_strides,
                                           .log_sum = own.log_sum + parts.log_sum_begin(query),
                                           .dq = dq.from(query_begin),
                                           .dk = gradients.keys().from(key_begin),
                                           .dv = gradients.values().from(value_begin),
                                           .accumulate = true});
      }
    }
    ring.rotate();
    gradients.rotate();  // after the last step each rank has its own again
  }
  copy_queries(dq, query_strides, own.dq, own.q_strides);
  copy_heads(pass, shape, shape.dim, gradients.keys(), key_strides, own.dk, own.k_strides);
  copy_heads(pass, shape, shape.value_dim, gradients.values(), value_strides, own.dv,
             own.v_strides);
}

}  // namespace

void drop_out(const Pass& pass, int64_t layer, AttentionShape& shape) {
  if (pass.attention_dropout == 0) return;
  const Communicator& tensor = pass.ranks.tensor;
  shape.dropout = pass.attention_dropout;
  shape.dropout_key =
      kernels::mix_key(pass.dropout_key, dropout_place(layer, DropoutPart::attention));
  shape.sequence_ids = pass.sequence_ids;
  shape.first_head = shape.heads * tensor.rank();
  shape.total_heads = shape.heads * tensor.size();
  shape.total_positions = pass.positions * pass.ranks.context.size();
}

void attend(Pass& pass, const AttentionForward& own, const Parameter& sinks) {
  if (pass.ranks.context.size() > 1) return attend_in_ring(pass, own, sinks);
  pass.kernels.run(own);
  add_sinks(pass, own, own.shape, own.output, own.log_sum, sinks);
}

void attend(Pass& pass, const AttentionBackward& own, const Parameter& sinks) {
  if (pass.ranks.context.size() > 1) return attend_in_ring(pass, own, sinks);
  add_sink_gradient(pass, own, own.shape, 0, 0, sinks);
  pass.kernels.run(own);
}

}  // namespace ferry
