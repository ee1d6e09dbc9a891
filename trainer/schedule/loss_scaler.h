// The loss scale of fp16: a state machine that every rank steps alike, told by all ranks together
// whether a gradient was not finite.
//
// Source: Megatron-LM megatron/core/optimizer/grad_scaler.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ckpt/format/pickle/values/draft.h"
#include "trainer/arguments/train_arguments.h"

namespace ferry {

struct LossScaler {
  bool dynamic = false;
  float scale = 1;
  float least = 1;
  int64_t window = 1000;   // finite iterations after which the scale doubles
  int64_t hysteresis = 2;  // overflows until it is halved

  int64_t growth_tracker = 0;
  int64_t hysteresis_tracker = 2;

  /// What gradients are multiplied by.
  float inverse() const { return static_cast<float>(1.0 / static_cast<double>(scale)); }

  bool operator==(const LossScaler&) const = default;
};

/// Dynamic for fp16 without --loss-scale; a scale of 1 for bf16 without one, and for fp32 without
/// one or without a distributed optimizer.
LossScaler loss_scaler(const TrainArguments& arguments);

/// After an iteration. An overflow is not forgotten when the scale is halved: until it has grown
/// once, each further one halves it again.
void update(LossScaler& scaler, bool found_overflow);

/// grad_scaler of a checkpoint's optimizer: scale (a tensor of one element), growth_tracker,
/// hysteresis_tracker; an empty dict for a scale that does not move.
Value write_loss_scaler(const LossScaler& scaler, Draft& draft);

/// `scale_bytes`: the elements of the scale's tensor. corrupt for what is no such state.
void read_loss_scaler(const Value& state, const std::string& scale_bytes, const std::string& path,
                      LossScaler& scaler);

}  // namespace ferry
