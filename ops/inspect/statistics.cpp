#include "ops/inspect/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ckpt/base/cast.h"
#include "ckpt/engine/engine.h"

namespace ferry {
namespace {

constexpr int64_t kBlockElements =
    4096;  // elements: a block's doubles stay in the first-level cache

// Blocks are summed in two passes and joined by Chan's formula, so that neither a large mean nor a
// large count costs digits.
class Accumulator {
 public:
  void add(const double* values, int64_t count) {
    double sum = 0;
    int64_t finite = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double value = values[i];
      if (!std::isfinite(value)) {
        ++(std::isnan(value) ? nan_ : infinite_);
        continue;
      }
      min_ = std::min(min_, value);
      max_ = std::max(max_, value);
      sum += value;
      ++finite;
    }
    if (finite == 0) return;
    const double mean = sum / static_cast<double>(finite);
    double squares = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double off = values[i] - mean;
      if (std::isfinite(values[i])) squares += off * off;
    }
    join(finite, mean, squares);
  }

  Statistics result() const {
    Statistics result;
    result.finite = finite_;
    result.nan = nan_;
    result.infinite = infinite_;
    if (finite_ > 0) {
      result.min = min_;
      result.max = max_;
      result.mean = mean_;
      result.std = std::sqrt(squares_ / static_cast<double>(finite_));
    }
    return result;
  }

 private:
  void join(int64_t count, double mean, double squares) {
    const double a = static_cast<double>(finite_), b = static_cast<double>(count);
    const double delta = mean - mean_;
    mean_ += delta * b / (a + b);
    squares_ += squares + delta * delta * a * b / (a + b);
    finite_ += count;
  }

  double min_ = std::numeric_limits<double>::infinity();
  double max_ = -std::numeric_limits<double>::infinity();
  double mean_ = 0, squares_ = 0;
  int64_t finite_ = 0, nan_ = 0, infinite_ = 0;
};

std::string problem_of(DType dtype) {
  switch (dtype) {
    case DType::c64:
    case DType::c128:
      return "complex values have no order";
    case DType::f4x2:
      return "4-bit values have no meaning without their scales";
    default:
      return "";
  }
}

}  // namespace

void for_each_block(const Catalog& catalog, const Entry& entry, uint64_t memory_bytes,
                    const std::function<void(const double*, int64_t)>& consume,
                    const std::function<void(uint64_t)>& read) {
  const int64_t size = size_bytes(entry.dtype);
  const bool floating = can_convert(entry.dtype, DType::f64);
  std::vector<double> block(kBlockElements);
  scan(catalog, entry, memory_bytes, [&](std::span<const std::byte> bytes) {
    const int64_t count = static_cast<int64_t>(bytes.size()) / size;
    for (int64_t begin = 0; begin < count; begin += kBlockElements) {
      const int64_t part = std::min(kBlockElements, count - begin);
      const std::byte* from = bytes.data() + begin * size;
      if (floating) {
        convert(from, size, entry.dtype, reinterpret_cast<std::byte*>(block.data()), sizeof(double),
                DType::f64, part);
      } else {
        for (int64_t i = 0; i < part; ++i) {
          block[static_cast<size_t>(i)] = load_as_double(from + i * size, entry.dtype);
        }
      }
      consume(block.data(), part);
    }
    if (read) read(bytes.size());
  });
}

Statistics statistics(const Catalog& catalog, const Entry& entry, uint64_t memory_bytes,
                      const std::function<void(uint64_t)>& read) {
  Statistics none;
  none.problem = problem_of(entry.dtype);
  if (!none.problem.empty()) return none;
  Accumulator accumulator;
  for_each_block(
      catalog, entry, memory_bytes,
      [&](const double* values, int64_t count) { accumulator.add(values, count); }, read);
  return accumulator.result();
}

}  // namespace ferry
