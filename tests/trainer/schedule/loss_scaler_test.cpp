#include "trainer/schedule/loss_scaler.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ckpt/base/error.h"
#include "trainer/arguments/parse.h"

namespace ferry {
namespace {

LossScaler dynamic() {
  TrainArguments a = default_arguments();
  a.fp16 = true;
  return loss_scaler(a);
}

TEST(LossScaler, HalvesAfterTheHysteresisAndThenAtOnce) {
  LossScaler scaler = dynamic();
  for (const int exponent : {32, 31, 30, 29}) {
    update(scaler, true);
    EXPECT_EQ(scaler.scale, std::exp2(exponent));
  }
  // A finite iteration does not restore the hysteresis.
  update(scaler, false);
  update(scaler, true);
  EXPECT_EQ(scaler.scale, std::exp2(28));
}

TEST(LossScaler, DoublesAfterTheWindow) {
  LossScaler scaler = dynamic();
  update(scaler, true);
  for (int i = 0; i < 999; ++i) update(scaler, false);
  EXPECT_EQ(scaler.scale, std::exp2(32));
  update(scaler, false);
  EXPECT_EQ(scaler.scale, std::exp2(33));
  EXPECT_EQ(scaler.growth_tracker, 0);
  EXPECT_EQ(scaler.hysteresis_tracker, 2);
}

TEST(LossScaler, StopsAtTheLeastScale) {
  LossScaler scaler = dynamic();
  for (int i = 0; i < 100; ++i) update(scaler, true);
  EXPECT_EQ(scaler.scale, 1);
  EXPECT_EQ(scaler.inverse(), 1);
}

TEST(LossScaler, IsConstantOtherwise) {
  TrainArguments a = default_arguments();
  EXPECT_EQ(loss_scaler(a).scale, 1);
  a.loss_scale = 128;
  EXPECT_EQ(loss_scaler(a).scale, 1);  // fp32 has none
  a.use_distributed_optimizer = true;
  EXPECT_EQ(loss_scaler(a).scale, 128);
  a.use_distributed_optimizer = false;
  a.bf16 = true;
  EXPECT_EQ(loss_scaler(a).scale, 128);
  a.bf16 = false;
  a.fp16 = true;
  LossScaler scaler = loss_scaler(a);
  update(scaler, true);
  update(scaler, true);
  EXPECT_EQ(scaler.scale, 128);
  Draft draft;
  EXPECT_EQ(write_loss_scaler(scaler, draft).pair_count(), 0u);
}

TEST(LossScaler, ComesBackFromACheckpoint) {
  LossScaler scaler = dynamic();
  for (int i = 0; i < 5; ++i) update(scaler, i != 3);
  Draft draft;
  const LoadedValue state = std::move(draft).finish(write_loss_scaler(scaler, draft));
  const StoredTensor* tensor = state.value.get("scale").tensor();
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, Dims({1}));
  const std::string bytes = state.document->storages.at(tensor->storage_key);
  LossScaler loaded = dynamic();
  read_loss_scaler(state.value, bytes, "ckpt", loaded);
  EXPECT_EQ(loaded, scaler);
  EXPECT_THROW(read_loss_scaler(state.value, "", "ckpt", loaded), Error);
  EXPECT_THROW(read_loss_scaler(Value(), bytes, "ckpt", loaded), Error);
  EXPECT_THROW(read_loss_scaler(state.value, std::string(4, '\xff'), "ckpt", loaded), Error);
}

}  // namespace
}  // namespace ferry
