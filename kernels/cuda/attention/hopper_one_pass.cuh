// All gradients for Hopper in one pass: a block has 64 keys per warpgroup and iterates over the
// queries that attend to them, of all heads of the keys' group, or of a part of them
// (hopper_one_pass_tiles.cuh), in ascending order. Scores are computed transposed, [key, query], so
// that they are the left factors of the keys' and values' gradients in registers. The queries'
// gradients need the scores of all keys of the block: these go through shared memory, and the
// blocks' products are summed in global memory (hopper_sums.cuh). While a warpgroup computes
// powers, the tensor cores process its previous products: each group of products is waited for as
// late as registers allow.
#pragma once

#include "kernels/cuda/attention/hopper_one_pass_tiles.cuh"

namespace ferry::kernels::cuda {

/// The consumers' part of Tiles. DROPS: with dropout.
template <typename T, int D, int V, typename Tiles, bool DROPS>
struct OnePass : Tiles {
  using Barriers = typename Tiles::Barriers;
  using Memory = typename Tiles::Memory;
  using Work = typename Tiles::Work;
  using Tiles::kColumns, Tiles::kKeyBytes, Tiles::kKeys, Tiles::kOutputBytes, Tiles::kQueries,
      Tiles::kQueryBytes, Tiles::kScoreBytes, Tiles::kValueBytes;

  // The threads that copy and add spill with fewer than 40 registers, but wide heads leave no more.
  static constexpr int kCopyRegisters = D <= 64 ? 40 : 24, kRegisters = D <= 64 ? 232 : 240;

  static __device__ void release(uint64_t* barrier) {
    if (threadIdx.x % 32 == 0) ptx::arrive(barrier);
  }
  /// Makes the writes of all threads of the warp visible to tensor cores and TMA.
  static __device__ void publish(uint64_t* barrier) {
    ptx::fence_shared();
    __syncwarp();
    release(barrier);
  }

  /// Broadcasts the first thread's value, so that the compiler knows that it is uniform.
  static __device__ int uniform(int number) { return __shfl_sync(0xffffffffU, number, 0); }

