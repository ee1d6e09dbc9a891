// The forward pass of attention for Hopper. Source: FlashAttention-3 (Shah et al. 2024), arXiv
// 2407.08608: TMA loads overlap with products; the softmax of one tile overlaps with the product of
// the previous tile's probabilities; warpgroups alternate (ping-pong).
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/hopper.cuh"

namespace ferry::kernels::cuda {

namespace {

/// D, V: columns of queries and values, at least their dims. GROUPS: consumer warpgroups, with 64
/// queries each. KEYS: keys per tile. DROPS: with dropout.
template <typename T, int D, int V, int GROUPS, int KEYS, int STAGES, bool DROPS>
struct Forward {
  static constexpr int kQueries = 64 * GROUPS;
  static constexpr int kThreads = 128 * (GROUPS + 1);
  static constexpr int kQueryBytes = tile_bytes(kQueries, D);
  static constexpr int kKeyBytes = tile_bytes(KEYS, D), kValueBytes = tile_bytes(KEYS, V);
  static constexpr int kQueryStages = D <= 128 ? 2 : 1;
  static constexpr int kBytes =
      kQueryStages * kQueryBytes + STAGES * (kKeyBytes + kValueBytes) + 256;
  static constexpr int kCopyRegisters = GROUPS == 2 ? 24 : 32;
  static constexpr int kRegisters = GROUPS == 2 ? 240 : 160;

  struct Barriers {
    uint64_t query_full[kQueryStages], query_free[kQueryStages];
    uint64_t key_full[STAGES], key_free[STAGES], value_full[STAGES], value_free[STAGES];
  };
  struct Memory {
    unsigned char *queries, *keys, *values;
    Barriers* barriers;
    __device__ explicit Memory(unsigned char* at)
        : queries(at),
          keys(at + kQueryStages * kQueryBytes),
          values(keys + STAGES * kKeyBytes),
          barriers(reinterpret_cast<Barriers*>(values + STAGES * kValueBytes)) {}
  };

  using Work = QueryWork<kQueries, KEYS>;

  static __device__ void copy(const AttentionShape& s, const Schedule& schedule,
                              const CUtensorMap* q, const CUtensorMap* k, const CUtensorMap* v,
                              const Memory& memory) {
    Barriers& barriers = *memory.barriers;
    StageCursor<STAGES> cursor;
    StageCursor<kQueryStages> query_turn;
    Schedule::Tile next;
    for (int round = 0; schedule.at(round, next); ++round, query_turn.next()) {
      const Work work(s, schedule, next);
      const auto copy_queries = [&] {
        const int stage = query_turn.stage;
        uint64_t* const full = &barriers.query_full[stage];
        ptx::wait(&barriers.query_free[stage], query_turn.parity ^ 1);
        ptx::arrive_and_expect(full, kQueryBytes);
        copy_tile<D>(memory.queries + stage * kQueryBytes, kQueries, q, full, work.query,
                     work.of_group, work.group, work.sequence);
      };
      if (work.last_tile <= work.first_tile) copy_queries();
      for (int tile = work.last_tile - 1; tile >= work.first_tile; --tile, cursor.next()) {
        const int stage = cursor.stage;
        ptx::wait(&barriers.key_free[stage], cursor.parity ^ 1);
        ptx::arrive_and_expect(&barriers.key_full[stage], kKeyBytes);
        copy_tile<D>(memory.keys + stage * kKeyBytes, KEYS, k, &barriers.key_full[stage],
                     tile * KEYS, work.group, work.sequence);
        if (tile == work.last_tile - 1) copy_queries();
        ptx::wait(&barriers.value_free[stage], cursor.parity ^ 1);
        ptx::arrive_and_expect(&barriers.value_full[stage], kValueBytes);
        copy_tile<V>(memory.values + stage * kValueBytes, KEYS, v, &barriers.value_full[stage],
                     tile * KEYS, work.group, work.sequence);
      }
    }
  }

  /// The online softmax of a thread's two rows, in powers of two; `scale` includes the factor
  /// log2(e).
  struct Rows {
    float greatest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

