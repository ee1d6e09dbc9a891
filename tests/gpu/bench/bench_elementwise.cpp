// How many bytes a second operations move that compute little, on one GPU, compared with plain
// copies of its memory: each input counts once, and each output. Of the two ratios one is to a copy
// of a GiB, the other to a copy that moves as many bytes as the operation, and so begins and ends
// as often.
//
//   bench_elementwise
//
// Shapes are those of a step of GPT-2 124M (64 sequences of 1024) and 1558M (16), and of Llama-3-8B
// (2 of 4096) and 70B.
#include <cstdio>
#include <exception>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "tests/gpu/bench/measuring.h"

namespace {

using namespace ferry::kernels;
using ferry::measuring::Numbers;
using ferry::measuring::seconds;

constexpr Type kType = Type::bf16;
constexpr int64_t kWide = 2;  // bytes of an element

class Bench {
 public:
  Bench() : device_(0), rate_of_gib_(copy_rate(int64_t{2} << 30)) {
    std::printf("copy of 1 GiB: %.2f TB/s\n", rate_of_gib_ * 1e-12);
  }

  void norms(const char* model, int64_t rows, int64_t width, bool rms) {
    const Numbers x(device_, rows * width), y(device_, rows * width), sum(device_, rows * width);
    const Numbers residual(device_, rows * width);
    const Numbers weight(device_, width, Type::f32), bias(device_, width, Type::f32);
    const Numbers dweight(device_, width, Type::f32), dbias(device_, width, Type::f32);
    const Numbers means(device_, rows, Type::f32), inverses(device_, rows, Type::f32);
    NormForward forward{.rows = rows, .width = width, .rms = rms, .x = x, .weight = weight, .y = y};
    if (!rms) forward.bias = bias;
    forward.mean = static_cast<float*>(Array(means).data);
    forward.inverse = static_cast<float*>(Array(inverses).data);
    print(model, "norm", 2 * kWide * rows * width, forward);
    forward.residual = residual;
    forward.sum = sum;
    print(model, "norm of a sum with the residual", 4 * kWide * rows * width, forward);
    NormBackward backward{.rows = rows,
                          .width = width,
                          .rms = rms,
                          .accumulate = true,
                          .x = x,
                          .weight = weight,
                          .mean = forward.mean,
                          .inverse = forward.inverse,
                          .dy = y,
                          .dx = sum,
                          .dweight = Gradient(Array(dweight))};
    if (!rms) backward.dbias = Gradient(Array(dbias));
    print(model, "norm's gradients, added to the residual's", 4 * kWide * rows * width, backward);
    print(model, "sum over rows", kWide * rows * width,
          SumRows{.rows = rows, .width = width, .x = x, .sum = Gradient(Array(dweight))});
    print(model, "sum of two", 3 * kWide * rows * width,
          Add{.count = rows * width, .a = x, .b = y, .y = sum});
  }

  void activations(const char* model, Activation kind, int64_t rows, int64_t width) {
    const int64_t in = is_gated(kind) ? 2 * width : width;
    const Numbers x(device_, rows * in), dx(device_, rows * in);
    const Numbers y(device_, rows * width), dbias(device_, in, Type::f32);
    print(model, "activation", kWide * rows * (in + width),
          ActivationForward{.kind = kind, .rows = rows, .width = width, .x = x, .y = y});
    ActivationBackward backward{
        .kind = kind, .rows = rows, .width = width, .x = x, .dy = y, .dx = dx};
    print(model, "activation's gradient", kWide * rows * (2 * in + width), backward);
    if (is_gated(kind)) return rounded_activations(model, kind, rows, width, x, y, dx);
    backward.dbias = Gradient(Array(dbias));
    print(model, "activation's and bias's gradient", kWide * rows * (2 * in + width), backward);
  }

