#include "ops/diff/value_pass.h"

#include <algorithm>
#include <mutex>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/engine/progress_meter.h"
#include "ckpt/engine/tensor_reader.h"
#include "ckpt/engine/tiles/tile_cut.h"
#include "ops/diff/compare.h"

namespace ferry {
namespace {

constexpr uint64_t kPartBytes = 4 << 20;
// A thread holds a part of either side, and its readers hold a source's and a target's bytes of it.
constexpr uint64_t kBuffersPerThread = 6;

int64_t first_element(const Dims& shape, const Box& box) {
  const Dims strides = row_major_strides(shape);
  int64_t first = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) first += box.offset[axis] * strides[axis];
  return first;
}

// The tensors of one side.
class Side {
 public:
  explicit Side(const Catalog& catalog) { plan_.source = SharedCatalog::borrow(catalog); }

  void add(TensorView& view) {
    constants_.push_back(std::move(view.constant));
    add_read_tensor(plan_, view.name, view.dtype, view.shape, std::move(view.recipe));
  }
  uint64_t stream_bytes(const EngineOptions& options) const {
    return stream_memory(*plan_.source, options.memory_bytes);
  }
  void begin(const EngineOptions& options) {
    source_.emplace(plan_, stream_bytes(options), thread_count(options.threads));
  }

  TensorSource& source() { return *source_; }
  const Entry& entry(size_t position) const { return plan_.target.entries[position]; }
  const std::string& constant(size_t position) const { return constants_[position]; }

 private:
  Plan plan_;
  std::vector<std::string> constants_;  // in place of what is read, where not empty
  std::optional<TensorSource> source_;
};

// One thread's view of a side.
class PartReader {
 public:
  explicit PartReader(Side& side) : side_(side), reader_(side.source()) {}

  std::span<const std::byte> read(size_t position, const Box& box) {
    const Entry& entry = side_.entry(position);
    const auto size = static_cast<size_t>(size_bytes(entry.dtype));
    const size_t bytes = static_cast<size_t>(element_count(box.size, entry.name)) * size;
    if (const std::string& constant = side_.constant(position); !constant.empty()) {
      const auto first = static_cast<size_t>(first_element(entry.shape, box));
      return std::as_bytes(std::span(constant)).subspan(first * size, bytes);
    }
    buffer_.resize(std::max(buffer_.size(), bytes));
    const auto part = std::span(buffer_).first(bytes);
    reader_.read(position, entry.chunks[0], box, part);
    return part;
  }

 private:
  Side& side_;
  TensorReader reader_;
  std::vector<std::byte> buffer_;
};

class ValuePass {
 public:
  ValuePass(const Catalog& a, const Catalog& b, std::vector<TensorPair>& pairs,
            std::vector<TensorDiff>& diffs)
      : a_(a), b_(b) {
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (!diffs[i].by_value) continue;
      diffs_.push_back(&diffs[i]);
      a_.add(*pairs[i].a);
      b_.add(*pairs[i].b);
      const auto elements = static_cast<uint64_t>(element_count(diffs[i].compared, diffs[i].name));
      const auto size = static_cast<uint64_t>(size_bytes(diffs[i].dtype_a));
      bytes_ = checked_add(bytes_, checked_multiply(elements, size, diffs[i].name), "all tensors");
    }
  }

  uint64_t run(const Tolerance& tolerance, const EngineOptions& options) {
    const int threads = thread_count(options.threads);
    const uint64_t for_streams = a_.stream_bytes(options) + b_.stream_bytes(options);
    const uint64_t share = (options.memory_bytes - for_streams) / static_cast<uint64_t>(threads);
    a_.begin(options);
    b_.begin(options);
    part_bytes_ = std::clamp<uint64_t>(share / kBuffersPerThread, 1, kPartBytes);
    ProgressMeter meter(options.progress, bytes_);
    on_threads(threads, [&](int, const std::atomic<bool>& stop) {
      PartReader reader_a(a_), reader_b(b_);
      for (auto part = next_part(); part && !stop; part = next_part()) {
        if (options.cancel && *options.cancel) fail(ErrorKind::cancelled, "stopped on request");
        TensorDiff& diff = *diffs_[part->tensor];
        const auto in_a = reader_a.read(part->tensor, part->box);
        const auto in_b = reader_b.read(part->tensor, part->box);
        add(diff, compare(in_a, diff.dtype_a, in_b, diff.dtype_b,
                          first_element(diff.compared, part->box), tolerance));
        meter.add(in_a.size());
      }
    });
    meter.finish();
    return bytes_;
  }

 private:
  struct Part {
    size_t tensor = 0;
    Box box;
  };

  std::optional<Part> next_part() {
    const std::lock_guard lock(mutex_);
    while (next_box_ == boxes_.size()) {
      if (next_tensor_ == diffs_.size()) return std::nullopt;
      boxes_ = cut(*diffs_[next_tensor_++]);
      next_box_ = 0;
    }
    return Part{next_tensor_ - 1, boxes_[next_box_++]};
  }

  std::vector<Box> cut(const TensorDiff& diff) const {
    if (element_count(diff.compared, diff.name) == 0) return {};
    const int64_t size = std::max(size_bytes(diff.dtype_a), size_bytes(diff.dtype_b));
    return cut_into_tiles(diff.compared,
                          std::max<int64_t>(1, static_cast<int64_t>(part_bytes_) / size));
  }

  void add(TensorDiff& diff, const ValueDifference& values) {
    const std::lock_guard lock(mutex_);
    diff.values.join(values);
    const bool differs = diff.values.differing > 0;
    if (differs && diff.status == TensorStatus::equal) diff.status = TensorStatus::values;
  }

  Side a_, b_;
  std::vector<TensorDiff*> diffs_;  // parallel to the sides' tensors
  uint64_t bytes_ = 0;
  uint64_t part_bytes_ = 0;
  std::mutex mutex_;  // guards what follows, and the values of the diffs
  size_t next_tensor_ = 0;
  std::vector<Box> boxes_;
  size_t next_box_ = 0;
};

}  // namespace

uint64_t compare_values(const Catalog& a, const Catalog& b, std::vector<TensorPair>& pairs,
                        std::vector<TensorDiff>& diffs, const Tolerance& tolerance,
                        const EngineOptions& options) {
  return ValuePass(a, b, pairs, diffs).run(tolerance, options);
}

}  // namespace ferry
