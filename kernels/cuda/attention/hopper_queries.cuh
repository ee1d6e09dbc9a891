// Gradients of queries for Hopper: a block has 64 queries per warpgroup and iterates over their
// keys.
#pragma once

#include "kernels/cuda/attention/hopper_key_work.cuh"

namespace ferry::kernels::cuda {

/// D, V: columns of queries and values, at least their dims. KEYS: keys per tile.
template <typename T, int D, int V, int KEYS, int STAGES>
struct QueryGradients {
  static constexpr int kGroups = 2, kQueries = 64 * kGroups, kThreads = 128 * (kGroups + 1);
  static constexpr int kQueryBytes = tile_bytes(kQueries, D);
  static constexpr int kOutputBytes = tile_bytes(kQueries, V);
  static constexpr int kKeyBytes = tile_bytes(KEYS, D), kValueBytes = tile_bytes(KEYS, V);
  static constexpr int kBytes =
      kQueryBytes + kOutputBytes + STAGES * (kKeyBytes + kValueBytes) + 256;

  struct Maps {
    CUtensorMap q, k, v, doutput;
  };
  struct Barriers {
    uint64_t query_full, query_free;
    uint64_t key_full[STAGES], key_free[STAGES], value_full[STAGES], value_free[STAGES];
  };
  struct Memory {
    unsigned char *queries, *doutputs, *keys, *values;
    Barriers* barriers;
    __device__ explicit Memory(unsigned char* at)
        : queries(at),
          doutputs(queries + kQueryBytes),
          keys(doutputs + kOutputBytes),
          values(keys + STAGES * kKeyBytes),
          barriers(reinterpret_cast<Barriers*>(values + STAGES * kValueBytes)) {}
  };

  using Work = QueryWork<kQueries, KEYS>;

  static __device__ void copy(const AttentionShape& s, const Schedule& schedule, const Maps& maps,
                              const Memory& memory) {
    Barriers& barriers = *memory.barriers;
    StageCursor<STAGES> cursor;
    int query_parity = 1;  // free at first
    Schedule::Tile next;
    for (int round = 0; schedule.at(round, next); ++round) {
      const Work work(s, schedule, next);
      ptx::wait(&barriers.query_free, query_parity);
      query_parity ^= 1;
      ptx::arrive_and_expect(&barriers.query_full, kQueryBytes + kOutputBytes);
      copy_tile<D>(memory.queries, kQueries, &maps.q, &barriers.query_full, work.query,
                   work.of_group, work.group, work.sequence);
      copy_tile<V>(memory.doutputs, kQueries, &maps.doutput, &barriers.query_full, work.query,
                   work.of_group, work.group, work.sequence);
      for (int tile = work.last_tile - 1; tile >= work.first_tile; --tile, cursor.next()) {
        const int stage = cursor.stage;
        ptx::wait(&barriers.key_free[stage], cursor.parity ^ 1);
        ptx::arrive_and_expect(&barriers.key_full[stage], kKeyBytes);
        copy_tile<D>(memory.keys + stage * kKeyBytes, KEYS, &maps.k, &barriers.key_full[stage],
                     tile * KEYS, work.group, work.sequence);
        ptx::wait(&barriers.value_free[stage], cursor.parity ^ 1);
        ptx::arrive_and_expect(&barriers.value_full[stage], kValueBytes);
        copy_tile<V>(memory.values + stage * kValueBytes, KEYS, &maps.v,
                     &barriers.value_full[stage], tile * KEYS, work.group, work.sequence);
      }
    }
  }

