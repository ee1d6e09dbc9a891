#include <utility>

#include "kernels/cpu/attention/attention_tile.h"
#include "kernels/cpu/cpu_kernels.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

namespace {

constexpr int64_t kTaskQueries = 8 * kQueries;

/// One thread's buffers.
struct Memory {
  float *keys, *values;            // [keys, padded dim], [keys, padded value dim]
  float *query_rows, *queries;     // [kQueries, padded dim], and transposed
  float *scores, *kept, *outputs;  // [kKeys, kQueries] twice, [padded value dim, kQueries]

  static int64_t floats(const AttentionShape& s) {
    const int64_t both = padded(s.dim) + padded(s.value_dim);
    return s.keys * both + kQueries * (2 * padded(s.dim) + padded(s.value_dim) + 2 * kKeys);
  }
  Memory(float* at, const AttentionShape& s) {
    const auto take = [&](int64_t count) { return std::exchange(at, at + count); };
    keys = take(s.keys * padded(s.dim));
    values = take(s.keys * padded(s.value_dim));
    query_rows = take(kQueries * padded(s.dim));
    queries = take(kQueries * padded(s.dim));
    scores = take(kKeys * kQueries);
    kept = take(kKeys * kQueries);
    outputs = take(kQueries * padded(s.value_dim));
  }
};

/// For each query: the maximum score so far and the sum of exponentials relative to it.
struct Running {
  Float greatest[kQueryVectors], sum[kQueryVectors];
};

/// Online softmax: replaces scores by exponentials and rescales the running sums and outputs.
FERRY_INLINE void soften(const Visible& visible, int64_t key, int64_t keys, int64_t value_dim,
                         const float* kept, Running& running, float* scores, float* outputs) {
  const float kNone = -__builtin_inff();
  for (int v = 0; v < kQueryVectors; ++v) {
    float* column = scores + v * kLanes;
    if (!visible.sees_all(key, keys)) {
      for (int64_t j = 0; j < keys; ++j) {
        const Float score = load(column + j * kQueries);
        store(column + j * kQueries, visible.sees(v, key + j) != 0 ? score : all(kNone));
      }
    }
    Float greatest = running.greatest[v];
    for (int64_t j = 0; j < keys; ++j) {
      const Float score = load(column + j * kQueries);
      greatest = greatest < score ? score : greatest;
    }
    // Without visible keys so far the maximum is minus infinity, which must not be subtracted.
    const Float base = greatest == kNone ? Float{} : greatest;
    const Float before = exp(running.greatest[v] - base);
    Float sum = running.sum[v] * before;
    for (int64_t j = 0; j < keys; ++j) {
      const Float power = exp(load(column + j * kQueries) - base);
      sum += power;
      store(column + j * kQueries, kept ? power * load(kept + j * kQueries + v * kLanes) : power);
    }
    for (int64_t i = 0; i < value_dim; ++i) {
      float* output = outputs + i * kQueries + v * kLanes;
      store(output, load(output) * before);
    }
    running.greatest[v] = greatest;
    running.sum[v] = sum;
  }
}

void write(const AttentionForward& x, const Running& running, int64_t sequence, int64_t head,
           int64_t query, int64_t count, const float* outputs) {
  float divisor[kQueries], logarithm[kQueries];
  for (int v = 0; v < kQueryVectors; ++v) {
    const Float sum = running.sum[v];
    const Float known = sum > 0 ? sum : all(1.0F);
    store(divisor + v * kLanes, 1.0F / known);
    store(logarithm + v * kLanes,
          sum > 0 ? running.greatest[v] + log(known) : all(-__builtin_inff()));
  }
  const int64_t start = head_start(x.shape, x.output_strides, sequence, head);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = start + (query + i) * x.output_strides.position;
    vectors(0, x.shape.value_dim, [&](int64_t d, auto n) {
      float part[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) part[lane] = outputs[(d + lane) * kQueries + i];
      store(x.output, at + d, load(part) * divisor[i], n);
    });
  }
  if (!x.log_sum) return;
  float* to = x.log_sum + (sequence * x.shape.heads + head) * x.shape.queries + query;
  for (int64_t i = 0; i < count; ++i) to[i] = logarithm[i];
}

