#include "network.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "images.h"

namespace ferry::mnist {

using kernels::Array;
using kernels::ConstArray;
using kernels::Type;

namespace {

constexpr int64_t kLatent = 3;

struct LinearShape {
  std::string name;
  int64_t in, out;
  bool has_relu;
};

std::vector<LinearShape> linears_of(const NetworkShape& shape) {
  std::vector<LinearShape> linears{{"linear1", kPixels, shape.hidden, true},
                                   {"linear2", shape.hidden, kLatent, false}};
  if (shape.task == Task::classifier) {
    linears.push_back({"digit_classifier", kLatent, kDigits, false});
  } else {
    linears.push_back({"linear3", kLatent, shape.hidden, true});
    linears.push_back({"linear4", shape.hidden, kPixels, false});
  }
  return linears;
}

}  // namespace

int64_t NetworkShape::outputs() const { return task == Task::classifier ? kDigits : kPixels; }

std::vector<ModelTensor> tensors_of(const NetworkShape& shape) {
  std::vector<ModelTensor> tensors;
  for (const LinearShape& linear : linears_of(shape)) {
    tensors.push_back({linear.name + ".weight", {linear.out, linear.in}, shape.dtype});
    tensors.push_back({linear.name + ".bias", {linear.out}, shape.dtype});
  }
  return tensors;
}

Linear::Linear(const ParameterSet& parameters, const std::string& name, int64_t in, int64_t out)
    : weight_(parameters.get(name + ".weight", in * out)),
      bias_(parameters.get(name + ".bias", out)),
      in_(in),
      out_(out) {}

void Linear::forward(kernels::Kernels& kernels, int64_t rows, ConstArray x, Array y) const {
  kernels.run(kernels::Matmul{.m = rows,
                              .n = out_,
                              .k = in_,
                              .a = x,
                              .b = weight_.value,
                              .c = y,
                              .b_transposed = true,
                              .bias = bias_.value});
}

void Linear::backward(kernels::Kernels& kernels, int64_t rows, ConstArray x, ConstArray dy,
                      Array dx) const {
  const kernels::Gradient dw = weight_.take_gradient();
  kernels.run(kernels::Matmul{.m = out_,
                              .n = in_,
                              .k = rows,
                              .a = dy,
                              .b = x,
                              .c = dw.array,
                              .a_transposed = true,
                              .accumulate = dw.accumulate});
  kernels.run(kernels::SumRows{.rows = rows, .width = out_, .x = dy, .sum = bias_.take_gradient()});
  if (!dx) return;
  kernels.run(
      kernels::Matmul{.m = rows, .n = in_, .k = out_, .a = dy, .b = weight_.value, .c = dx});
}

Network::Network(const NetworkShape& shape, const ParameterSet& parameters,
                 kernels::Kernels& kernels, int64_t rows)
    : shape_(shape), kernels_(kernels), type_(kernel_type(shape.dtype, "the network")) {
  int64_t widest = 1;
  for (const LinearShape& linear : linears_of(shape)) {
    Layer layer{Linear(parameters, linear.name, linear.in, linear.out), linear.has_relu, {}, {}};
    layer.sum = layer.output = allocate(rows * linear.out, type_);
    if (linear.has_relu) layer.output = allocate(rows * linear.out, type_);
    layers_.push_back(std::move(layer));
    widest = std::max({widest, linear.in, linear.out});
  }
  images_ = allocate(rows * kPixels, Type::f32);
  input_ = type_ == Type::f32 ? images_ : allocate(rows * kPixels, type_);
  error_ = allocate(rows * shape.outputs(), Type::f32);
  if (type_ != Type::f32) wide_output_ = allocate(rows * shape.outputs(), Type::f32);
  gradient_ = allocate(rows * widest, type_);
  next_gradient_ = allocate(rows * widest, type_);
  labels_ = static_cast<int32_t*>(allocate(rows, Type::f32).data);
  losses_ = static_cast<float*>(allocate(rows, Type::f32).data);
  weights_ = static_cast<float*>(allocate(rows, Type::f32).data);
  loss_ = static_cast<double*>(allocate(2, Type::f32).data);
}

Array Network::allocate(int64_t elements, Type type) {
  memory_.push_back(kernels_.allocate(static_cast<size_t>(elements * size_bytes(type))));
  return {memory_.back().get(), type};
}

void Network::upload(const ImageBatch& batch) {
  kernels_.upload(batch.pixels.data(), images_.data, batch.pixels.size() * sizeof(float));
  kernels_.upload(batch.labels.data(), labels_, batch.labels.size() * sizeof(int32_t));
  if (type_ == Type::f32) return;
  kernels_.run(kernels::Copy{.count = batch.rows() * kPixels, .x = images_, .y = input_});
}

ConstArray Network::forward(const ImageBatch& batch, double* sum) {
  upload(batch);
  const int64_t rows = batch.rows();
  ConstArray x = input_;
  for (const Layer& layer : layers_) {
    layer.linear.forward(kernels_, rows, x, layer.sum);
    if (layer.has_relu) {
      kernels_.run(kernels::ActivationForward{.kind = kernels::Activation::relu,
                                              .rows = rows,
                                              .width = layer.linear.out(),
                                              .x = layer.sum,
                                              .y = layer.output});
    }
    x = layer.output;
  }
  kernels_.run(kernels::Clear{.count = 2, .y = Array(loss_, Type::f32)});
  if (shape_.task == Task::classifier) {
    compare_labels(rows, sum, nullptr);
  } else {
    compare_images(rows, sum);
  }
  return x;
}

// error_ becomes the difference.
void Network::compare_images(int64_t rows, double* sum) {
  const int64_t count = rows * kPixels;
  kernels_.run(kernels::Scale{.count = count, .x = images_, .y = error_, .factor = -1});
  const Array output = type_ == Type::f32 ? layers_.back().output : wide_output_;
  if (type_ != Type::f32) {
    kernels_.run(kernels::Copy{.count = count, .x = layers_.back().output, .y = output});
  }
  kernels_.run(kernels::Add{.count = count, .a = error_, .b = output, .y = error_});
  kernels_.run(kernels::SumOfSquares{.count = count, .x = error_, .sum = loss_});
  kernels_.download(loss_, sum, sizeof *sum);
}

void Network::compare_labels(int64_t rows, double* sum, const float* weight) {
  kernels_.run(kernels::CrossEntropy{.rows = rows,
                                     .columns = kDigits,
                                     .logits = layers_.back().output,
                                     .targets = labels_,
                                     .weight = weight,
                                     .loss = losses_,
                                     .dlogits = weight != nullptr ? gradient_ : Array()});
  if (sum == nullptr) return;
  kernels_.run(kernels::WeightedSum{.count = rows, .x = losses_, .weight = nullptr, .sum = loss_});
  kernels_.download(loss_, sum, sizeof *sum);
}

void Network::backward(const ImageBatch& batch, double scale) {
  const int64_t rows = batch.rows();
  if (shape_.task == Task::classifier) {
    kernels_.run(
        kernels::FillConstant{.count = rows,
                              .value = static_cast<float>(scale / static_cast<double>(rows)),
                              .y = Array(weights_)});
    compare_labels(rows, nullptr, weights_);
  } else {
    const int64_t count = rows * kPixels;
    const auto factor = static_cast<float>(2 * scale / static_cast<double>(count));
    kernels_.run(kernels::Scale{.count = count, .x = error_, .y = error_, .factor = factor});
    kernels_.run(kernels::Copy{.count = count, .x = error_, .y = gradient_});
  }
  for (size_t i = layers_.size(); i-- > 0;) {
    const Layer& layer = layers_[i];
    if (layer.has_relu) {
      kernels_.run(kernels::ActivationBackward{.kind = kernels::Activation::relu,
                                               .rows = rows,
                                               .width = layer.linear.out(),
                                               .x = layer.sum,
                                               .dy = gradient_,
                                               .dx = gradient_});
    }
    const ConstArray x = i == 0 ? ConstArray(input_) : ConstArray(layers_[i - 1].output);
    layer.linear.backward(kernels_, rows, x, gradient_, i == 0 ? Array() : next_gradient_);
    std::swap(gradient_, next_gradient_);
  }
}

}  // namespace ferry::mnist
