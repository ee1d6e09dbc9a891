#include <utility>

#include "kernels/cpu/attention/attention_tile.h"
#include "kernels/cpu/cpu_kernels.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

namespace {

/// One thread's buffers. Widths are padded.
struct Memory {
  float *keys, *values, *dkeys, *dvalues;  // [keys, width]
  float *query_rows, *queries;             // [kQueries, width], and transposed, times the scale
  float *output_rows, *outputs;            // gradients of outputs, likewise
  float *scores, *dscores, *kept;          // [kKeys, kQueries]
  float* dqueries;                         // [width, kQueries]

  static int64_t floats(const AttentionShape& s) {
    const int64_t both = padded(s.dim) + padded(s.value_dim);
    return 2 * s.keys * both + kQueries * (2 * both + 3 * kKeys + padded(s.dim));
  }
  Memory(float* at, const AttentionShape& s) {
    const auto take = [&](int64_t count) { return std::exchange(at, at + count); };
    const int64_t width = padded(s.dim), value_width = padded(s.value_dim);
    keys = take(s.keys * width);
    values = take(s.keys * value_width);
    dkeys = take(s.keys * width);
    dvalues = take(s.keys * value_width);
    query_rows = take(kQueries * width);
    queries = take(kQueries * width);
    output_rows = take(kQueries * value_width);
    outputs = take(kQueries * value_width);
    scores = take(kKeys * kQueries);
    dscores = take(kKeys * kQueries);
    kept = take(kKeys * kQueries);
    dqueries = take(kQueries * width);
  }
};

/// A tile of queries of one head, with results of the forward pass.
struct Queries {
  int64_t sequence, head, query, count;
  float log_sum[kQueries];
  float delta[kQueries];  // dot product of output and its gradient
};

/// Loads the queries' rows.
void prepare(const AttentionBackward& x, Queries& q, const Memory& memory) {
  const auto& shape = x.shape;
  unpack_rows(
      x.q, head_start(shape, x.q_strides, q.sequence, q.head) + q.query * x.q_strides.position,
      x.q_strides.position, q.count, shape.dim, static_cast<float>(shape.scale), memory.query_rows);
  turn(memory.query_rows, q.count, shape.dim, memory.queries);
  const int64_t start =
      head_start(shape, x.output_strides, q.sequence, q.head) + q.query * x.output_strides.position;
  unpack_rows(x.doutput, start, x.output_strides.position, q.count, shape.value_dim, 1,
              memory.output_rows);
  turn(memory.output_rows, q.count, shape.value_dim, memory.outputs);
  const int64_t row = (q.sequence * shape.heads + q.head) * shape.queries + q.query;
  for (int64_t i = 0; i < kQueries; ++i) {
    q.log_sum[i] = q.delta[i] = 0;
    if (i >= q.count) continue;
    // A query without visible keys has no probabilities.
    const float log_sum = x.log_sum[row + i];
    q.log_sum[i] = log_sum == -__builtin_inff() ? 0.0F : log_sum;
    const float* gradient = memory.output_rows + i * padded(shape.value_dim);
    Float sum{};
    vectors(0, shape.value_dim, [&](int64_t d, auto n) {
      sum += load(gradient + d) * load(x.output, start + i * x.output_strides.position + d, n);
    });
    q.delta[i] = sum_of(sum);
  }
}

/// Replaces scores by probabilities, and gradients of probabilities by those of scores.
FERRY_INLINE void differentiate(const Visible& visible, const Queries& q, int64_t key, int64_t keys,
                                const float* kept, float* scores, float* dscores) {
  const bool sees_all = visible.sees_all(key, keys);
  for (int v = 0; v < kQueryVectors; ++v) {
    const Float log_sum = load(q.log_sum + v * kLanes), delta = load(q.delta + v * kLanes);
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t at = j * kQueries + v * kLanes;
      Float probability = exp(load(scores + at) - log_sum);
      if (!sees_all) probability = visible.sees(v, key + j) != 0 ? probability : Float{};
      const Float gradient = load(dscores + at);
      const Float counted = kept ? load(kept + at) : all(1.0F);
      store(dscores + at, probability * (counted * gradient - delta));
      store(scores + at, counted * probability);
    }
  }
}

