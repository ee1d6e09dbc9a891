// Gradients of keys and values for Hopper: a block has 64 keys per warpgroup and iterates over the
// queries that attend to them, of all heads of the keys' group in ascending order. Scores are
// computed transposed, [key, query], so that they are the left factors of both gradients in
// registers.
#pragma once

#include "kernels/cuda/attention/hopper_key_work.cuh"

namespace ferry::kernels::cuda {

/// D, V: columns of keys and values, at least their dims. QUERIES: queries per tile.
template <typename T, int D, int V, int QUERIES, int STAGES>
struct KeyGradients {
  static constexpr int kGroups = 2, kKeys = 64 * kGroups, kThreads = 128 * (kGroups + 1);
  static constexpr int kKeyBytes = tile_bytes(kKeys, D), kValueBytes = tile_bytes(kKeys, V);
  static constexpr int kQueryBytes = tile_bytes(QUERIES, D);
  static constexpr int kOutputBytes = tile_bytes(QUERIES, V);
  static constexpr int kRowBytes = QUERIES * 4;  // of log_sum, and of delta
  static constexpr int kStageBytes = kQueryBytes + kOutputBytes;
  static constexpr int kBytes =
      kKeyBytes + kValueBytes + STAGES * (kStageBytes + 2 * kRowBytes) + 256;

  struct Maps {
    CUtensorMap q, k, v, doutput;
  };
  struct Barriers {
    uint64_t key_full, key_free, full[STAGES], free[STAGES];
  };
  struct Memory {
    unsigned char *keys, *values, *queries, *doutputs;
    float *log_sum, *delta;
    Barriers* barriers;
    __device__ explicit Memory(unsigned char* at)
        : keys(at),
          values(keys + kKeyBytes),
          queries(values + kValueBytes),
          doutputs(queries + STAGES * kQueryBytes),
          log_sum(reinterpret_cast<float*>(doutputs + STAGES * kOutputBytes)),
          delta(log_sum + STAGES * QUERIES),
          barriers(reinterpret_cast<Barriers*>(delta + STAGES * QUERIES)) {}
  };

  using Work = KeyWork<kKeys, QUERIES>;

  static __device__ void copy(const AttentionShape& s, const Schedule& schedule, const Maps& maps,
                              const RowNumbers& numbers, const Memory& memory) {
    Barriers& barriers = *memory.barriers;
    const auto per_group = static_cast<int>(s.heads / s.groups);
    StageCursor<STAGES> cursor;
    int key_parity = 1;  // free at first
    Schedule::Tile next;
    for (int round = 0; schedule.at(round, next); ++round) {
      const Work work(s, next.head, next.rank);
      ptx::wait(&barriers.key_free, key_parity);
      key_parity ^= 1;
      ptx::arrive_and_expect(&barriers.key_full, kKeyBytes + kValueBytes);
      copy_tile<D>(memory.keys, kKeys, &maps.k, &barriers.key_full, work.key, work.group,
                   work.sequence);
      copy_tile<V>(memory.values, kKeys, &maps.v, &barriers.key_full, work.key, work.group,
                   work.sequence);
      for (int head = 0; head < per_group; ++head) {
        const int64_t row =
            (int64_t{work.sequence} * s.heads + work.group * per_group + head) * numbers.padded;
        for (int tile = work.first_tile; tile < work.last_tile; ++tile, cursor.next()) {
          const int stage = cursor.stage, query = tile * QUERIES;
          uint64_t* const full = &barriers.full[stage];
          ptx::wait(&barriers.free[stage], cursor.parity ^ 1);
          ptx::arrive_and_expect(full, kStageBytes + 2 * kRowBytes);
          copy_tile<D>(memory.queries + stage * kQueryBytes, QUERIES, &maps.q, full, query, head,
                       work.group, work.sequence);
          copy_tile<V>(memory.doutputs + stage * kOutputBytes, QUERIES, &maps.doutput, full, query,
                       head, work.group, work.sequence);
          ptx::copy_bytes(memory.log_sum + stage * QUERIES, numbers.log_sum + row + query,
                          kRowBytes, full);
          ptx::copy_bytes(memory.delta + stage * QUERIES, numbers.delta + row + query, kRowBytes,
                          full);
        }
      }
    }
  }

