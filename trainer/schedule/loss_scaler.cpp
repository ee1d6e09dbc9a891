#include "trainer/schedule/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ckpt/base/error.h"

namespace ferry {

LossScaler loss_scaler(const TrainArguments& a) {
  LossScaler scaler;
  // Megatron-LM's pure fp32 optimizer has none.
  if (!a.fp16 && !a.bf16 && !a.use_distributed_optimizer) return scaler;
  if (a.loss_scale.value_or(0) != 0) {
    scaler.scale = static_cast<float>(*a.loss_scale);
  } else if (a.fp16) {
    scaler.dynamic = true;
    scaler.scale = static_cast<float>(a.initial_loss_scale);
    scaler.least = static_cast<float>(a.min_loss_scale);
    scaler.window = static_cast<int64_t>(a.loss_scale_window);
    scaler.hysteresis = scaler.hysteresis_tracker = a.hysteresis;
  }
  return scaler;
}

void update(LossScaler& s, bool found_overflow) {
  if (!s.dynamic) return;
  if (found_overflow) {
    s.growth_tracker = 0;
    if (--s.hysteresis_tracker <= 0) s.scale = std::max(s.scale * 0.5f, s.least);
  } else if (++s.growth_tracker == s.window) {
    s.growth_tracker = 0;
    s.hysteresis_tracker = s.hysteresis;
    s.scale *= 2;
  }
}

Value write_loss_scaler(const LossScaler& s, Draft& draft) {
  Value state = draft.dict();
  if (!s.dynamic) return state;
  std::string bytes(sizeof s.scale, '\0');
  std::memcpy(bytes.data(), &s.scale, sizeof s.scale);
  draft.put(state, "scale", draft.tensor(DType::f32, {1}, std::move(bytes)));
  draft.put(state, "growth_tracker", draft.integer(s.growth_tracker));
  draft.put(state, "hysteresis_tracker", draft.integer(s.hysteresis_tracker));
  return state;
}

void read_loss_scaler(const Value& state, const std::string& scale_bytes, const std::string& path,
                      LossScaler& s) {
  if (!s.dynamic) return;
  const auto growth = state.get("growth_tracker").integer();
  const auto hysteresis = state.get("hysteresis_tracker").integer();
  float scale = 0;
  if (scale_bytes.size() == sizeof scale) {
    std::memcpy(&scale, scale_bytes.data(), sizeof scale);
  }
  if (!growth || !hysteresis || !std::isfinite(scale) || scale <= 0 || *growth < 0) {
    fail(
        ErrorKind::corrupt,
        "{}: the loss scaler's state lacks a positive scale, growth_tracker or hysteresis_tracker; "
        "--no-load-optim starts with a new one",
        path);
  }
  s.scale = scale;
  s.growth_tracker = *growth;
  s.hysteresis_tracker = *hysteresis;
}

}  // namespace ferry