  static __device__ void multiply(const AttentionBackward& x, const QuerySums& sums,
                                  const KeyParts& parts, const Memory& memory) {
    const AttentionShape& s = x.shape;
    Barriers& barriers = *memory.barriers;
    const int warpgroup = uniform(static_cast<int>(threadIdx.x) / 128 - 1);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp_row = static_cast<int>(threadIdx.x) % 128 / 32 * 16;
    const int own = 64 * warpgroup + warp_row + lane / 4, own_column = 2 * (lane % 4);
    const float scale = static_cast<float>(s.scale) * kLog2e;
    const uint64_t first_k = ptx::describe(memory.keys + 64 * warpgroup * kPanelRow);
    const uint64_t first_v = ptx::describe(memory.values + 64 * warpgroup * kPanelRow);
    const uint64_t k_across = ptx::describe(
        memory.keys + (D > 64 ? warpgroup * kKeys * kPanelRow : warpgroup * kColumns * 2),
        kKeys * kPanelRow);
    const uint64_t q = ptx::describe(memory.queries), o = ptx::describe(memory.doutputs);
    const uint64_t q_across = ptx::describe(memory.queries, kQueries * kPanelRow);
    const uint64_t o_across = ptx::describe(memory.doutputs, kQueries * kPanelRow);
    const uint64_t all_scores = ptx::describe(memory.scores);
    // The offset of the thread's row of a transposed matrix in the warpgroup's panel of scores.
    unsigned char* const own_scores = memory.scores + warpgroup * kQueries * kPanelRow +
                                      (lane / 16 * 8 + lane % 8) * kPanelRow +
                                      ((warp_row / 8 + lane / 8 % 2) ^ lane % 8) * 16;
    const auto per_group = static_cast<int>(s.heads / s.groups);

    StageCursor<Tiles::kKeyStages> keys;
    StageCursor<Tiles::kStages> cursor;
    StageCursor<Tiles::kScoreStages> score_turn, sum_scores;
    StageCursor<Tiles::kSumStages> sum_turn;
    float scores[kQueries / 2], gradients[kQueries / 2], dkeys[D / 2], dvalues[V / 2];
    float dqueries[kColumns / 2];
    uint32_t probabilities[kQueries / 4], dscores[kQueries / 4];
    for (;; keys.next()) {
      ptx::wait(&barriers.key_full[keys.stage], keys.parity);
      const int item = uniform(barriers.items[keys.stage]);
      if (item < 0) break;
      const Work work = Tiles::work_of(s, parts, item);
      const int key = work.key + own, first_of_group = work.key + 64 * warpgroup;
      const int all_see_until = work.seeing(s, first_of_group);
      const uint64_t k = ptx::further(first_k, keys.stage * kKeyBytes);
      const uint64_t v = ptx::further(first_v, keys.stage * kValueBytes);
      const uint64_t own_k_across = ptx::further(k_across, keys.stage * kKeyBytes);
#pragma unroll
      for (float& each : dkeys) each = 0;
#pragma unroll
      for (float& each : dvalues) each = 0;
      Kept kept(s, work.sequence, work.group * per_group + work.first_head);
      // Starts the products of a tile's scores and gradients of probabilities, as two groups.
      const auto begin_tile = [&] {
        ptx::wait(&barriers.full[cursor.stage], cursor.parity);
        ptx::begin_products();
        multiply_rows<T, D>(scores, k, kKeys * kPanelRow,
                            ptx::further(q, cursor.stage * kQueryBytes), kQueries * kPanelRow);
        ptx::end_products();
        ptx::begin_products();
        multiply_rows<T, V>(gradients, v, kKeys * kPanelRow,
                            ptx::further(o, cursor.stage * kOutputBytes), kQueries * kPanelRow);
        ptx::end_products();
      };
      // The queries' gradients of the previous tile: by now the other warpgroup has its scores,
      // too, so that the two can be at different stages, one computing powers, the other products.
      const auto begin_queries = [&] {
        ptx::wait(&barriers.scores_full[sum_scores.stage], sum_scores.parity);
        ptx::begin_products();
        const uint64_t a = ptx::further(all_scores, sum_scores.stage * kScoreBytes);
#pragma unroll
        for (int i = 0; i < kKeys / 16; ++i) {
          ptx::multiply<T, false, true>(dqueries,
                                        ptx::further(a, i / 4 * kQueries * kPanelRow + i % 4 * 32),
                                        ptx::further(own_k_across, i * 16 * kPanelRow), i > 0);
        }
        ptx::end_products();
      };
      const auto end_queries = [&] {
        ptx::fence_results(dqueries);
        release(&barriers.scores_free[sum_scores.stage]);
        sum_scores.next();
        ptx::wait(&barriers.sum_free[warpgroup][sum_turn.stage], sum_turn.parity ^ 1);
        ThreadOrder<kColumns>::write(dqueries, memory.half(sum_turn.stage, warpgroup));
        publish(&barriers.sum_full[warpgroup][sum_turn.stage]);
        sum_turn.next();
      };

      const int count = uniform(work.tiles() * work.heads());
      int tile = work.first_tile;
      const auto step = [&]<bool IS_FIRST>(std::bool_constant<IS_FIRST>) {
        const int query = tile * kQueries;
        begin_tile();
        const float* const rows = memory.rows + cursor.stage * 2 * kQueries + 2 * own_column;
        ptx::wait_products<1>();
        ptx::fence_results(scores);
#pragma unroll
        for (int j = 0; j < kQueries / 8; ++j) {
          const float2 log_sum = *reinterpret_cast<const float2*>(rows + 16 * j);
          float* const at = scores + 4 * j;
          at[0] = power_of_two(fmaf(at[0], scale, -log_sum.x));
          at[1] = power_of_two(fmaf(at[1], scale, -log_sum.y));
          at[2] = power_of_two(fmaf(at[2], scale, -log_sum.x));
          at[3] = power_of_two(fmaf(at[3], scale, -log_sum.y));
        }
        const bool all_see =
            query + kQueries <= all_see_until && last_key(s, query) >= first_of_group + 64;
        if (!all_see) apply_mask(s, work, scores, key, query + own_column);
        if constexpr (DROPS) {
          mark_dropped_turned(kept, query + own_column, key - lane / 4, scores);
#pragma unroll
          for (int j = 0; j < kQueries / 4; ++j) {
            probabilities[j] = pair(fmaxf(scores[2 * j], 0), fmaxf(scores[2 * j + 1], 0), T());
          }
        } else {
          pack<T>(scores, probabilities);
        }
        ptx::begin_products();
        multiply_columns<T>(dvalues, probabilities,
                            ptx::further(o_across, cursor.stage * kOutputBytes));
        ptx::end_products();
        ptx::wait_products<1>();
        ptx::fence_results(gradients);
#pragma unroll
        for (int j = 0; j < kQueries / 8; ++j) {
          const float2 deltas = *reinterpret_cast<const float2*>(rows + 16 * j + 2);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& each = gradients[4 * j + e];
            const float own_delta = e % 2 == 0 ? deltas.x : deltas.y;
            each = DROPS ? marked_gradient(kept, scores[4 * j + e], each, own_delta)
                         : scores[4 * j + e] * (each - own_delta);
          }
        }
        pack<T>(gradients, dscores);
        ptx::wait(&barriers.scores_free[score_turn.stage], score_turn.parity ^ 1);
#pragma unroll
        for (int j = 0; j < kQueries / 8; j += 2) {
          ptx::store_turned(own_scores + score_turn.stage * kScoreBytes + 8 * j * kPanelRow,
                            dscores[2 * j], dscores[2 * j + 1], dscores[2 * j + 2],
                            dscores[2 * j + 3]);
        }
        publish(&barriers.scores_full[score_turn.stage]);
        score_turn.next();
        const auto begin_keys = [&] {
          ptx::begin_products();
          multiply_columns<T>(dkeys, dscores, ptx::further(q_across, cursor.stage * kQueryBytes));
          ptx::end_products();
        };
        const auto end_keys = [&] {
          ptx::fence_results(dscores);
          ptx::fence_results(dkeys);
          release(&barriers.free[cursor.stage]);
        };
        const auto end_values = [&] {
          ptx::fence_results(probabilities);
          ptx::fence_results(dvalues);
        };
        ptx::wait_products<0>();
        end_values();
        if constexpr (!IS_FIRST) begin_queries();
        begin_keys();
        if constexpr (!IS_FIRST) {
          ptx::wait_products<1>();
          end_queries();
        }
        ptx::wait_products<0>();
        end_keys();
        cursor.next();
        if (++tile == work.last_tile) {  // the next head's
          tile = work.first_tile;
          kept.rows += kept.width;
        }
      };
      if (count > 0) {
        step(std::true_type());
        for (int i = 1; i < count; ++i) step(std::false_type());
        begin_queries();
        ptx::wait_products<0>();
        end_queries();
      }
      release(&barriers.key_free[keys.stage]);
      const auto factor = static_cast<float>(s.scale);
      const float value_factor = DROPS ? kept.scale : 1;
      const float factors[2] = {factor, factor}, value_factors[2] = {value_factor, value_factor};
      if (parts.count > 1) {
        const int64_t place = 2 * int64_t{work.place} + warpgroup;
        ThreadOrder<D>::write(dkeys, parts.keys + place * ThreadOrder<D>::kElements);
        ThreadOrder<V>::write(dvalues, parts.values + place * ThreadOrder<V>::kElements);
        continue;
      }
      store_rows(dkeys, x.dk, group_start(x.k_strides, work.sequence, work.group),
                 x.k_strides.position, key, s.keys, static_cast<int>(s.dim), factors, x.accumulate);
      store_rows(dvalues, x.dv, group_start(x.v_strides, work.sequence, work.group),
                 x.v_strides.position, key, s.keys, static_cast<int>(s.value_dim), value_factors,
                 x.accumulate);
    }
    write_all_gradients<D>(x, sums);
  }

