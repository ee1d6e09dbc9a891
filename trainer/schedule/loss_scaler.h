// The loss scale of fp16: a state machine that all ranks step alike, with whether any rank's
// gradient overflowed.
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
  int64_t window = 1000;   // iterations without overflow until the scale doubles
  int64_t hysteresis = 2;  // overflows until the scale is halved

  int64_t growth_tracker = 0;
  int64_t hysteresis_tracker = 2;

  /// The factor of the loss and its gradients.
  float inverse() const { return static_cast<float>(1.0 / static_cast<double>(scale)); }

  bool operator==(const LossScaler&) const = default;
};

/// Dynamic for fp16 without --loss-scale; 1 for bf16 without it, and for fp32 without it or without
/// a distributed optimizer.
LossScaler loss_scaler(const TrainArguments& arguments);

/// Called after each iteration. Halving the scale does not reset the overflow count: until the
/// scale has grown once, each further overflow halves it again.
void update(LossScaler& scaler, bool found_overflow);

/// The grad_scaler object of a checkpoint's optimizer: scale (a tensor of one element),
/// growth_tracker, hysteresis_tracker; an empty dict for a constant scale.
Value write_loss_scaler(const LossScaler& scaler, Draft& draft);

/// `scale_bytes`: the data of the scale's tensor. corrupt for an invalid state.
void read_loss_scaler(const Value& state, const std::string& scale_bytes, const std::string& path,
                      LossScaler& scaler);

}  // namespace ferry