    /// Replaces scores by powers; `before` is the factor of earlier sums and outputs. Uses two
    /// interleaved maxima and sums per row to shorten dependency chains.
    __device__ void online_softmax(float (&scores)[KEYS / 2], float scale, float (&before)[2]) {
      float most[4] = {greatest[0], greatest[0], greatest[1], greatest[1]}, base[2];
#pragma unroll
      for (int i = 0; i < KEYS / 2; ++i) most[i % 4] = fmaxf(most[i % 4], scores[i]);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float of_row = fmaxf(most[2 * r], most[2 * r + 1]);
        of_row = fmaxf(of_row, __shfl_xor_sync(0xffffffffU, of_row, 1));
        of_row = fmaxf(of_row, __shfl_xor_sync(0xffffffffU, of_row, 2));
        // Without visible keys so far the maximum is minus infinity, which must not be subtracted.
        base[r] = of_row == -INFINITY ? 0 : of_row * scale;
        before[r] = power_of_two(greatest[r] * scale - base[r]);
        greatest[r] = of_row;
      }
      float total[4] = {};
#pragma unroll
      for (int i = 0; i < KEYS / 2; ++i) {
        scores[i] = power_of_two(fmaf(scores[i], scale, -base[i % 4 / 2]));
        total[i % 4] += scores[i];
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        sum[r] = sum[r] * before[r] + (total[2 * r] + total[2 * r + 1]);
      }
    }
  };

  static __device__ void apply_mask(float (&scores)[KEYS / 2], const Interval (&seen)[2], int key) {
    const int column = key + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < KEYS / 2; ++i) {
      const int number = column + i / 4 * 8 + i % 2;
      const Interval& of = seen[i % 4 / 2];
      if (number < of.first || number >= of.last) scores[i] = -INFINITY;
    }
  }

  static __device__ void drop(const AttentionShape& s, const Work& work, int query, int key,
                              float (&powers)[KEYS / 2]) {
    mark_dropped(Kept(s, work.sequence, work.head), query, key, powers);
#pragma unroll
    for (float& power : powers) power = fmaxf(power, 0);
  }