  /// In FP8, with delayed scaling: on the way, and of an array.
  void rounded_activations(const char* model, Activation kind, int64_t rows, int64_t width,
                           ConstArray x, Array y, Array dx) {
    const int64_t in = 2 * width;
    const Numbers by_row(device_, rows * width), by_column(device_, rows * width);
    const Numbers scale(device_, 4, Type::f32), maximum(device_, 1, Type::f32);
    const Float8Output to{.scale = static_cast<const Float8Scale*>(Array(scale).data),
                          .by_row = static_cast<uint8_t*>(Array(by_row).data),
                          .by_column = static_cast<uint8_t*>(Array(by_column).data),
                          .maximum = static_cast<float*>(Array(maximum).data)};
    print(model, "activation, rounded to FP8", rows * (kWide * in + 2 * width),
          ActivationForward{.kind = kind,
                            .rows = rows,
                            .width = width,
                            .x = x,
                            .y = y,
                            .rounded = to,
                            .only_rounded = true});
    print(model, "activation's gradient, rounded to FP8", rows * (kWide * (in + width) + 2 * in),
          ActivationBackward{.kind = kind,
                             .rows = rows,
                             .width = width,
                             .x = x,
                             .dy = y,
                             .dx = dx,
                             .rounded = to,
                             .only_rounded = true});
    print(model, "rounding to FP8", rows * in * (kWide + 2),
          Quantize{.rows = rows, .width = in, .x = dx, .to = to});
  }

  void rotary(const char* model, int64_t positions, int64_t sequences, int64_t heads, int64_t dim) {
    const Numbers x(device_, positions * sequences * heads * dim);
    const Numbers cosine(device_, positions * dim / 2, Type::f32);
    const Numbers sine(device_, positions * dim / 2, Type::f32);
    print(model, "rotary embedding", 2 * kWide * positions * sequences * heads * dim,
          Rotary{.positions = positions,
                 .tokens_per_position = sequences,
                 .heads = heads,
                 .dim = dim,
                 .token_stride = heads * dim,
                 .group_stride = dim,
                 .head_stride = dim,
                 .cosine = static_cast<const float*>(Array(cosine).data),
                 .sine = static_cast<const float*>(Array(sine).data),
                 .x = x});
  }

  void cross_entropy(const char* model, int64_t rows, int64_t columns) {
    const Numbers logits(device_, rows * columns), weight(device_, rows, Type::f32);
    const Numbers loss(device_, rows, Type::f32);
    const auto targets = device_.allocate(static_cast<size_t>(rows) * sizeof(int32_t));
    cuda::check(cudaMemsetAsync(targets.get(), 0, static_cast<size_t>(rows) * sizeof(int32_t),
                                device_.stream()),
                "targets");
    print(model, "cross entropy and its gradient", 2 * kWide * rows * columns,
          CrossEntropy{.rows = rows,
                       .columns = columns,
                       .logits = logits,
                       .targets = static_cast<const int32_t*>(targets.get()),
                       .weight = static_cast<const float*>(Array(weight).data),
                       .loss = static_cast<float*>(Array(loss).data),
                       .dlogits = logits});
  }

  /// Runs of so many parameters, by turns with weight decay and without.
  void optimizer(const char* model, const std::vector<int64_t>& runs) {
    const int64_t count = std::accumulate(runs.begin(), runs.end(), int64_t{0});
    const Numbers gradient(device_, count, Type::f32), parameter(device_, count, Type::f32);
    const Numbers copy(device_, count), first(device_, count, Type::f32);
    const Numbers second(device_, count, Type::f32);
    AdamStep step;
    int64_t at = 0;
    for (const int64_t run : runs) {
      step.step.runs.push_back({.count = run,
                                .gradient = ConstArray(gradient).from(at),
                                .parameter = static_cast<float*>(Array(parameter).data) + at,
                                .copy = Array(copy).from(at),
                                .states = {Array(first).from(at), Array(second).from(at)},
                                .learning_rate = 1e-4,
                                .weight_decay = step.step.runs.size() % 2 == 0 ? 0.1 : 0.0});
      at += run;
    }
    print(model, "AdamW, all in fp32", count * (4 + 8 + 2 + 8 + 8), step);
    const Numbers squares(device_, 1, Type::f32), sum(device_, 2, Type::f32);
    print(
        model, "sum of squares", 4 * count,
        SumOfSquares{.count = count, .x = gradient, .sum = static_cast<double*>(Array(sum).data)});
  }

