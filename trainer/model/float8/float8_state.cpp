#include "trainer/model/float8/float8_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "ckpt/megatron/model/blocks.h"
#include "trainer/model/float8/float8_linear.h"

namespace ferry {

using kernels::Float8;
using kernels::Float8Scale;

namespace {

// The linear modules of a layer. Those of all its experts are one.
std::vector<std::string_view> linear_modules(bool experts) {
  std::vector<std::string_view> modules;
  for (const Block& block : layer_blocks()) {
    for (const ParameterRow& row : block.parameters) {
      const std::string_view module = row.name.substr(0, row.name.rfind('.'));
      const bool is_linear = module.substr(module.rfind('.') + 1).starts_with("linear_");
      if (!is_linear || !row.name.ends_with(".weight") || (row.routed && !experts)) continue;
      modules.push_back(module);
    }
  }
  return modules;
}

}  // namespace

Float8State::Float8State(const Float8Options& options) : options_(options) {
  const auto add = [&](const std::string& layer) {
    for (const std::string_view linear : linear_modules(options_.experts)) {
      names_.push_back(fmt::format("{}.{}", layer, linear));
    }
  };
  for (int64_t layer = options_.first_layer; layer < options_.end_layer; ++layer) {
    add(fmt::format("decoder.layers.{}", layer));
  }
  for (int64_t layer = 0; layer < options_.prediction_layers; ++layer) {
    add(fmt::format("mtp.layers.{}.transformer_layer", layer));
  }
}
Float8State::~Float8State() = default;

Float8Linear* Float8State::add(const std::string& name, int64_t in, int64_t out, int64_t weights) {
  if (std::ranges::count(names_, name) == 0) return nullptr;
  const auto index = static_cast<int64_t>(linears_.size());
  linear_names_.push_back(name);
  is_new_.push_back(true);
  return &linears_.emplace_back(*this, name, index, in, out, weights);
}

void Float8State::allocate(kernels::Kernels& kernels) {
  const int64_t count = tensors();
  int64_t code_bytes = 0;
  for (const Float8Linear& linear : linears_) code_bytes += linear.code_bytes();
  codes_ = kernels.allocate(static_cast<size_t>(code_bytes));
  memory_ = kernels.allocate(static_cast<size_t>(bytes() - code_bytes));
  scales_ = static_cast<Float8Scale*>(memory_.get());
  Float8Scale* const weight_scales = scales_ + count;
  maxima_ = &weight_scales[weights()].inverse;
  history_ = maxima_ + count;
  kernels.run(kernels::FillConstant{
      .count = (count + weights()) * static_cast<int64_t>(sizeof(Float8Scale) / sizeof(float)),
      .value = 1,
      .y = kernels::Array(&scales_->inverse)});
  auto* codes = static_cast<uint8_t*>(codes_.get());
  for (int64_t first = 0; Float8Linear & linear : linears_) {
    linear.set_memory(codes, weight_scales + first);
    codes += linear.code_bytes();
    first += linear.weights();
  }
}

int64_t Float8State::weights() const {
  int64_t count = 0;
  for (const Float8Linear& linear : linears_) count += linear.weights();
  return count;
}

int64_t Float8State::bytes() const {
  int64_t bytes = 0;
  for (const Float8Linear& linear : linears_) bytes += linear.code_bytes();
  const int64_t scales = tensors() + weights();
  const int64_t numbers = tensors() * (1 + options_.history_length);
  return bytes + scales * static_cast<int64_t>(sizeof(Float8Scale)) +
         numbers * static_cast<int64_t>(sizeof(float));
}

int64_t Float8State::place_of(Float8Tensor tensor, int64_t index) const {
  return static_cast<int64_t>(tensor) * static_cast<int64_t>(linears_.size()) + index;
}

int64_t Float8State::history_place(int64_t place, int64_t age) const {
  const int64_t forward = forward_tensors();
  if (place < forward) return age * forward + place;
  return forward * options_.history_length + age * (tensors() - forward) + place - forward;
}

const Float8Scale* Float8State::scale(Float8Tensor tensor, int64_t index) const {
  return scales_ + place_of(tensor, index);
}

float* Float8State::maximum(Float8Tensor tensor, int64_t index) const {
  return options_.is_delayed ? maxima_ + place_of(tensor, index) : nullptr;
}

void Float8State::end_step(kernels::Kernels& kernels, Communicator& stage) {
  if (!options_.is_delayed || linears_.empty()) return;
  stage.wait(stage.all_reduce_max(maxima_, tensors()));
  const int64_t forward = forward_tensors();
  const auto share = static_cast<float>(std::exp2(-static_cast<double>(options_.margin)));
  const auto run = [&](int64_t first, int64_t count, Float8 format) {
    kernels.run(kernels::DelayedScales{.count = count,
                                       .length = options_.history_length,
                                       .format = format,
                                       .share = share,
                                       .takes_newest = options_.takes_newest,
                                       .maximum = maxima_ + first,
                                       .history = history_ + history_place(first, 0),
                                       .scale = scales_ + first});
  };
  run(0, forward, Float8::e4m3);
  run(forward, tensors() - forward, options_.gradients);
  is_new_.assign(is_new_.size(), false);
}

std::vector<double> Float8State::numbers(kernels::Kernels& kernels) const {
  const int64_t size = numbers_of_tensor(), count = tensors();
  std::vector<double> numbers(names_.size() * static_cast<size_t>(kFloat8Tensors * size));
  if (!options_.is_delayed || linears_.empty()) return numbers;
  std::vector<Float8Scale> scales(static_cast<size_t>(count));
  std::vector<float> history(static_cast<size_t>(count * options_.history_length));
  kernels.download(scales_, scales.data(), scales.size() * sizeof(Float8Scale));
  kernels.download(history_, history.data(), history.size() * sizeof(float));
  kernels.wait();
  for (size_t index = 0; index < linear_names_.size(); ++index) {
    if (is_new_[index]) continue;
    const auto at = std::ranges::find(names_, linear_names_[index]) - names_.begin();
    for (int64_t tensor = 0; tensor < kFloat8Tensors; ++tensor) {
      const int64_t place =
          place_of(static_cast<Float8Tensor>(tensor), static_cast<int64_t>(index));
      double* const to = numbers.data() + (at * kFloat8Tensors + tensor) * size;
      to[0] = 1;
      to[1] = scales[static_cast<size_t>(place)].factor;
      for (int64_t age = 0; age < options_.history_length; ++age) {
        to[2 + age] = history[static_cast<size_t>(history_place(place, age))];
      }
    }
  }
  return numbers;
}

void Float8State::set_numbers(kernels::Kernels& kernels, std::span<const double> numbers) {
  if (!options_.is_delayed || linears_.empty()) return;
  const int64_t size = numbers_of_tensor(), count = tensors();
  std::vector<Float8Scale> scales(static_cast<size_t>(count), Float8Scale{1, 1});
  std::vector<float> history(static_cast<size_t>(count * options_.history_length));
  for (size_t index = 0; index < linear_names_.size(); ++index) {
    const auto at = std::ranges::find(names_, linear_names_[index]) - names_.begin();
    const double* const own = numbers.data() + at * kFloat8Tensors * size;
    is_new_[index] = false;
    for (int64_t tensor = 0; tensor < kFloat8Tensors; ++tensor) {
      if (own[tensor * size] == 0) is_new_[index] = true;
    }
    if (is_new_[index]) continue;
    for (int64_t tensor = 0; tensor < kFloat8Tensors; ++tensor) {
      const int64_t place =
          place_of(static_cast<Float8Tensor>(tensor), static_cast<int64_t>(index));
      const double* const from = own + tensor * size;
      const auto factor = static_cast<float>(from[1]);
      scales[static_cast<size_t>(place)] = {1 / factor, factor};
      for (int64_t age = 0; age < options_.history_length; ++age) {
        history[static_cast<size_t>(history_place(place, age))] = static_cast<float>(from[2 + age]);
      }
    }
  }
  kernels.upload(scales.data(), scales_, scales.size() * sizeof(Float8Scale));
  kernels.upload(history.data(), history_, history.size() * sizeof(float));
}

std::vector<double> Float8State::without_history() const {
  std::vector<double> are_new(names_.size());
  for (size_t index = 0; index < linear_names_.size(); ++index) {
    if (!options_.is_delayed || !is_new_[index]) continue;
    are_new[static_cast<size_t>(std::ranges::find(names_, linear_names_[index]) - names_.begin())] =
        1;
  }
  return are_new;
}

}  // namespace ferry