/// Computes the outputs of kQueries queries, or the last ones.
void attend(const AttentionForward& x, const Visible& visible, int64_t sequence, int64_t head,
            int64_t query, int64_t count, const Memory& memory) {
  const auto& shape = x.shape;
  const int64_t width = padded(shape.dim), value_width = padded(shape.value_dim);
  unpack_rows(x.q, head_start(shape, x.q_strides, sequence, head) + query * x.q_strides.position,
              x.q_strides.position, count, shape.dim, static_cast<float>(shape.scale),
              memory.query_rows);
  turn(memory.query_rows, count, shape.dim, memory.queries);
  for (int64_t i = 0; i < value_width * kQueries; ++i) memory.outputs[i] = 0;

  Running running;
  for (int v = 0; v < kQueryVectors; ++v) {
    running.greatest[v] = all(-__builtin_inff());
    running.sum[v] = Float{};
  }
  for (int64_t key = visible.begin; key < visible.end; key += kKeys) {
    const int64_t keys = key + kKeys < visible.end ? kKeys : visible.end - key;
    small_product(keys, kQueries, shape.dim, {memory.keys + key * width, width, 1},
                  {memory.queries, kQueries}, {memory.scores, kQueries}, false);
    const bool drops = shape.dropout > 0;
    if (drops) fill_kept(shape, sequence, head, query, count, key, memory.kept);
    soften(visible, key, keys, shape.value_dim, drops ? memory.kept : nullptr, running,
           memory.scores, memory.outputs);
    small_product(shape.value_dim, kQueries, keys,
                  {memory.values + key * value_width, 1, value_width}, {memory.scores, kQueries},
                  {memory.outputs, kQueries}, true);
  }
  write(x, running, sequence, head, query, count, memory.outputs);
}

/// Processes kTaskQueries queries of one head.
void attend_task(const AttentionForward& x, int64_t task, float* at) {
  const auto& shape = x.shape;
  const int64_t parts = (shape.queries + kTaskQueries - 1) / kTaskQueries;
  // The last queries see the most keys, so they start first.
  const int64_t part = parts - 1 - task % parts, head = task / parts % shape.heads;
  const int64_t sequence = task / parts / shape.heads;
  const int64_t group = head / (shape.heads / shape.groups);
  const int64_t begin = part * kTaskQueries;
  const int64_t end = begin + kTaskQueries < shape.queries ? begin + kTaskQueries : shape.queries;
  const Memory memory(at, shape);

  int64_t unpacked = shape.keys, unpacked_end = 0;  // keys visible to any of the queries
  for (int64_t query = begin; query < end; query += kQueries) {
    const int64_t count = query + kQueries < end ? kQueries : end - query;
    const Visible visible(shape, sequence, query, count);
    if (visible.begin < unpacked) unpacked = visible.begin;
    if (visible.end > unpacked_end) unpacked_end = visible.end;
  }
  const int64_t keys = unpacked_end - unpacked;
  if (keys > 0) {
    unpack_rows(x.k, group_start(x.k_strides, sequence, group) + unpacked * x.k_strides.position,
                x.k_strides.position, keys, shape.dim, 1,
                memory.keys + unpacked * padded(shape.dim));
    unpack_rows(x.v, group_start(x.v_strides, sequence, group) + unpacked * x.v_strides.position,
                x.v_strides.position, keys, shape.value_dim, 1,
                memory.values + unpacked * padded(shape.value_dim));
  }
  for (int64_t query = begin; query < end; query += kQueries) {
    const int64_t count = query + kQueries < end ? kQueries : end - query;
    attend(x, Visible(shape, sequence, query, count), sequence, head, query, count, memory);
  }
}

}  // namespace

void CpuKernels::run(const AttentionForward& x) {
  const int64_t parts = (x.shape.queries + kTaskQueries - 1) / kTaskQueries;
  const int64_t each = Memory::floats(x.shape);
  float* memory = workspace_.floats(each * team_.threads());
  team_.tasks(x.shape.sequences * x.shape.heads * parts,
              [&](int64_t task, int thread) { attend_task(x, task, memory + thread * each); });
}

void CpuKernels::run(const AttentionMerge& x) {
  const auto& shape = x.shape;
  const int64_t rows = shape.sequences * shape.heads * shape.queries;
  team_.each(rows, shape.value_dim, [&](int64_t row) {
    const int64_t query = row % shape.queries, head = row / shape.queries % shape.heads;
    const int64_t sequence = row / shape.queries / shape.heads;
    const float a = x.log_sum[row], b = x.part_log_sum[row];
    const float greatest = a > b ? a : b;
    if (greatest == -__builtin_inff()) return;
    const float sum = greatest + log(exp(all(a - greatest)) + exp(all(b - greatest)))[0];
    const float of_a = exp(all(a - sum))[0], of_b = exp(all(b - sum))[0];
    const int64_t at =
        head_start(shape, x.output_strides, sequence, head) + query * x.output_strides.position;
    vectors(at, at + shape.value_dim, [&](int64_t i, auto n) {
      store(x.output + i, of_a * load(x.output + i, n) + of_b * load(x.part + i, n), n);
    });
    x.log_sum[row] = sum;
  });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
