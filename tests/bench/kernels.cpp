// Speed of the kernels on the processor: the best of several runs of each operation at the shapes
// of a GPT-2 of 124M parameters and a Llama shape of 100M, in GFLOP/s of products and GB/s of what
// is read and written elsewhere. compare_kernels.py compares PyTorch with it.
//
//   bench_kernels THREADS [PART OF A NAME]
#include "kernels/kernels.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

using namespace ferry::kernels;

namespace {

using Clock = std::chrono::steady_clock;

/// Seconds: of one thread those of the processor, so that other programs count less.
double now(int threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct Bench {
  int threads;
  std::unique_ptr<Kernels> kernels;
  std::string_view filter;
  Type type = Type::f32;
  std::vector<std::shared_ptr<void>> memory;

  Array numbers(int64_t count, Type kind) {
    const auto bytes = static_cast<size_t>(count * size_bytes(kind));
    memory.push_back(kernels->allocate(bytes));
    Array array(memory.back().get(), kind);
    kernels->run(FillNormal{.count = count, .key = memory.size(), .deviation = 0.5, .y = array});
    return array;
  }
  Array numbers(int64_t count) { return numbers(count, type); }
  float* floats(int64_t count) { return static_cast<float*>(numbers(count, Type::f32).data); }
  template <typename T>
  T* integers(int64_t count, int64_t below) {
    memory.push_back(kernels->allocate(static_cast<size_t>(count) * sizeof(T)));
    auto* all = static_cast<T*>(memory.back().get());
    for (int64_t i = 0; i < count; ++i) all[i] = static_cast<T>(i * 7919 % below);
    return all;
  }

  /// `work`: floating-point operations, or bytes, of one run.
  template <typename Operation>
  void report(const std::string& name, double work, const char* unit, const Operation& operation) {
    const auto full = fmt::format("{} {}", name, type == Type::f32 ? "fp32" : "bf16");
    if (full.find(filter) == std::string::npos) return;
    double best = 1e30;
    const auto begin = Clock::now();
    for (int time = 0; time < 5 || Clock::now() - begin < std::chrono::milliseconds(300); ++time) {
      const double start = now(threads);
      kernels->run(operation);
      best = std::min(best, now(threads) - start);
    }
    fmt::print("{:32} {:10.3f} ms {:8.1f} {}\n", full, best * 1e3, work / best / 1e9, unit);
  }
};

void products(Bench& b, const char* name, int64_t tokens, int64_t in, int64_t out) {
  const double work =
      2.0 * static_cast<double>(tokens) * static_cast<double>(in) * static_cast<double>(out);
  const auto x = b.numbers(tokens * in), w = b.numbers(in * out), y = b.numbers(tokens * out);
  const auto dw = b.numbers(in * out, Type::f32);
  const auto label = fmt::format("{} {}", name, tokens);
  b.report(label + " forward", work, "GFLOP/s",
           Matmul{.m = tokens, .n = out, .k = in, .a = x, .b = w, .c = y, .b_transposed = true});
  b.report(label + " data", work, "GFLOP/s",
           Matmul{.m = tokens, .n = in, .k = out, .a = y, .b = w, .c = x});
  b.report(label + " weight", work, "GFLOP/s",
           Matmul{.m = out,
                  .n = in,
                  .k = tokens,
                  .a = y,
                  .b = x,
                  .c = dw,
                  .a_transposed = true,
                  .accumulate = true});
}

void attention(Bench& b, const char* name, int64_t sequences, int64_t positions, int64_t heads,
               int64_t groups) {
  const int64_t dim = 64, width = (heads + 2 * groups) * dim, per_group = heads / groups;
  const AttentionShape shape{.sequences = sequences,
                             .queries = positions,
                             .keys = positions,
                             .heads = heads,
                             .groups = groups,
                             .dim = dim,
                             .value_dim = dim,
                             .scale = 0.125};
  const HeadStrides fused{.position = sequences * width,
                          .sequence = width,
                          .group = (per_group + 2) * dim,
                          .head = dim};
  const HeadStrides plain{.position = sequences * heads * dim,
                          .sequence = heads * dim,
                          .group = per_group * dim,
                          .head = dim};
  const auto qkv = b.numbers(positions * fused.position),
             dqkv = b.numbers(positions * fused.position);
  const auto y = b.numbers(positions * plain.position), dy = b.numbers(positions * plain.position);
  float* log_sum = b.floats(sequences * heads * positions);
  const double pairs = static_cast<double>(sequences * heads) * static_cast<double>(positions) *
                       static_cast<double>(positions + 1) / 2 * 4 * static_cast<double>(dim);
  const auto k = qkv.from(per_group * dim), v = qkv.from((per_group + 1) * dim);
  const AttentionForward forward{.shape = shape,
                                 .q = qkv,
                                 .k = k,
                                 .v = v,
                                 .q_strides = fused,
                                 .k_strides = fused,
                                 .v_strides = fused,
                                 .output = y,
                                 .output_strides = plain,
                                 .log_sum = log_sum};
  b.kernels->run(forward);
  b.report(fmt::format("{} forward", name), pairs, "GFLOP/s", forward);
  b.report(fmt::format("{} backward", name), 2.5 * pairs, "GFLOP/s",
           AttentionBackward{.shape = shape,
                             .q = qkv,
                             .k = k,
                             .v = v,
                             .output = y,
                             .doutput = dy,
                             .q_strides = fused,
                             .k_strides = fused,
                             .v_strides = fused,
                             .output_strides = plain,
                             .log_sum = log_sum,
                             .dq = dqkv,
                             .dk = dqkv.from(per_group * dim),
                             .dv = dqkv.from((per_group + 1) * dim)});
}

void rows(Bench& b) {
  const int64_t tokens = 1024, hidden = 768, wide = 3072, vocabulary = 50304;
  const double size = static_cast<double>(size_bytes(b.type));
  const double activations = static_cast<double>(tokens * hidden) * size;
  const auto x = b.numbers(tokens * hidden), y = b.numbers(tokens * hidden);
  const auto weight = b.numbers(hidden), bias = b.numbers(hidden);
  const auto dweight = b.numbers(hidden, Type::f32), dbias = b.numbers(hidden, Type::f32);
  float *mean = b.floats(tokens), *inverse = b.floats(tokens);
  b.report("layer norm forward", 2 * activations, "GB/s",
           NormForward{.rows = tokens,
                       .width = hidden,
                       .rms = false,
                       .x = x,
                       .weight = weight,
                       .bias = bias,
                       .y = y,
                       .mean = mean,
                       .inverse = inverse});
  b.report("layer norm backward", 3 * activations, "GB/s",
           NormBackward{.rows = tokens,
                        .width = hidden,
                        .rms = false,
                        .x = x,
                        .weight = weight,
                        .mean = mean,
                        .inverse = inverse,
                        .dy = y,
                        .dx = y,
                        .dweight = dweight,
                        .dbias = dbias});
  b.report("add", 3 * activations, "GB/s", Add{.count = tokens * hidden, .a = x, .b = y, .y = y});
  const auto wide_x = b.numbers(tokens * wide), wide_y = b.numbers(tokens * wide);
  const auto dwide = b.numbers(wide, Type::f32);
  const double wide_size = static_cast<double>(tokens * wide) * size;
  b.report(
      "gelu forward", 2 * wide_size, "GB/s",
      ActivationForward{
          .kind = Activation::gelu_tanh, .rows = tokens, .width = wide, .x = wide_x, .y = wide_y});
  b.report("gelu backward", 3 * wide_size, "GB/s",
           ActivationBackward{.kind = Activation::gelu_tanh,
                              .rows = tokens,
                              .width = wide,
                              .x = wide_x,
                              .dy = wide_y,
                              .dx = wide_y});
  b.report(
      "swiglu forward", 1.5 * wide_size, "GB/s",
      ActivationForward{
          .kind = Activation::swiglu, .rows = tokens, .width = wide / 2, .x = wide_x, .y = wide_y});
  b.report("bias gradient", wide_size, "GB/s",
           SumRows{.rows = tokens, .width = wide, .x = wide_x, .sum = dwide});
  const auto logits = b.numbers(tokens * vocabulary);
  const double logit_size = static_cast<double>(tokens * vocabulary) * size;
  auto* targets = b.integers<int32_t>(tokens, vocabulary);
  float *greatest = b.floats(tokens), *sum = b.floats(tokens), *target = b.floats(tokens);
  float *loss = b.floats(tokens), *counts = b.floats(tokens);
  b.report(
      "logit maximum", logit_size, "GB/s",
      LogitMaximum{.rows = tokens, .columns = vocabulary, .logits = logits, .maximum = greatest});
  b.report("logit sums", logit_size, "GB/s",
           LogitSums{.rows = tokens,
                     .columns = vocabulary,
                     .logits = logits,
                     .targets = targets,
                     .maximum = greatest,
                     .sum = sum,
                     .target = target});
  b.report("logit gradient", 2 * logit_size, "GB/s",
           CrossEntropyGradient{.rows = tokens,
                                .columns = vocabulary,
                                .logits = logits,
                                .targets = targets,
                                .maximum = greatest,
                                .sum = sum,
                                .target = target,
                                .weight = counts,
                                .loss = loss,
                                .dlogits = logits});
}

void parameters(Bench& b) {
  const int64_t count = 32 << 20;
  const auto size = static_cast<double>(count);
  const auto gradient = b.numbers(count, Type::f32);
  const bool is_mixed = b.type != Type::f32;
  float *parameter = b.floats(count), *m = b.floats(count), *v = b.floats(count);
  b.kernels->run(Clear{.count = count, .y = Array(v)});
  const auto copy = is_mixed ? b.numbers(count) : Array();
  b.report("AdamW", size * (is_mixed ? 30 : 28), "GB/s",
           AdamStep{.step = {.runs = {{.count = count,
                                       .gradient = gradient,
                                       .parameter = parameter,
                                       .copy = copy,
                                       .states = {Array(m), Array(v)},
                                       .learning_rate = 1e-4,
                                       .weight_decay = 0.1}}}});
  double sum = 0;
  b.report("gradient norm", size * 4, "GB/s",
           SumOfSquares{.count = count, .x = gradient, .sum = &sum});
  b.report("clear", size * 4, "GB/s", Clear{.count = count, .y = gradient});
  b.report("normal numbers", size * 4, "GB/s", FillNormal{.count = count, .y = gradient});
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 2;
  Bench b{.threads = threads,
          .kernels = cpu_kernels(threads),
          .filter = count > 2 ? arguments[2] : "",
          .memory = {}};
  for (const Type type : {Type::f32, Type::bf16}) {
    b.type = type;
    const std::vector<std::function<void()>> parts{
        [&] { rows(b); }, [&] { parameters(b); },
        [&] { attention(b, "attention 4x256", 4, 256, 12, 12); },
        [&] { attention(b, "attention 1x1024", 1, 1024, 12, 12); },
        [&] { attention(b, "attention 2x256 grouped", 2, 256, 12, 4); }};
    for (const auto& part : parts) {
      part();
      b.memory.clear();
    }
    for (const int64_t tokens : {256, 1024}) {
      products(b, "qkv", tokens, 768, 2304);
      products(b, "proj", tokens, 768, 768);
      products(b, "fc1", tokens, 768, 3072);
      products(b, "fc2", tokens, 3072, 768);
      products(b, "head", tokens, 768, 50304);
      b.memory.clear();
    }
    products(b, "llama qkv", 512, 768, 1280);
    products(b, "llama fc1", 512, 768, 4096);
    products(b, "llama fc2", 512, 2048, 768);
    products(b, "llama head", 512, 768, 32000);
    b.memory.clear();
  }
}