  static __device__ void multiply(const AttentionBackward& x, const Schedule& schedule,
                                  const Memory& memory) {
    const AttentionShape& s = x.shape;
    Barriers& barriers = *memory.barriers;
    const int warpgroup = static_cast<int>(threadIdx.x) / 128 - 1;
    const int own = 64 * warpgroup + static_cast<int>(threadIdx.x) % 128 / 32 * 16 +
                    static_cast<int>(threadIdx.x) % 32 / 4;
    const int own_column = 2 * static_cast<int>(threadIdx.x % 4);
    const float scale = static_cast<float>(s.scale) * kLog2e;
    const uint64_t k = ptx::describe(memory.keys + 64 * warpgroup * kPanelRow);
    const uint64_t v = ptx::describe(memory.values + 64 * warpgroup * kPanelRow);
    const uint64_t q = ptx::describe(memory.queries), o = ptx::describe(memory.doutputs);
    const uint64_t q_across = ptx::describe(memory.queries, QUERIES * kPanelRow);
    const uint64_t o_across = ptx::describe(memory.doutputs, QUERIES * kPanelRow);
    const auto per_group = static_cast<int>(s.heads / s.groups);
    const auto release = [](uint64_t* barrier) {
      if (threadIdx.x % 32 == 0) ptx::arrive(barrier);
    };

    StageCursor<STAGES> cursor;
    int key_parity = 0;
    float scores[QUERIES / 2], gradients[QUERIES / 2], dkeys[D / 2], dvalues[V / 2];
    uint32_t probabilities[QUERIES / 4], dscores[QUERIES / 4];
    Schedule::Tile next;
    for (int round = 0; schedule.at(round, next); ++round) {
      const Work work(s, next.head, next.rank);
      const int tiles = work.tiles(), key = work.key + own;
      const int first_of_group = work.key + 64 * warpgroup;
      const int all_see_until = work.seeing(s, first_of_group);
      const int see_until = work.seeing(s, first_of_group + 63);
#pragma unroll
      for (float& each : dkeys) each = 0;
#pragma unroll
      for (float& each : dvalues) each = 0;
      // Starts the products of a tile's scores and gradients of probabilities, as two groups.
      const auto begin_tile = [&] {
        ptx::wait(&barriers.full[cursor.stage], cursor.parity);
        ptx::begin_products();
        multiply_rows<T, D>(scores, k, kKeys * kPanelRow,
                            ptx::further(q, cursor.stage * kQueryBytes), QUERIES * kPanelRow);
        ptx::end_products();
        multiply_rows<T, V>(gradients, v, kKeys * kPanelRow,
                            ptx::further(o, cursor.stage * kOutputBytes), QUERIES * kPanelRow);
        ptx::end_products();
      };
      ptx::wait(&barriers.key_full, key_parity);
      key_parity ^= 1;
      const int count = tiles * per_group;
      int tile = work.first_tile;
      const auto end_tile = [&] {
        release(&barriers.free[cursor.stage]);
        cursor.next();
        if (++tile == work.last_tile) {  // the next head's
          tile = work.first_tile;
        }
      };
      for (int i = 0; i < count; ++i) {
        const int query = tile * QUERIES;
        if (query >= see_until || last_key(s, query + QUERIES - 1) <= first_of_group) {
          ptx::wait(&barriers.full[cursor.stage], cursor.parity);  // tiles of the others only
          end_tile();
          continue;
        }
        begin_tile();
        const float* const log_sum = memory.log_sum + cursor.stage * QUERIES + own_column;
        const float* const delta = memory.delta + cursor.stage * QUERIES + own_column;
        ptx::wait_products<1>();
        ptx::fence_results(scores);
#pragma unroll
        for (int j = 0; j < QUERIES / 8; ++j) {
          const float2 sums = *reinterpret_cast<const float2*>(log_sum + 8 * j);
          float* const at = scores + 4 * j;
          at[0] = power_of_two(fmaf(at[0], scale, -sums.x));
          at[1] = power_of_two(fmaf(at[1], scale, -sums.y));
          at[2] = power_of_two(fmaf(at[2], scale, -sums.x));
          at[3] = power_of_two(fmaf(at[3], scale, -sums.y));
        }
        const bool all_see =
            query + QUERIES <= all_see_until && last_key(s, query) >= first_of_group + 64;
        if (!all_see) apply_mask(s, work, scores, key, query + own_column);
        pack<T>(scores, probabilities);
        ptx::begin_products();
        multiply_columns<T>(dvalues, probabilities,
                            ptx::further(o_across, cursor.stage * kOutputBytes));
        ptx::end_products();
        ptx::wait_products<1>();
        ptx::fence_results(gradients);
#pragma unroll
        for (int j = 0; j < QUERIES / 8; ++j) {
          const float2 deltas = *reinterpret_cast<const float2*>(delta + 8 * j);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& each = gradients[4 * j + e];
            const float own_delta = e % 2 == 0 ? deltas.x : deltas.y;
            each = scores[4 * j + e] * (each - own_delta);
          }
        }
        pack<T>(gradients, dscores);
        ptx::begin_products();
        multiply_columns<T>(dkeys, dscores, ptx::further(q_across, cursor.stage * kQueryBytes));
        ptx::end_products();
        ptx::wait_products<0>();
        ptx::fence_results(probabilities);
        ptx::fence_results(dscores);
        ptx::fence_results(dkeys);
        ptx::fence_results(dvalues);
        end_tile();
      }
      release(&barriers.key_free);
      const auto factor = static_cast<float>(s.scale);
      const float factors[2] = {factor, factor};
      const float value_factors[2] = {1, 1};
      store_rows(dkeys, x.dk, group_start(x.k_strides, work.sequence, work.group),
                 x.k_strides.position, key, s.keys, static_cast<int>(s.dim), factors, x.accumulate);
      store_rows(dvalues, x.dv, group_start(x.v_strides, work.sequence, work.group),
                 x.v_strides.position, key, s.keys, static_cast<int>(s.value_dim), value_factors,
                 x.accumulate);
    }
  }