  static __device__ void multiply(const AttentionForward& x, const Schedule& schedule,
                                  const Memory& memory) {
    const AttentionShape& s = x.shape;
    Barriers& barriers = *memory.barriers;
    const int warpgroup = static_cast<int>(threadIdx.x) / 128 - 1;
    const int own = 64 * warpgroup + static_cast<int>(threadIdx.x) % 128 / 32 * 16 +
                    static_cast<int>(threadIdx.x) % 32 / 4;
    const float scale = static_cast<float>(s.scale) * kLog2e;
    const uint64_t first_q = ptx::describe(memory.queries + 64 * warpgroup * kPanelRow);
    const uint64_t k = ptx::describe(memory.keys);
    const uint64_t v = ptx::describe(memory.values, KEYS * kPanelRow);
    const auto release = [](uint64_t* barrier) {
      if (threadIdx.x % 32 == 0) ptx::arrive(barrier);
    };
    // Barriers by which one warpgroup at a time issues products while the others compute powers.
    const int own_turn = 1 + warpgroup, next_turn = 1 + (warpgroup + 1) % GROUPS;
    if (warpgroup == GROUPS - 1) ptx::arrive_some(next_turn, 256);

    StageCursor<STAGES> keys, values;
    StageCursor<kQueryStages> query_turn;
    float scores[KEYS / 2], outputs[V / 2];
    uint32_t probabilities[KEYS / 4];
    Schedule::Tile next;
    for (int round = 0; schedule.at(round, next); ++round, query_turn.next()) {
      const Work work(s, schedule, next);
      const int own_query = work.query + 64 * warpgroup;
      const TileBounds bounds(s, work.sequence, own_query, 64);
      const uint64_t q = ptx::further(first_q, query_turn.stage * kQueryBytes);
      const Interval seen[2] = {visible_keys(s, work.sequence, work.query + own),
                                visible_keys(s, work.sequence, work.query + own + 8)};
      Rows rows;
      float before[2];
#pragma unroll
      for (float& output : outputs) output = 0;
      ptx::wait(&barriers.query_full[query_turn.stage], query_turn.parity);
      int tile = work.last_tile - 1;
      for (; tile >= work.own_last(s, own_query, bounds);
           --tile) {  // tiles of other warpgroups only
        ptx::wait(&barriers.key_full[keys.stage], keys.parity);
        release(&barriers.key_free[keys.stage]);
        keys.next();
        ptx::wait(&barriers.value_full[values.stage], values.parity);
        release(&barriers.value_free[values.stage]);
        values.next();
        ptx::sync_some(own_turn, 256);
        ptx::arrive_some(next_turn, 256);
      }
      if (tile >= work.first_tile) {
        ptx::wait(&barriers.key_full[keys.stage], keys.parity);
        ptx::begin_products();
        multiply_rows<T, D>(scores, q, kQueries * kPanelRow,
                            ptx::further(k, keys.stage * kKeyBytes), KEYS * kPanelRow);
        ptx::end_products();
        ptx::wait_products<0>();
        ptx::fence_results(scores);
        release(&barriers.key_free[keys.stage]);
        keys.next();
        if (!bounds.all_see(tile * KEYS, KEYS)) apply_mask(scores, seen, tile * KEYS);
        rows.online_softmax(scores, scale, before);
        if constexpr (DROPS) drop(s, work, work.query + own, tile * KEYS, scores);
        pack<T>(scores, probabilities);
        for (--tile; tile >= work.first_tile; --tile) {
          ptx::wait(&barriers.key_full[keys.stage], keys.parity);
          ptx::sync_some(own_turn, 256);
          ptx::begin_products();
          multiply_rows<T, D>(scores, q, kQueries * kPanelRow,
                              ptx::further(k, keys.stage * kKeyBytes), KEYS * kPanelRow);
          ptx::end_products();
          ptx::wait(&barriers.value_full[values.stage], values.parity);
          ptx::begin_products();
          multiply_columns<T>(outputs, probabilities, ptx::further(v, values.stage * kValueBytes));
          ptx::end_products();
          ptx::arrive_some(next_turn, 256);
          ptx::wait_products<1>();
          ptx::fence_results(scores);
          release(&barriers.key_free[keys.stage]);
          keys.next();
          if (!bounds.all_see(tile * KEYS, KEYS)) apply_mask(scores, seen, tile * KEYS);
          rows.online_softmax(scores, scale, before);
          if constexpr (DROPS) drop(s, work, work.query + own, tile * KEYS, scores);
          ptx::wait_products<0>();
          ptx::fence_results(outputs);
          ptx::fence_results(probabilities);
          release(&barriers.value_free[values.stage]);
          values.next();
          pack<T>(scores, probabilities);
          // Maxima rarely change after the first tiles. For wide heads, whose products take longer
          // than their powers, the check costs more than it saves.
          if (V > 64 || __any_sync(0xffffffffU, before[0] != 1 || before[1] != 1)) {
#pragma unroll
            for (int i = 0; i < V / 2; ++i) outputs[i] *= before[i % 4 / 2];
          }
        }
        release(&barriers.query_free[query_turn.stage]);
        ptx::wait(&barriers.value_full[values.stage], values.parity);
        ptx::begin_products();
        multiply_columns<T>(outputs, probabilities, ptx::further(v, values.stage * kValueBytes));
        ptx::end_products();
        ptx::wait_products<0>();
        ptx::fence_results(outputs);
        ptx::fence_results(probabilities);
        release(&barriers.value_free[values.stage]);
        values.next();
      } else {
        release(&barriers.query_free[query_turn.stage]);
      }
      write(x, work, own, rows, outputs);
    }
  }

  static __device__ void write(const AttentionForward& x, const Work& work, int own,
                               const Rows& rows, const float (&outputs)[V / 2]) {
    const AttentionShape& s = x.shape;
    const float kept = DROPS ? static_cast<float>(1 / (1 - s.dropout)) : 1.0F;
    float divisor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = rows.sum[r];
      sum += __shfl_xor_sync(0xffffffffU, sum, 1);
      sum += __shfl_xor_sync(0xffffffffU, sum, 2);
      divisor[r] = sum == 0 ? 1 : kept / sum;  // a NaN sum stays visible
      const int query = work.query + own + 8 * r;
      if (x.log_sum && threadIdx.x % 4 == 0 && query >= 0 && query < s.queries) {
        x.log_sum[(int64_t{work.sequence} * s.heads + work.head) * s.queries + query] =
            sum == 0 ? -INFINITY : rows.greatest[r] * static_cast<float>(s.scale) + logf(sum);
      }
    }
    store_rows(outputs, x.output, head_start(s, x.output_strides, work.sequence, work.head),
               x.output_strides.position, work.query + own, s.queries,
               static_cast<int>(s.value_dim), divisor, false);
  }
};