  /// Random tokens, or every second one the same, as blanks are in programs' text.
  void embedding(const char* model, int64_t tokens, int64_t rows, int64_t width, bool is_text) {
    const Numbers dy(device_, tokens * width), dtable(device_, rows * width, Type::f32);
    std::vector<int32_t> ids(static_cast<size_t>(tokens));
    std::mt19937 random(1);
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto any = static_cast<int32_t>(random() % static_cast<uint64_t>(rows));
      ids[i] = is_text && i % 2 == 0 ? 220 : any;
    }
    const std::set<int32_t> distinct(ids.begin(), ids.end());
    const auto memory = device_.allocate(ids.size() * sizeof(int32_t));
    cuda::check(
        cudaMemcpy(memory.get(), ids.data(), ids.size() * sizeof(int32_t), cudaMemcpyHostToDevice),
        "ids");
    print(model, is_text ? "embedding's gradient, as of text" : "embedding's gradient",
          (kWide * tokens + 8 * static_cast<int64_t>(distinct.size())) * width,
          EmbeddingBackward{.count = tokens,
                            .width = width,
                            .rows = rows,
                            .ids = static_cast<const int32_t*>(memory.get()),
                            .dy = dy,
                            .dtable = dtable});
  }

  void experts(const char* model, int64_t tokens, int64_t chosen, int64_t width) {
    const int64_t rows = tokens * chosen;
    const Numbers x(device_, tokens * width), y(device_, rows * width);
    const auto index = device_.allocate(static_cast<size_t>(rows) * sizeof(int32_t));
    std::vector<int32_t> order(static_cast<size_t>(rows));
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = static_cast<int32_t>(i * 40503 % order.size());  // odd: each once
    }
    cuda::check(cudaMemcpy(index.get(), order.data(), order.size() * sizeof(int32_t),
                           cudaMemcpyHostToDevice),
                "order");
    const auto* const places = static_cast<const int32_t*>(index.get());
    print(model, "rows to experts", kWide * (tokens + rows) * width,
          GatherRows{.rows = rows,
                     .width = width,
                     .index = places,
                     .divisor = chosen,
                     .row_of = places,
                     .tokens = tokens,
                     .x = x,
                     .y = y});
    print(
        model, "rows of experts added up", kWide * (tokens + rows) * width,
        CombineRows{
            .tokens = tokens, .chosen = chosen, .width = width, .row_of = places, .x = y, .y = x});
  }

 private:
  /// The rate of a copy that reads half of so many bytes, and writes as many.
  double copy_rate(int64_t bytes) {
    const auto half = static_cast<size_t>(bytes / 2);
    const auto from = device_.allocate(half), to = device_.allocate(half);
    const double time = seconds(device_, [&] {
      cuda::check(
          cudaMemcpyAsync(to.get(), from.get(), half, cudaMemcpyDeviceToDevice, device_.stream()),
          "copy");
    });
    return static_cast<double>(bytes) / time;
  }

  template <typename Operation>
  void print(const char* model, const char* what, int64_t bytes, const Operation& operation) {
    const double time = seconds(device_, [&] { cuda::run(device_, operation); });
    const double rate = static_cast<double>(bytes) / time;
    std::printf("%-11s %-42s %8.3f ms %6.2f TB/s   %.2f of a copy, %.2f of one of its size\n",
                model, what, time * 1e3, rate * 1e-12, rate / rate_of_gib_,
                rate / copy_rate(bytes));
    std::fflush(stdout);
  }

  cuda::Device device_;
  double rate_of_gib_;
};

}  // namespace

int main() {
  try {
    Bench bench;
    bench.norms("GPT-2", 65536, 768, false);
    bench.activations("GPT-2", Activation::gelu_tanh, 65536, 3072);
    bench.cross_entropy("GPT-2", 16384, 50304);
    bench.embedding("GPT-2", 65536, 50304, 768, false);
    bench.embedding("GPT-2", 65536, 50304, 768, true);
    bench.norms("GPT-2 1558M", 16384, 1600, false);
    std::vector<int64_t> runs{50304 * 1600};
    for (int layer = 0; layer < 12; ++layer) {
      for (const int64_t matrix : {4800, 1600, 6400, 6400}) {
        runs.insert(runs.end(), {3 * 1600, matrix * 1600});
      }
    }
    bench.optimizer("GPT-2 1558M", runs);
    bench.norms("Llama-3-8B", 8192, 4096, true);
    bench.norms("Llama-3-70B", 8192, 8192, true);
    bench.activations("Llama-3-8B", Activation::swiglu, 8192, 14336);
    bench.rotary("Llama-3-8B", 4096, 2, 32, 128);
    bench.cross_entropy("Llama-3-8B", 8192, 128256);
    bench.optimizer("Llama-3-8B", {int64_t{1} << 28});
    bench.experts("Qwen3-30B", 16384, 8, 2048);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