  /// For a purely causal mask no per-query checks are needed.
  static __device__ void apply_mask(const AttentionShape& s, const Work& work,
                                    float (&scores)[kQueries / 2], int key, int query) {
    const bool is_plain = !s.document_begin && s.window == 0 && key + 8 < s.keys;
    const auto later = static_cast<int>(s.key_begin - s.query_begin);
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int number = query + 8 * j + e;
        Interval seen{0, number - later + 1};
        if (!is_plain) seen = visible_keys(s, work.sequence, number);
        if (key < seen.first || key >= seen.last) scores[4 * j + e] = 0;
        if (key + 8 < seen.first || key + 8 >= seen.last) scores[4 * j + 2 + e] = 0;
      }
    }
  }
};

template <typename F>
__global__ void __launch_bounds__(F::kThreads, 1)
    one_pass_kernel(const __grid_constant__ AttentionBackward x,
                    const __grid_constant__ typename F::Maps maps, RowNumbers numbers,
                    QuerySums sums, KeyParts parts, int items) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const typename F::Memory memory(shared);
  auto& barriers = *memory.barriers;
  constexpr int kWarps = F::kKeys / 16;
  if (threadIdx.x == 0) {
    for (auto& barrier : barriers.key_full) ptx::init_barrier(&barrier, 1);
    for (auto& barrier : barriers.key_free) ptx::init_barrier(&barrier, kWarps + F::kGroups);
    for (auto& barrier : barriers.full) ptx::init_barrier(&barrier, 1);
    for (auto& barrier : barriers.free) ptx::init_barrier(&barrier, kWarps);
    for (auto& barrier : barriers.scores_full) ptx::init_barrier(&barrier, kWarps);
    for (auto& barrier : barriers.scores_free) ptx::init_barrier(&barrier, kWarps);
    for (int group = 0; group < F::kGroups; ++group) {
      for (auto& barrier : barriers.sum_full[group]) ptx::init_barrier(&barrier, 4);
      for (auto& barrier : barriers.sum_free[group]) ptx::init_barrier(&barrier, 1);
    }
    ptx::fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    ptx::fewer_registers<F::kCopyRegisters>();
    if (threadIdx.x == 0) {
      F::copy(x.shape, maps, numbers, sums, parts, items, memory);
    } else if (threadIdx.x == 32 || threadIdx.x == 64) {
      F::add(x.shape, sums, parts, static_cast<int>(threadIdx.x) / 32 - 1, memory);
    }
  } else {
    ptx::more_registers<F::kRegisters>();
    F::multiply(x, sums, parts, memory);
  }
}