template <typename F>
__global__ void __launch_bounds__(F::kThreads, 1)
    forward_kernel(const __grid_constant__ AttentionForward x,
                   const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                   const __grid_constant__ CUtensorMap v, Schedule schedule) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const typename F::Memory memory(shared);
  auto& barriers = *memory.barriers;
  constexpr int kWarps = F::kQueries / 16;
  if (threadIdx.x == 0) {
    for (auto& barrier : barriers.query_full) ptx::init_barrier(&barrier, 1);
    for (auto& barrier : barriers.query_free) ptx::init_barrier(&barrier, kWarps);
    for (auto& barrier : barriers.key_full) ptx::init_barrier(&barrier, 1);
    for (auto& barrier : barriers.value_full) ptx::init_barrier(&barrier, 1);
    for (auto& barrier : barriers.key_free) ptx::init_barrier(&barrier, kWarps);
    for (auto& barrier : barriers.value_free) ptx::init_barrier(&barrier, kWarps);
    ptx::fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    ptx::fewer_registers<F::kCopyRegisters>();
    if (threadIdx.x == 0) F::copy(x.shape, schedule, &q, &k, &v, memory);
  } else {
    ptx::more_registers<F::kRegisters>();
    F::multiply(x, schedule, memory);
  }
}

template <typename T, int D, int V, int GROUPS, int KEYS, int STAGES, bool DROPS = false>
void launch(Device& device, const AttentionForward& x) {
  using F = Forward<T, D, V, GROUPS, KEYS, STAGES, DROPS>;
  const AttentionShape& s = x.shape;
  Schedule plan = schedule(device, s.queries, F::kQueries, s.sequences * s.heads,
                           2 * s.keys * (s.dim + s.value_dim) * s.groups / s.heads);
  // The partial tile is a head's first one, whose queries see the fewest keys.
  plan.before = plan.tiles * F::kQueries - static_cast<int>(s.queries);
  const auto q = tensor_map(x.q, s.dim, query_dimensions(s, x.q_strides), F::kQueries);
  const auto k = tensor_map(x.k, s.dim, key_dimensions(s, x.k_strides), KEYS);
  const auto v = tensor_map(x.v, s.value_dim, key_dimensions(s, x.v_strides), KEYS);
  allow_shared_memory(forward_kernel<F>, F::kBytes);
  const int blocks = std::min(plan.count(), device.multiprocessors());
  forward_kernel<F><<<blocks, F::kThreads, F::kBytes, device.stream()>>>(x, q, k, v, plan);
  check_launch("attention");
}

template <typename T>
void launch(Device& device, const AttentionForward& x) {
  const AttentionShape& s = x.shape;
  if (s.dropout > 0) {
    if (s.dim <= 64 && s.value_dim <= 64) return launch<T, 64, 64, 2, 128, 2, true>(device, x);
    return launch<T, 128, 128, 2, 128, 2, true>(device, x);
  }
  if (s.dim <= 64 && s.value_dim <= 64) return launch<T, 64, 64, 3, 128, 4>(device, x);
  if (s.dim <= 96 && s.value_dim <= 96) return launch<T, 96, 96, 2, 128, 2>(device, x);
  if (s.dim <= 128) return launch<T, 128, 128, 2, 128, 2>(device, x);
  launch<T, 192, 128, 2, 128, 2>(device, x);
}

}  // namespace

bool hopper_forward(Device& device, const AttentionForward& x) {
  const AttentionShape& s = x.shape;
  if (x.q.type != x.k.type || x.q.type != x.v.type || !is_for_hopper(device, s, x.q.type) ||
      !takes_tensor(x.q, s.dim, query_dimensions(s, x.q_strides)) ||
      !takes_tensor(x.k, s.dim, key_dimensions(s, x.k_strides)) ||
      !takes_tensor(x.v, s.value_dim, key_dimensions(s, x.v_strides)) ||
      !takes_packs(x.output, x.output_strides)) {
    return false;
  }
  if (x.q.type == Type::bf16) {
    launch<bf16>(device, x);
  } else {
    launch<half>(device, x);
  }
  return true;
}

}  // namespace ferry::kernels::cuda