  static __device__ void apply_mask(const AttentionShape& s, const Work& work,
                                    float (&scores)[QUERIES / 2], int key, int query) {
#pragma unroll
    for (int j = 0; j < QUERIES / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const Interval seen = visible_keys(s, work.sequence, query + 8 * j + e);
        if (key < seen.first || key >= seen.last) scores[4 * j + e] = 0;
        if (key + 8 < seen.first || key + 8 >= seen.last) scores[4 * j + 2 + e] = 0;
      }
    }
  }
};

template <typename F>
__global__ void __launch_bounds__(F::kThreads, 1)
    key_gradients_kernel(const __grid_constant__ AttentionBackward x,
                         const __grid_constant__ typename F::Maps maps, RowNumbers numbers,
                         Schedule schedule) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const typename F::Memory memory(shared);
  auto& barriers = *memory.barriers;
  constexpr int kWarps = F::kKeys / 16;
  if (threadIdx.x == 0) {
    ptx::init_barrier(&barriers.key_full, 1);
    ptx::init_barrier(&barriers.key_free, kWarps);
    for (auto& barrier : barriers.full) ptx::init_barrier(&barrier, 1);
    for (auto& barrier : barriers.free) ptx::init_barrier(&barrier, kWarps);
    ptx::fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    ptx::fewer_registers<24>();
    if (threadIdx.x == 0) F::copy(x.shape, schedule, maps, numbers, memory);
  } else {
    ptx::more_registers<240>();
    F::multiply(x, schedule, memory);
  }
}

template <typename T, int D, int V, int QUERIES, int STAGES>
void launch_keys(Device& device, const AttentionBackward& x, const RowNumbers& numbers) {
  using F = KeyGradients<T, D, V, QUERIES, STAGES>;
  const AttentionShape& s = x.shape;
  const Schedule plan = schedule(device, s.keys, F::kKeys, s.sequences * s.groups,
                                 2 * s.queries * (s.dim + s.value_dim) * s.heads / s.groups);
  const typename F::Maps maps{
      tensor_map(x.q, s.dim, query_dimensions(s, x.q_strides), QUERIES),
      tensor_map(x.k, s.dim, key_dimensions(s, x.k_strides), F::kKeys),
      tensor_map(x.v, s.value_dim, key_dimensions(s, x.v_strides), F::kKeys),
      tensor_map(x.doutput, s.value_dim, query_dimensions(s, x.output_strides), QUERIES)};
  allow_shared_memory(key_gradients_kernel<F>, F::kBytes);
  const int blocks = std::min(plan.count(), device.multiprocessors());
  key_gradients_kernel<F>
      <<<blocks, F::kThreads, F::kBytes, device.stream()>>>(x, maps, numbers, plan);
  check_launch("gradients of attention's keys");
}

}  // namespace ferry::kernels::cuda