  static __device__ void multiply(const AttentionBackward& x, const Schedule& schedule,
                                  const RowNumbers& numbers, const Memory& memory) {
    const AttentionShape& s = x.shape;
    Barriers& barriers = *memory.barriers;
    const int warpgroup = static_cast<int>(threadIdx.x) / 128 - 1;
    const int own = 64 * warpgroup + static_cast<int>(threadIdx.x) % 128 / 32 * 16 +
                    static_cast<int>(threadIdx.x) % 32 / 4;
    const float scale = static_cast<float>(s.scale) * kLog2e;
    const uint64_t q = ptx::describe(memory.queries + 64 * warpgroup * kPanelRow);
    const uint64_t o = ptx::describe(memory.doutputs + 64 * warpgroup * kPanelRow);
    const uint64_t k = ptx::describe(memory.keys), v = ptx::describe(memory.values);
    const uint64_t k_across = ptx::describe(memory.keys, KEYS * kPanelRow);
    const auto release = [](uint64_t* barrier) {
      if (threadIdx.x % 32 == 0) ptx::arrive(barrier);
    };

    StageCursor<STAGES> cursor;
    int query_parity = 0;
    float scores[KEYS / 2], gradients[KEYS / 2], dqueries[D / 2];
    uint32_t dscores[KEYS / 4];
    Schedule::Tile next;
    for (int round = 0; schedule.at(round, next); ++round) {
      const Work work(s, schedule, next);
      const int own_query = work.query + 64 * warpgroup;
      const TileBounds bounds(s, work.sequence, own_query, 64);
      const Interval seen[2] = {visible_keys(s, work.sequence, work.query + own),
                                visible_keys(s, work.sequence, work.query + own + 8)};
      float log_sum[2], delta[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int64_t row = (int64_t{work.sequence} * s.heads + work.head) * numbers.padded +
                            work.query + own + 8 * r;
        log_sum[r] = numbers.log_sum[row];
        delta[r] = numbers.delta[row];
      }
#pragma unroll
      for (float& each : dqueries) each = 0;
      // Starts the products of a tile's scores and gradients of probabilities, as two groups.
      const auto begin_tile = [&] {
        ptx::wait(&barriers.key_full[cursor.stage], cursor.parity);
        ptx::begin_products();
        multiply_rows<T, D>(scores, q, kQueries * kPanelRow,
                            ptx::further(k, cursor.stage * kKeyBytes), KEYS * kPanelRow);
        ptx::end_products();
        ptx::wait(&barriers.value_full[cursor.stage], cursor.parity);
        ptx::begin_products();
        multiply_rows<T, V>(gradients, o, kQueries * kPanelRow,
                            ptx::further(v, cursor.stage * kValueBytes), KEYS * kPanelRow);
        ptx::end_products();
      };
      ptx::wait(&barriers.query_full, query_parity);
      query_parity ^= 1;
      int tile = work.last_tile - 1, stage_before = -1;
      for (; tile >= work.own_last(s, own_query, bounds);
           --tile) {  // tiles of other warpgroups only
        ptx::wait(&barriers.key_full[cursor.stage], cursor.parity);
        release(&barriers.key_free[cursor.stage]);
        ptx::wait(&barriers.value_full[cursor.stage], cursor.parity);
        release(&barriers.value_free[cursor.stage]);
        cursor.next();
      }
      for (; tile >= work.first_tile; --tile) {
        begin_tile();
        ptx::wait_products<1>();
        ptx::fence_results(scores);
        ptx::fence_results(dscores);
        if (stage_before >= 0) release(&barriers.key_free[stage_before]);
        stage_before = cursor.stage;
        const bool all_see = bounds.all_see(tile * KEYS, KEYS);
        const int column = tile * KEYS + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
        for (int i = 0; i < KEYS / 2; ++i) {
          const int r = i % 4 / 2;
          scores[i] = power_of_two(fmaf(scores[i], scale, -log_sum[r]));
          if (all_see) continue;
          const int number = column + i / 4 * 8 + i % 2;
          if (number < seen[r].first || number >= seen[r].last) scores[i] = 0;
        }
        ptx::wait_products<0>();
        ptx::fence_results(gradients);
        release(&barriers.value_free[cursor.stage]);
#pragma unroll
        for (int i = 0; i < KEYS / 2; ++i) {
          gradients[i] = scores[i] * (gradients[i] - delta[i % 4 / 2]);
        }
        pack<T>(gradients, dscores);
        ptx::begin_products();
        multiply_columns<T>(dqueries, dscores, ptx::further(k_across, cursor.stage * kKeyBytes));
        ptx::end_products();
        cursor.next();
      }
      ptx::wait_products<0>();
      ptx::fence_results(dqueries);
      ptx::fence_results(dscores);
      if (stage_before >= 0) release(&barriers.key_free[stage_before]);
      release(&barriers.query_free);
      const auto factor = static_cast<float>(s.scale);
      const float factors[2] = {factor, factor};
      store_rows(dqueries, x.dq, head_start(s, x.q_strides, work.sequence, work.head),
                 x.q_strides.position, work.query + own, s.queries, static_cast<int>(s.dim),
                 factors, x.accumulate);
    }
  }
};

template <typename F>
__global__ void __launch_bounds__(F::kThreads, 1)
    query_gradients_kernel(const __grid_constant__ AttentionBackward x,
                           const __grid_constant__ typename F::Maps maps, RowNumbers numbers,
                           Schedule schedule) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const typename F::Memory memory(shared);
  auto& barriers = *memory.barriers;
  constexpr int kWarps = F::kQueries / 16;
  if (threadIdx.x == 0) {
    ptx::init_barrier(&barriers.query_full, 1);
    ptx::init_barrier(&barriers.query_free, kWarps);
    for (auto& barrier : barriers.key_full) ptx::init_barrier(&barrier, 1);
    for (auto& barrier : barriers.value_full) ptx::init_barrier(&barrier, 1);
    for (auto& barrier : barriers.key_free) ptx::init_barrier(&barrier, kWarps);
    for (auto& barrier : barriers.value_free) ptx::init_barrier(&barrier, kWarps);
    ptx::fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    ptx::fewer_registers<24>();
    if (threadIdx.x == 0) F::copy(x.shape, schedule, maps, memory);
  } else {
    ptx::more_registers<240>();
    F::multiply(x, schedule, numbers, memory);
  }
}

template <typename T, int D, int V, int KEYS, int STAGES>
void launch_queries(Device& device, const AttentionBackward& x, const RowNumbers& numbers) {
  using F = QueryGradients<T, D, V, KEYS, STAGES>;
  const AttentionShape& s = x.shape;
  const Schedule plan = schedule(device, s.queries, F::kQueries, s.sequences * s.heads,
                                 2 * s.keys * (s.dim + s.value_dim) * s.groups / s.heads);
  const typename F::Maps maps{
      tensor_map(x.q, s.dim, query_dimensions(s, x.q_strides), F::kQueries),
      tensor_map(x.k, s.dim, key_dimensions(s, x.k_strides), KEYS),
      tensor_map(x.v, s.value_dim, key_dimensions(s, x.v_strides), KEYS),
      tensor_map(x.doutput, s.value_dim, query_dimensions(s, x.output_strides), F::kQueries)};
  allow_shared_memory(query_gradients_kernel<F>, F::kBytes);
  const int blocks = std::min(plan.count(), device.multiprocessors());
  query_gradients_kernel<F>
      <<<blocks, F::kThreads, F::kBytes, device.stream()>>>(x, maps, numbers, plan);
  check_launch("gradients of attention's queries");
}

}  // namespace ferry::kernels::cuda
