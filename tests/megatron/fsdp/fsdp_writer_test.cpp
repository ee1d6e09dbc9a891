// What is written as fsdp_dtensor: made-up runs there and back, and the keys of a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/engine/run.h"
#include "ckpt/megatron/fsdp/write/writer.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "tests/megatron/reshard_support.h"
#include "tests/megatron/small_run.h"
#include "tests/random_cases.h"

namespace ferry {
namespace {

using test::SmallRun;
using testing::HasSubstr;
using Memory = std::shared_ptr<MemoryFileSystem>;

std::string elements(const Catalog& catalog, const std::string& name) {
  const Entry* entry = catalog.find(name);
  return entry ? read_tensor(catalog, *entry, 1 << 24) : "there is no " + name;
}

// The masters as the model, the rest under its own name; rows of padding may differ.
void expect_masters_and_moments(const Checkpoint& checkpoint, const SmallRun& run) {
  for (const Entry& expected : run.source().entries) {
    std::string original = elements(run.source(), expected.name);
    const bool is_model = expected.role == Role::model;
    const Entry* master =
        run.source().find("optimizer.state.param." + (is_model ? expected.name : ""));
    if (is_model && master) original = elements(run.source(), master->name);
    if (expected.name.starts_with("optimizer.state.param.")) continue;
    std::string found = elements(checkpoint.catalog, expected.name);
    const size_t size = std::max(found.size(), original.size());
    found.resize(size);
    original.resize(size);
    ASSERT_TRUE(found == original) << expected.name;
  }
}

TEST(FsdpWriter, RandomRunsAreTheSameThereAndBack) {
  uint64_t mixtures = 0, layers_apart = 0;
  const uint64_t cases = test::for_random_cases(60, [&](uint64_t number) {
    SmallRun run(number);
    RunState state = run.state();
    ParallelTarget target;
    target.tensor = 1;
    target.pipeline = 1;
    target.expert = 1;
    target.data = test::pick(run.random(), 1, 3);
    retarget(state, target);
    const Memory memory = std::make_shared<MemoryFileSystem>();
    test::write(plan_fsdp_dtensor(std::move(state), {}), memory, "fsdp");
    const Checkpoint written = open_checkpoint(memory, "fsdp");
    ASSERT_EQ(written.format, Format::fsdp_dtensor) << testing::PrintToString(written.notes);
    EXPECT_EQ(written.optimizer_problem, "");
    EXPECT_EQ(written.optimizer, OptimizerLayout::fsdp_dtensor);
    expect_masters_and_moments(written, run);
    const Checkpoint back = test::reshard(written, {}, memory, "back");
    for (const Entry& expected : run.source().entries) {
      const Entry* entry = back.catalog->find(expected.name);
      ASSERT_NE(entry, nullptr) << expected.name;
      EXPECT_EQ(entry->dtype, expected.dtype) << expected.name;
      // Rows of padding, which are zero, are as many as the vocabulary's divisor asks for.
      if (expected.role == Role::optimizer && entry->shape == expected.shape) {
        EXPECT_TRUE(elements(back.catalog, expected.name) == elements(run.source(), expected.name))
            << expected.name;
      }
    }
    const RunState again = state_of(written);
    ASSERT_EQ(again.param_groups.size(), 1u);
    EXPECT_EQ(to_json(again.param_groups[0].value), to_json(run.state().param_groups[0].value));
    mixtures += run.model().moe;
    layers_apart += run.model().mixed;
  });
  EXPECT_TRUE(cases < 60 || (mixtures > 5 && layers_apart > 2));
}

TEST(FsdpWriter, StagesAreRefused) {
  SmallRun run(3);
  RunState state = run.state();
  ParallelTarget target;
  target.pipeline = run.model().layers > 1 ? 2 : 1;
  SmallRun other(3);
  for (uint64_t number = 4; *target.pipeline == 1; ++number) {
    other = SmallRun(number);
    target.pipeline = other.model().layers % 2 == 0 ? 2 : 1;
    state = other.state();
  }
  retarget(state, target);
  try {
    plan_fsdp_dtensor(std::move(state), {});
    FAIL() << "stages were written";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid);
    EXPECT_THAT(error.what(), HasSubstr("options.pipeline=1"));
  }
}

TEST(FsdpWriter, WeightsThatAreNoFloatingPointNumbersAreRefused) {
  SmallRun run(1);
  RunState state = run.state();
  ParallelTarget target;
  target.tensor = 1;
  target.pipeline = 1;
  target.expert = 1;
  retarget(state, target);
  for (StateTensor& tensor : state.tensors) tensor.dtype = DType::u8;
  try {
    plan_fsdp_dtensor(std::move(state), {});
    ADD_FAILURE() << "it was planned";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_THAT(error.what(), HasSubstr("has elements of type"));
  }
}

TEST(FsdpWriter, WithoutTheOptimizerTheModelIsStillTheMasters) {
  SmallRun run(5);
  RunState state = run.state();
  retarget(state, {});
  const Memory memory = std::make_shared<MemoryFileSystem>();
  FsdpOptions options;
  options.optimizer = false;
  test::write(plan_fsdp_dtensor(std::move(state), options), memory, "model");
  const Checkpoint written = open_checkpoint(memory, "model");
  EXPECT_EQ(written.optimizer, OptimizerLayout::none);
  EXPECT_EQ(elements(written.catalog, "decoder.final_layernorm.weight"),
            elements(run.source(), "optimizer.state.param.decoder.final_layernorm.weight"));
}

std::set<std::string> tensor_keys(const Catalog& catalog) {
  std::set<std::string> keys;
  for (const Entry& entry : catalog.entries) {
    if (!entry.name.starts_with("rng_state.")) keys.insert(entry.name);
  }
  return keys;
}

TEST(FsdpWriter, HasTheKeysThatTheSourceGivesThem) {
  for (const std::string name : {"dense", "mixture"}) {
    OpenOptions raw;
    raw.raw = true;
    const std::string folder = test::fixture("fsdp/" + name);
    const Checkpoint source = open_checkpoint(posix_file_system(), folder);
    RunState state = state_of(source);
    const Memory memory = std::make_shared<MemoryFileSystem>();
    test::write(plan_fsdp_dtensor(std::move(state), {}), memory, "written");
    const Catalog original = open_checkpoint(posix_file_system(), folder, raw).catalog;
    const Catalog found = open_checkpoint(memory, "written", raw).catalog;
    EXPECT_EQ(tensor_keys(found), tensor_keys(original)) << name;
    std::set<std::string> objects, original_objects;
    for (const Object& object : found.objects) objects.insert(object.name);
    for (const Object& object : original.objects) original_objects.insert(object.name);
    for (const std::string& object : original_objects) {
      EXPECT_TRUE(objects.contains(object)) << object;
    }
    test::expect_same_tensors(open_checkpoint(memory, "written").catalog, source.catalog);
  }
}

}  // namespace
}  // namespace ferry
