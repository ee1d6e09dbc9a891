#include <array>
#include <cmath>
#include <set>

#include "ckpt/base/error.h"
#include "estimate/make_estimate.h"

namespace ferry {
namespace {

// A line a measurement. Operations a token: forward and backward pass without recomputation.
constexpr std::array kSpeeds = {
    MeasuredSpeed{"h200", "ferry", "GPT-2 124M, 1024 tokens", 0.8031e9, 552'000,
                  "docs/benchmarks.md, 2026-11-23"},
    MeasuredSpeed{"h200", "ferry", "GPT-2 1558M, 1024 tokens", 9.82e9, 51'600,
                  "docs/benchmarks.md, 2026-11-23"},
    MeasuredSpeed{"h200", "ferry", "8 layers of Llama-3-8B, 4096 tokens", 14.44e9, 33'800,
                  "docs/benchmarks.md, 2026-11-23"},
    MeasuredSpeed{"h100", "llm.c", "GPT-2 124M, 1024 tokens", 0.8031e9, 468'000,
                  "modded-nanogpt, records/2024-10-13_llmc: 140 ms a step on 8 GPUs"},
    MeasuredSpeed{"h100", "llm.c", "GPT-2 1558M, 1024 tokens", 9.82e9, 46'800,
                  "llm.c, scripts/run_gpt2_1558M.sh: 2.8 s a step on 8 GPUs"},
    MeasuredSpeed{"h100", "Megatron-LM", "7.1B, 4096 tokens, TP 2", 44.9e9, 10'380,
                  "Megatron-LM, images/model_table.png: 465.9 TFLOP/s a GPU on 96"},
    MeasuredSpeed{"h100", "Megatron-LM", "16B, 4096 tokens, TP 4", 99.0e9, 4'940,
                  "Megatron-LM, images/model_table.png: 489.1 TFLOP/s a GPU"},
    MeasuredSpeed{"h100", "NeMo AutoModel", "Llama-3-70B, 4096 tokens", 449.0e9, 866.8,
                  "NeMo AutoModel, performance summary: 389 TFLOP/s a GPU on 64"},
    MeasuredSpeed{"h100", "Megatron-LM", "462B, 4096 tokens", 2800e9, 164.2,
                  "Megatron-LM, images/model_table.png: 459.9 TFLOP/s a GPU on 6144"},
    MeasuredSpeed{"a100", "llm.c", "GPT-2 124M, 1024 tokens", 0.8031e9, 218'000,
                  "llm.c, scripts/run_gpt2_124M.sh: 300 ms a step on 8 GPUs"},
};

constexpr double kNear = 20;  // times as many operations, or a part as many

double distance(double one, double other) { return std::fabs(std::log(one / other)); }

}  // namespace

SpeedEstimate speed_for(std::string_view gpu, double operations_per_token) {
  SpeedEstimate estimate;
  std::set<std::string_view> names;
  for (const MeasuredSpeed& speed : kSpeeds) {
    names.insert(speed.gpu);
    if (speed.gpu != gpu) continue;
    const bool is_nearer = estimate.from == nullptr ||
                           distance(speed.operations_per_token, operations_per_token) <
                               distance(estimate.from->operations_per_token, operations_per_token);
    if (is_nearer) estimate.from = &speed;
  }
  if (estimate.from == nullptr) {
    std::string all;
    for (const std::string_view name : names) all += (all.empty() ? "" : ", ") + std::string(name);
    fail(ErrorKind::invalid, "nothing was measured on GPU '{}'; there are figures of {}", gpu, all);
  }
  if (distance(estimate.from->operations_per_token, operations_per_token) > std::log(kNear)) {
    return {};
  }
  estimate.tokens_per_second = estimate.from->teraflops() * 1e12 / operations_per_token;
  return estimate;
}

}  // namespace ferry
