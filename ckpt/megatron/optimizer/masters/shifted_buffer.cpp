#include "ckpt/megatron/optimizer/masters/shifted_buffer.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"

namespace ferry {
namespace {

// A run of elements of a rank's parameter.
struct LocalRun {
  size_t parameter = 0;
  int64_t begin = 0;
};

// One buffer: elements were written at compact places, and read at padded ones.
class ShiftedBuffer {
 public:
  explicit ShiftedBuffer(const ModelBuffer& buffer)
      : buffer_(buffer), compact_(coalesced_bounds(buffer.flat)) {
    padded_.push_back(0);
    for (const FlatBucket& bucket : buffer.flat.buckets) {
      padded_.push_back(checked_add(padded_.back(), bucket.elements, "flat optimizer buffer"));
    }
    for (size_t i = 0; i < buffer.parameters.size(); ++i) by_place_.push_back(i);
    std::ranges::sort(by_place_, {}, [&](size_t i) { return read_at(i); });
  }

  void add(ShiftedParts& parts) const {
    for (size_t i = 0; i < buffer_.parameters.size(); ++i) {
      if (buffer_.parameters[i].first_copy) add_parameter(i, parts);
    }
  }

  bool is_shifted() const {
    return compact_.size() > 2 && compact_[compact_.size() - 2] != padded_[padded_.size() - 2];
  }

 private:
  int64_t place(const std::vector<int64_t>& bounds, size_t parameter) const {
    const FlatPlace& at = buffer_.flat.places[parameter];
    return bounds[at.bucket] + at.begin;
  }
  int64_t written_at(size_t parameter) const { return place(compact_, parameter); }
  int64_t read_at(size_t parameter) const { return place(padded_, parameter); }

  // The elements of a parameter are contiguous where they were written. Cuts them where they were
  // read as those of others, or of none.
  void add_parameter(size_t parameter, ShiftedParts& parts) const {
    const int64_t elements = buffer_.parameters[parameter].elements;
    const int64_t begin = written_at(parameter), end = begin + elements;
    auto next = std::ranges::partition_point(
        by_place_, [&](size_t i) { return read_at(i) + buffer_.parameters[i].elements <= begin; });
    int64_t at = begin;
    while (at < end) {
      if (next == by_place_.end() || read_at(*next) >= end) {
        add_run(parameter, at - begin, end - at, std::nullopt, parts);
        return;
      }
      if (read_at(*next) > at) {
        add_run(parameter, at - begin, read_at(*next) - at, std::nullopt, parts);
        at = read_at(*next);
      }
      const LocalParameter& reader = buffer_.parameters[*next];
      const int64_t count = std::min(end, read_at(*next) + reader.elements) - at;
      const LocalRun stored{*next, at - read_at(*next)};
      add_run(parameter, at - begin, count,
              reader.first_copy ? std::optional(stored) : std::nullopt, parts);
      at += count;
      ++next;
    }
  }

  // Parameters are pieces of model tensors: cuts a run of one, and what was stored of another,
  // where pieces of either end.
  void add_run(size_t parameter, int64_t begin, int64_t count, std::optional<LocalRun> stored,
               ShiftedParts& parts) const {
    while (count > 0) {
      Shard place = piece(parameter, begin, count);
      std::optional<Shard> from;
      if (stored) {
        from = piece(stored->parameter, stored->begin, place.run_count);
        place.run_count = from->run_count;
        stored->begin += from->run_count;
      }
      begin += place.run_count;
      count -= place.run_count;
      const uint32_t tensor = place.tensor;
      parts[tensor].push_back({std::move(place), std::move(from)});
    }
  }

  // The piece that holds element `begin` of a parameter, from there on; at most `count`.
  Shard piece(size_t parameter, int64_t begin, int64_t count) const {
    for (const Shard& shard : buffer_.parameters[parameter].shards) {
      const int64_t elements = shard.elements("part of a model tensor");
      if (begin < elements) {
        Shard run = shard;
        run.run_begin = begin;
        run.run_count = std::min(count, elements - begin);
        return run;
      }
      begin -= elements;
    }
    fail(ErrorKind::internal, "a parameter has fewer elements than its buffer");
  }

