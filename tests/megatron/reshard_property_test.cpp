// Random models, layouts, formats and optimizer forms: there and back is the identity.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/engine/run.h"
#include "ckpt/megatron/optimizer/optimizer_form.h"
#include "ckpt/megatron/optimizer/optimizer_state.h"
#include "ckpt/megatron/rank_folders/write/writer.h"
#include "ckpt/megatron/torch_dist/plain_dcp_writer.h"
#include "tests/megatron/reshard_support.h"
#include "tests/megatron/small_run.h"
#include "tests/random_cases.h"

namespace ferry {
namespace {

using test::SmallRun;

std::string text_of(const ParallelTarget& target) {
  std::string text;
  const auto add = [&](const char* name, const std::optional<int64_t>& number) {
    if (number) text += fmt::format(" {}{}", name, *number);
  };
  add("TP", target.tensor), add("PP", target.pipeline), add("VPP", target.virtual_pipeline);
  add("EP", target.expert), add("ETP", target.expert_tensor), add("DP", target.data);
  add("CP", target.context);
  add("first", target.first_stage_layers), add("last", target.last_stage_layers);
  return text + " " + target.stage_letters.value_or("");
}

// A layout that fits the model, and that `after` can follow: what `after` leaves open stays as
// here.
ParallelTarget fitting_layout(SmallRun& run, const LoadedValue& args,
                              const ParallelTarget& after = {}) {
  for (;;) {
    ParallelTarget target = run.random_layout();
    try {
      apply_target(apply_target(args, target), after);
      return target;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid) << error.what();
    }
  }
}

// Everything that the source has, byte for byte; rows of padding aside, which are zero.
void expect_source(const Checkpoint& checkpoint, const SmallRun& run) {
  ASSERT_EQ(checkpoint.catalog->entries.size(), run.source().entries.size());
  for (const Entry& expected : run.source().entries) {
    const Entry* entry = checkpoint.catalog->find(expected.name);
    ASSERT_NE(entry, nullptr) << expected.name;
    ASSERT_EQ(entry->dtype, expected.dtype) << expected.name;
    std::string found = read_tensor(checkpoint.catalog, *entry, 1 << 24);
    std::string original = read_tensor(run.source(), expected, 1 << 24);
    const size_t size = std::max(found.size(), original.size());
    found.resize(size);
    original.resize(size);
    ASSERT_TRUE(found == original) << expected.name;
  }
}

std::string elements_of(const Value& tensor) {
  if (!tensor.tensor()) return "no tensor";
  const auto& storages = tensor.document()->storages;
  const auto held = storages.find(tensor.tensor()->storage_key);
  return held == storages.end() ? "not held" : held->second;
}

// What the run holds besides tensors, and the elements of tensors in it.
void expect_objects(const RunState& state, bool fp32) {
  if (!fp32) {
    EXPECT_EQ(elements_of(state.grad_scaler.value.get("scale")), "loss");
    EXPECT_EQ(state.grad_scaler.value.get("growth_tracker").integer(), 3);
  }
  EXPECT_EQ(elements_of(state.args.value.get("a_tensor")), "args");
  ASSERT_FALSE(state.param_groups.empty());
  for (const LoadedValue& groups : state.param_groups) {
    for (size_t i = 0; i < groups.value.size(); ++i) {
      EXPECT_EQ(elements_of(groups.value[i].get("lr")), "rate");
    }
  }
}

using Memory = std::shared_ptr<MemoryFileSystem>;

TorchDistOptions random_options(test::Random& random) {
  TorchDistOptions options;
  options.files_per_rank = test::chance(random, 20) ? 2 : 1;
  if (test::chance(random, 25)) options.release = parse_core_release("0.16");
  if (test::chance(random, 20)) options.optimizer = ShardedOptimizer::plain;
  if (test::chance(random, 40)) options.optimizer = ShardedOptimizer::dp_reshardable;
  return options;
}

// Bytes of a box of a row-major tensor.
std::string cut_out(const std::string& bytes, const Dims& shape, const Box& box, int64_t unit) {
  std::string part;
  const int64_t rows = element_count(Dims(box.size.begin(), box.size.end() - 1), "rows");
  for (int64_t row = 0; row < rows; ++row) {
    int64_t at = 0, stride = 1, left = row;
    for (size_t axis = shape.size(); axis-- > 0;) {
      const bool last = axis + 1 == shape.size();
      const int64_t index = last ? 0 : left % box.size[axis];
      if (!last) left /= box.size[axis];
      at += (box.offset[axis] + index) * stride;
      stride *= shape[axis];
    }
    part +=
        bytes.substr(static_cast<size_t>(at * unit), static_cast<size_t>(box.size.back() * unit));
  }
  return part;
}

// An optimizer's tensor as Megatron Core up to 0.14 stored it: equal parts, flat, each cut where
// data ranks were. What is stored goes to the end of `bytes`.
Entry in_fragments(const Catalog& catalog, const Entry& entry, std::string& bytes,
                   test::Random& random) {
  const std::string whole = read_tensor(catalog, entry, 1 << 24);
  const int64_t unit = size_bytes(entry.dtype);
  Box part{Dims(entry.shape.size()), entry.shape};
  Entry stored{entry.name, entry.dtype, {}, {}, Role::optimizer};
  for (int64_t& extent : part.size) {
    const int64_t parts = test::one_of(random, {1, 1, 2, 3, 4});
    stored.shape.push_back(extent % parts == 0 ? parts : 1);
    extent /= stored.shape.back();
  }
  const Dims grid = stored.shape;
  const int64_t elements = element_count(part.size, entry.name);
  stored.shape.push_back(elements);
  Dims which(grid.size(), 0);
  for (;;) {
    for (size_t axis = 0; axis < grid.size(); ++axis) {
      part.offset[axis] = which[axis] * part.size[axis];
    }
    for (int64_t begin = 0; begin < elements;) {
      const int64_t count = test::pick(random, 1, elements - begin);
      Box box{which, Dims(grid.size(), 1)};
      box.offset.push_back(begin);
      box.size.push_back(count);
      const auto at = static_cast<uint64_t>(bytes.size() + begin * unit);
      stored.chunks.push_back({{box}, {}, {0, at, static_cast<uint64_t>(count * unit)}});
      begin += count;
    }
    bytes += cut_out(whole, entry.shape, part, unit);
    size_t axis = grid.size();
    while (axis > 0 && ++which[axis - 1] == grid[axis - 1]) which[--axis] = 0;
    if (axis == 0) return stored;
  }
}

// The same checkpoint, its optimizer's state in the form fully_sharded_model_space.
void to_fragments(Checkpoint& checkpoint, const Memory& memory, test::Random& random) {
  Catalog& catalog = checkpoint.catalog.edit();
  std::string bytes;
  std::vector<Entry> entries;
  for (const Entry& entry : catalog.entries) {
    entries.push_back(entry.role == Role::optimizer ? in_fragments(catalog, entry, bytes, random)
                                                    : entry);
  }
  memory->put("fragments", bytes);
  const uint32_t file = catalog.add_file("fragments", bytes.size());
  for (Entry& entry : entries) {
    for (Chunk& chunk : entry.chunks) {
      if (entry.role == Role::optimizer) chunk.extent.file = file;
    }
  }
  catalog.entries = std::move(entries);
  const OptimizerState state = describe_optimizer(catalog, checkpoint.args.value, {});
  EXPECT_EQ(state.problem, "");
  checkpoint.optimizer = state.layout;
}

// The checkpoint at another layout, in a format and form of the optimizer that chance decides.
Checkpoint hop(const Checkpoint& checkpoint, const ParallelTarget& target, const Memory& memory,
               test::Random& random) {
  RunState state = state_of(checkpoint);
  retarget(state, target);
  if (test::chance(random, 25)) {
    set_distributed_optimizer(state, test::chance(random, 60));
    if (!has_distributed_optimizer(state)) drop_doubled_masters(state);
    try {
      test::write(plan_legacy(state, {}), memory, "second");
      return open_checkpoint(memory, "second");
    } catch (const Error& error) {  // experts split otherwise than all else
      EXPECT_EQ(error.kind(), ErrorKind::unsupported) << error.what();
    }
  }
  if (test::chance(random, 15)) {
    test::write(plan_plain_dcp(std::move(state), {}), memory, "second");
  } else {
    test::write(plan_torch_dist(std::move(state), random_options(random)), memory, "second");
  }
  return open_checkpoint(memory, "second");
}

// The forms that the checkpoint went through; empty when small shapes left open in which order flat
// buckets held their parameters: readers then leave the optimizer's state out.
std::string there_and_back(uint64_t number) {
  SmallRun run(number);
  const auto memory = std::make_shared<MemoryFileSystem>();
  RunState state = run.state();
  const ParallelTarget first = fitting_layout(run, state.args);
  const ParallelTarget second = fitting_layout(run, apply_target(state.args, first), first);
  SCOPED_TRACE(text_of(first) + " ->" + text_of(second));
  retarget(state, first);
  test::write(plan_torch_dist(std::move(state), {}), memory, "first");
  Checkpoint a = open_checkpoint(memory, "first");
  if (test::chance(run.random(), 20)) to_fragments(a, memory, run.random());
  expect_source(a, run);
  const Checkpoint b = hop(a, second, memory, run.random());
  if (!b.optimizer_problem.empty()) {
    EXPECT_NE(b.optimizer, OptimizerLayout::fully_reshardable) << b.optimizer_problem;
    return {};
  }
  RunState last = state_of(b);
  expect_objects(last, run.model().fp32);
  retarget(last, first);
  set_distributed_optimizer(last, true);
  test::write(plan_torch_dist(std::move(last), {}), memory, "third");
  expect_source(open_checkpoint(memory, "third"), run);
  return fmt::format("{} -> {} {}", name(a.optimizer), name(b.format), name(b.optimizer));
}

TEST(ReshardProperty, ThereAndBackIsTheIdentity) {
  std::map<std::string, uint64_t> ways;
  const uint64_t cases =
      test::for_random_cases(300, [&](uint64_t number) { ++ways[there_and_back(number)]; });
  EXPECT_LE(4 * ways[""], cases + 4);
  // Two forms to begin with, each to torch_dist with three kinds of optimizer, dcp, and rank
  // folders with a distributed optimizer and without.
  if (cases >= 300) {
    EXPECT_GE(ways.size(), 2u * 6);
  }
}

}  // namespace
}  // namespace ferry
