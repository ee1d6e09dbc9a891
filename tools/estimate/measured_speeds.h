// Speeds that were measured, and what they let expect of another model.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ferry::tool {

/// One GPU's training speed, counted as Megatron-LM counts operations (half of causal scores).
struct MeasuredSpeed {
  std::string_view gpu;      // "h200", "h100", "a100"
  std::string_view program;  // "ferry", "Megatron-LM", ...
  std::string_view model;    // with the length of sequences
  double operations_per_token;
  double tokens_per_second;  // of a GPU
  std::string_view source;   // where the figure stands

  double teraflops() const { return operations_per_token * tokens_per_second / 1e12; }
};

std::span<const MeasuredSpeed> measured_speeds();

struct SpeedEstimate {
  const MeasuredSpeed* from = nullptr;  // the measurement that is most like it
  double tokens_per_second = 0;         // of a GPU, at that one's TFLOP/s
};

/// Of the model on that GPU that takes the nearest number of operations a token; `from` is null
/// where none is near. invalid, with the names that there are, for a GPU that nothing was measured
/// on.
SpeedEstimate speed_for(std::string_view gpu, double operations_per_token);

}  // namespace ferry::tool
