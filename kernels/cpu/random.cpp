#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/functions.h"
#include "kernels/cpu/random_block.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

namespace {

/// Normal numbers for the block of elements that starts at `first`.
FERRY_INLINE void normals(uint64_t key, uint64_t first, float* numbers) {
  uint32_t words[kRandomBlock];
  random_words(key, first / 4, words);
  for (int pair = 0; pair < kRandomBlock / 2; pair += kLanes) {
    UInt even, odd;
    for (int i = 0; i < kLanes; ++i) {
      even[i] = words[2 * (pair + i)];
      odd[i] = words[2 * (pair + i) + 1];
    }
    // (0, 1] for the logarithm, [0, 1) for the angle.
    const Float radius = __builtin_convertvector((even >> 8) + 1, Float) * 0x1p-24F;
    const Float turn = __builtin_convertvector(odd >> 8, Float) * 0x1p-24F;
    const Float length = square_root(-2.0F * log(radius));
    Float cosine, sine;
    circle(turn, cosine, sine);
    const Float a = length * cosine, b = length * sine;
    for (int i = 0; i < kLanes; ++i) {
      numbers[2 * (pair + i)] = a[i];
      numbers[2 * (pair + i) + 1] = b[i];
    }
  }
}

}  // namespace

void CpuKernels::run(const FillNormal& x) {
  const auto mean = static_cast<float>(x.mean), deviation = static_cast<float>(x.deviation);
  // Blocks are aligned to the numbering of the whole tensor.
  const auto lead = static_cast<int64_t>(x.first % kRandomBlock);
  const int64_t blocks = (lead + x.count + kRandomBlock - 1) / kRandomBlock;
  team_.each(blocks, 8 * kRandomBlock, [&](int64_t block) {
    float numbers[kRandomBlock];
    const int64_t start = block * kRandomBlock - lead;  // of the block, in y
    normals(x.key, x.first + static_cast<uint64_t>(start), numbers);
    const int64_t begin = start < 0 ? 0 : start;
    const int64_t end = start + kRandomBlock < x.count ? start + kRandomBlock : x.count;
    vectors(begin, end, [&](int64_t i, auto n) {
      store(x.y, i, mean + deviation * load(numbers + (i - start), n), n);
    });
  });
}

void CpuKernels::run(const Dropout& x) {
  const auto probability = static_cast<float>(x.probability);
  const auto scale = static_cast<float>(1 / (1 - x.probability));
  team_.each(x.rows, 8 * x.width, [&](int64_t row) {
    const auto first = static_cast<uint64_t>(x.row_ids[row] * x.total_width + x.first_column);
    for (int64_t block = 0; block < x.width; block += kRandomBlock) {
      float numbers[kRandomBlock];
      uniforms(x.key, first + static_cast<uint64_t>(block), numbers);
      const int64_t end = block + kRandomBlock < x.width ? block + kRandomBlock : x.width;
      vectors(block, end, [&](int64_t i, auto n) {
        const Float kept = load(numbers + (i - block), n) >= probability ? all(scale) : Float{};
        const int64_t at = row * x.width + i;
        Float y = load(x.x, at, n) * kept;
        if (x.residual) y += load(x.residual, at, n);
        store(x.y, at, y, n);
      });
    }
  });
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