  const ModelBuffer& buffer_;
  std::vector<int64_t> compact_, padded_;  // where buckets begin
  std::vector<size_t> by_place_;           // parameters by the place where they were read
};

bool is_in_place(const ShiftedPart& part) {
  return part.stored && part.stored->tensor == part.place.tensor &&
         part.stored->box == part.place.box && part.stored->run_begin == part.place.run_begin;
}

}  // namespace

ShiftedParts find_shifted_parts(const ModelLayout& layout, const BufferChoice& choice) {
  const RunArguments& run = layout.run();
  const std::vector<RankOptimizer> chain =
      rank_optimizers(run, layout.pipeline().chunks(), choice.separate_experts);
  ShiftedParts parts;
  bool any = false;
  for (int64_t stage = 0; stage < run.pipeline; ++stage) {
    for (const OptimizerGroup& group : optimizer_groups(run, chain)) {
      if (group.ranks.data_ranks() < 1) return {};
      const RankCoordinates rank = group.ranks.rank(stage, group.number);
      for (const ModelBuffer& buffer : optimizer_buffers(layout, choice, rank, group.optimizer)) {
        const ShiftedBuffer shifted(buffer);
        any |= shifted.is_shifted();
        shifted.add(parts);
      }
    }
  }
  if (!any) return {};
  std::erase_if(parts,
                [](const auto& one) { return std::ranges::all_of(one.second, is_in_place); });
  return parts;
}

namespace {

// ShardRows and columns of the elements of a box: the last axis, and the one before it.
class ShardRows {
 public:
  explicit ShardRows(const Shard& shard)
      : box_(shard.box),
        strides_(row_major_strides(shard.box.size)),
        axes_(shard.box.size.size()) {}

  int64_t columns() const { return axes_ > 0 ? box_.size[axes_ - 1] : 1; }
  int last_axis() const { return static_cast<int>(axes_) - 1; }
  // ShardRows after the one that holds element `position`, as far as they are a step of one axis
  // apart.
  int64_t rows_after(int64_t position) const {
    if (axes_ < 2) return 0;
    return box_.size[axes_ - 2] - 1 - position / strides_[axes_ - 2] % box_.size[axes_ - 2];
  }
  Dims coordinates(int64_t position) const {
    Dims at = box_.offset;
    for (size_t axis = 0; axis < axes_; ++axis) {
      at[axis] += position / strides_[axis];
      position %= strides_[axis];
    }
    return at;
  }

 private:
  const Box& box_;
  Dims strides_;
  size_t axes_;
};

}  // namespace

void add_run_moves(const Shard& from, const Shard& to, uint32_t input, std::vector<Move>& moves) {
  const ShardRows in(from), out(to);
  const auto add = [&](int64_t at, int64_t rows, int64_t count) {
    Move move{input, in.coordinates(from.run_begin + at), out.coordinates(to.run_begin + at), {}};
    if (rows > 1) move.loops.push_back({rows, in.last_axis() - 1, 1, out.last_axis() - 1, 1});
    if (count > 1) move.loops.push_back({count, in.last_axis(), 1, out.last_axis(), 1});
    moves.push_back(std::move(move));
  };
  int64_t at = 0;
  while (at < to.run_count) {
    const int64_t in_at = from.run_begin + at, out_at = to.run_begin + at;
    const int64_t in_left = in.columns() - in_at % in.columns();
    const int64_t out_left = out.columns() - out_at % out.columns();
    const int64_t count = std::min({in_left, out_left, to.run_count - at});
    // Where rows have one length both are cut in the same two places, row after row.
    const int64_t columns = in.columns();
    int64_t rows = 1;
    if (columns == out.columns()) {
      rows =
          std::min({(to.run_count - at) / columns, in.rows_after(in_at), out.rows_after(out_at)});
    }
    if (rows < 2) {
      add(at, 1, count);
      at += count;
      continue;
    }
    add(at, rows, count);
    if (count < columns) {
      const int64_t rest = columns - count, other = std::max(in_left, out_left) - count;
      // Where both begin at different columns there is a third piece, up to where they began.
      const int64_t second = std::min(rest, other);
      if (second > 0) add(at + count, rows, second);
      if (rest > second) add(at + count + second, rows, rest - second);
    }
    at += rows * columns;
  }
}

}  // namespace ferry