template <typename T, int D, int STAGES, int KEY_STAGES, int SUM_STAGES, int SCORE_STAGES,
          bool DROPS>
void launch_one_pass(Device& device, const AttentionBackward& x, const RowNumbers& numbers,
                     const QuerySums& sums, const KeyParts& parts) {
  using Tiles = OnePassTiles<D, D, STAGES, KEY_STAGES, SUM_STAGES, SCORE_STAGES>;
  using F = OnePass<T, D, D, Tiles, DROPS>;
  const AttentionShape& s = x.shape;
  const typename F::Maps maps{
      tensor_map(x.q, s.dim, query_dimensions(s, x.q_strides), F::kQueries),
      tensor_map(x.k, s.dim, key_dimensions(s, x.k_strides), F::kKeys),
      tensor_map(x.v, s.value_dim, key_dimensions(s, x.v_strides), F::kKeys),
      tensor_map(x.doutput, s.value_dim, query_dimensions(s, x.output_strides), F::kQueries)};
  allow_shared_memory(one_pass_kernel<F>, F::kBytes);
  const auto items =
      static_cast<int>(s.sequences * s.groups * parts.count * ceil_div(s.keys, F::kKeys));
  const int blocks = std::min(items, device.multiprocessors());
  one_pass_kernel<F>
      <<<blocks, F::kThreads, F::kBytes, device.stream()>>>(x, maps, numbers, sums, parts, items);
  check_launch("gradients of attention");
  if (parts.count > 1) add_parts<D>(device, x, parts);
}

}  // namespace ferry::kernels::cuda