void backward_tile(const AttentionBackward& x, const Visible& visible, const Queries& q,
                   int64_t key, int64_t keys, const Memory& memory) {
  const auto& shape = x.shape;
  const int64_t width = padded(shape.dim), value_width = padded(shape.value_dim);
  const float *k = memory.keys + key * width, *v = memory.values + key * value_width;
  small_product(keys, kQueries, shape.dim, {k, width, 1}, {memory.queries, kQueries},
                {memory.scores, kQueries}, false);
  small_product(keys, kQueries, shape.value_dim, {v, value_width, 1}, {memory.outputs, kQueries},
                {memory.dscores, kQueries}, false);
  const bool drops = shape.dropout > 0;
  if (drops) fill_kept(shape, q.sequence, q.head, q.query, q.count, key, memory.kept);
  differentiate(visible, q, key, keys, drops ? memory.kept : nullptr, memory.scores,
                memory.dscores);
  small_product(shape.dim, kQueries, keys, {k, 1, width}, {memory.dscores, kQueries},
                {memory.dqueries, kQueries}, true);
  small_product(keys, width, q.count, {memory.dscores, kQueries, 1}, {memory.query_rows, width},
                {memory.dkeys + key * width, width}, true);
  small_product(keys, value_width, q.count, {memory.scores, kQueries, 1},
                {memory.output_rows, value_width},
                {memory.dvalues + key * value_width, value_width}, true);
}

void write_dqueries(const AttentionBackward& x, const Queries& q, const float* dqueries) {
  const int64_t start = head_start(x.shape, x.q_strides, q.sequence, q.head);
  const auto scale = static_cast<float>(x.shape.scale);
  for (int64_t i = 0; i < q.count; ++i) {
    const int64_t at = start + (q.query + i) * x.q_strides.position;
    vectors(0, x.shape.dim, [&](int64_t d, auto n) {
      float part[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) part[lane] = dqueries[(d + lane) * kQueries + i];
      const Float value = scale * load(part);
      store(x.dq, at + d, x.accumulate ? load(x.dq, at + d, n) + value : value, n);
    });
  }
}

void write_rows(const Array& to, int64_t start, int64_t stride, int64_t rows, int64_t dim,
                const float* from, bool adds) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = start + row * stride;
    vectors(0, dim, [&](int64_t d, auto n) {
      const Float value = load(from + row * padded(dim) + d);
      store(to, at + d, adds ? load(to, at + d, n) + value : value, n);
    });
  }
}

/// All heads of one group in ascending order, so that sums over them have a fixed order.
void backward_group(const AttentionBackward& x, int64_t sequence, int64_t group, float* at) {
  const auto& shape = x.shape;
  const int64_t width = padded(shape.dim), value_width = padded(shape.value_dim);
  const Memory memory(at, shape);
  unpack_rows(x.k, group_start(x.k_strides, sequence, group), x.k_strides.position, shape.keys,
              shape.dim, 1, memory.keys);
  unpack_rows(x.v, group_start(x.v_strides, sequence, group), x.v_strides.position, shape.keys,
              shape.value_dim, 1, memory.values);
  for (int64_t i = 0; i < shape.keys * width; ++i) memory.dkeys[i] = 0;
  for (int64_t i = 0; i < shape.keys * value_width; ++i) memory.dvalues[i] = 0;

  const int64_t heads = shape.heads / shape.groups;
  for (int64_t head = group * heads; head < (group + 1) * heads; ++head) {
    for (int64_t query = 0; query < shape.queries; query += kQueries) {
      const int64_t count = query + kQueries < shape.queries ? kQueries : shape.queries - query;
      Queries q;
      q.sequence = sequence;
      q.head = head;
      q.query = query;
      q.count = count;
      const Visible visible(shape, sequence, query, count);
      prepare(x, q, memory);
      for (int64_t i = 0; i < kQueries * width; ++i) memory.dqueries[i] = 0;
      for (int64_t key = visible.begin; key < visible.end; key += kKeys) {
        const int64_t keys = key + kKeys < visible.end ? kKeys : visible.end - key;
        backward_tile(x, visible, q, key, keys, memory);
      }
      write_dqueries(x, q, memory.dqueries);
    }
  }
  write_rows(x.dk, group_start(x.k_strides, sequence, group), x.k_strides.position, shape.keys,
             shape.dim, memory.dkeys, x.accumulate);
  write_rows(x.dv, group_start(x.v_strides, sequence, group), x.v_strides.position, shape.keys,
             shape.value_dim, memory.dvalues, x.accumulate);
}

}  // namespace

void CpuKernels::run(const AttentionBackward& x) {
  const int64_t each = Memory::floats(x.shape);
  float* memory = workspace_.floats(each * team_.threads());
  team_.tasks(x.shape.sequences * x.shape.groups, [&](int64_t task, int thread) {
    backward_group(x, task / x.shape.groups, task % x.shape.groups, memory + thread * each);
  });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
