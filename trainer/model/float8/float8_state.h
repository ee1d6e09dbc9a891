// The linear layers that compute in FP8, the FP8 copies of their weights, and the state of delayed
// scaling.
//
// Each tensor has its own scale: with current scaling from its present values, with delayed scaling
// from those of previous steps. Scales change only at the end of a step, so they are the same for
// all of its micro-batches and nothing depends on the pipeline's order. The first step of a linear
// layer without a history uses current scales either way.
//
// Source: Transformer Engine pytorch/quantization.py (FP8GlobalStateManager), whose histories count
// micro-batches; megatron/core/fp8_utils.py.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "trainer/communicator/communicator.h"

namespace ferry {

class Float8Linear;

struct Float8Options {
  kernels::Float8 gradients = kernels::Float8::e5m2;  // other tensors are e4m3
  bool is_delayed = true;
  int64_t history_length = 1;
  bool takes_newest = true;  // false: the maximum of the history
  int64_t margin = 0;
  bool weight_gradients = true;  // false: weight gradients in the model's type
  bool experts = true;           // false: routed experts in the model's type
  int64_t layers = 0;            // of the decoder
  int64_t prediction_layers = 0;
  int64_t first_layer = 0, end_layer = 0;  // decoder layers in FP8
};

/// The tensors of a linear layer: input, weight, gradient of the output. All experts of a layer are
/// one: what goes to them, and their weights, have one scale with delayed scaling.
enum class Float8Tensor : uint8_t { input, weight, gradient };
constexpr int64_t kFloat8Tensors = 3;

class Float8State {
 public:
  explicit Float8State(const Float8Options& options);
  ~Float8State();
  Float8State(const Float8State&) = delete;
  Float8State& operator=(const Float8State&) = delete;

  /// The FP8 form of a linear layer, or of as many experts' (`weights`), named without ".weight"
  /// and an expert's number; null if it does not use FP8. Owned by this object. invalid, with the
  /// numbers, if its sizes do not fit.
  Float8Linear* add(const std::string& name, int64_t in, int64_t out, int64_t weights);
  /// Allocates memory once all layers were added.
  void allocate(kernels::Kernels& kernels);
  /// Bytes that allocate() takes.
  int64_t bytes() const;

  const Float8Options& options() const noexcept { return options_; }
  /// Whether the scales of linear layer `index` are computed from present values.
  bool is_current(int64_t index) const {
    return !options_.is_delayed || is_new_[static_cast<size_t>(index)];
  }

  // The scale of a tensor of linear layer `index`, with delayed scaling.
  const kernels::Float8Scale* scale(Float8Tensor tensor, int64_t index) const;
  /// Null without delayed scaling.
  float* maximum(Float8Tensor tensor, int64_t index) const;

  /// Called at the end of a step by all ranks of a pipeline stage, which share their maxima.
  void end_step(kernels::Kernels& kernels, Communicator& stage);

  /// The state of delayed scaling as an array over the whole model: numbers of this rank's linear
  /// layers, zeros for others (see names()). Waits for the kernels.
  std::vector<double> numbers(kernels::Kernels& kernels) const;
  /// Restores the sum of all ranks' numbers(). Linear layers of which anything is missing start
  /// without a history.
  void set_numbers(kernels::Kernels& kernels, std::span<const double> numbers);
  /// By names(): 1 for this rank's linear layers without a history, otherwise 0.
  std::vector<double> without_history() const;

  /// Names of the linear layers that a model may have, in the order of numbers(). Each has, for
  /// each of its kFloat8Tensors, 2 + history_length numbers: 1 if the tensor is known, its scale,
  /// its history.
  const std::vector<std::string>& names() const noexcept { return names_; }
  int64_t numbers_of_tensor() const { return 2 + options_.history_length; }

 private:
  int64_t weights() const;
  int64_t tensors() const { return kFloat8Tensors * static_cast<int64_t>(linears_.size()); }
  int64_t place_of(Float8Tensor tensor, int64_t index) const;
  int64_t forward_tensors() const { return 2 * static_cast<int64_t>(linears_.size()); }
  // The index of entry `age` of a tensor's history; those of gradients come last.
  int64_t history_place(int64_t place, int64_t age) const;

  Float8Options options_;
  std::vector<std::string> names_;
  std::list<Float8Linear> linears_;
  std::vector<std::string> linear_names_;
  std::shared_ptr<void> codes_, memory_;
  float* maxima_ = nullptr;                 // [tensors]
  float* history_ = nullptr;                // [history_length, forward tensors], then gradients
  kernels::Float8Scale* scales_ = nullptr;  // [tensors]
  std::vector<bool> is_new_;                // of linear layers: no history yet
};

}  // namespace ferry
