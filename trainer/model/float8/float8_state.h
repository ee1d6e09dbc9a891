// Linear layers that multiply 8-bit numbers: which they are, their weights' copies in that form,
// and what delayed scaling knows of their tensors.
//
// A scale is a tensor's own: with current scaling of what it holds at the moment, with delayed
// scaling of what it held in the steps before. Scales change at the end of a step alone, so that
// they are the same for all of its micro-batches and nothing depends on the pipeline's order. In
// the first step of all, which has none before it, scales are current ones either way.
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
  kernels::Float8 gradients = kernels::Float8::e5m2;  // all other tensors are e4m3
  bool is_delayed = true;
  int64_t history_length = 1;
  bool takes_newest = true;  // false: the greatest of the history
  int64_t margin = 0;
  bool weight_gradients = true;  // false: they are computed in the model's type
  int64_t layers = 0;            // of the decoder
  int64_t prediction_layers = 0;
  int64_t first_layer = 0, end_layer = 0;  // of the decoder's: those that it is about
};

/// What is known of a linear layer: of its input, its weight, its output's gradient.
enum class Float8Tensor : uint8_t { input, weight, gradient };
constexpr int64_t kFloat8Tensors = 3;

class Float8State {
 public:
  explicit Float8State(const Float8Options& options);
  ~Float8State();
  Float8State(const Float8State&) = delete;
  Float8State& operator=(const Float8State&) = delete;

  /// For a linear layer of the model, named without ".weight": null where it stays as it is. It
  /// lives as long as this. invalid, with the numbers, where its sizes do not fit.
  Float8Linear* add(const std::string& name, int64_t in, int64_t out);
  /// Once all were added: takes their memory.
  void allocate(kernels::Kernels& kernels);
  /// What allocate() takes.
  int64_t bytes() const;

  const Float8Options& options() const noexcept { return options_; }
  /// Whether scales follow from what tensors hold now.
  bool is_current() const noexcept { return !options_.is_delayed || is_new_; }

  // Of the tensor of the linear `index`, with delayed scaling.
  const kernels::Float8Scale* scale(Float8Tensor tensor, int64_t index) const;
  /// Null without: nothing is remembered.
  float* maximum(Float8Tensor tensor, int64_t index) const;

  /// At the end of a step, by all ranks of a pipeline stage, which share what they know.
  void end_step(kernels::Kernels& kernels, Communicator& stage);

  /// What delayed scaling knows, as numbers of a model's: those of the tensors of the linears of
  /// this rank, zeros for others (see names()). Waits for the kernels.
  std::vector<double> numbers(kernels::Kernels& kernels) const;
  /// Takes numbers that all ranks' numbers() summed up to. Whatever is missing begins anew, with
  /// all else of the rank.
  void set_numbers(kernels::Kernels& kernels, std::span<const double> numbers);

  /// Linear layers that a model may have, by name, in the order of numbers(): each has
  /// kFloat8Tensors times 2 + history_length of them: 1 where the tensor is known, its scale, its
  /// history.
  const std::vector<std::string>& names() const noexcept { return names_; }
  int64_t numbers_of_tensor() const { return 2 + options_.history_length; }

 private:
  int64_t tensors() const { return kFloat8Tensors * static_cast<int64_t>(linears_.size()); }
  int64_t place_of(Float8Tensor tensor, int64_t index) const;
  int64_t forward_tensors() const { return 2 * static_cast<int64_t>(linears_.size()); }
  // Where number `age` of a tensor's history lies: those of gradients lie behind all others.
  int64_t history_place(int64_t place, int64_t age) const;

  Float8Options options_;
  std::vector<std::string> names_;
  std::list<Float8Linear> linears_;
  std::vector<std::string> linear_names_;
  std::shared_ptr<void> codes_, memory_;
  float* maxima_ = nullptr;                 // [tensors]
  float* history_ = nullptr;                // [history_length, forward tensors], then gradients
  kernels::Float8Scale* scales_ = nullptr;  // [tensors]
  bool is_new_ = true;                      // nothing is known of any tensor
};

}  // namespace ferry
