// The tutorial's networks: forward and backward passes by the kernels that language models use.
//
//   trunk        784 -> hidden -> 3
//   autoencoder  trunk, 3 -> hidden -> 784      mean squared error against the image
//   classifier   trunk, 3 -> 10                 cross entropy against the label
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/megatron/model/model_layout.h"
#include "kernels/kernels.h"
#include "trainer/model/parameters.h"

namespace ferry::mnist {

enum class Task : uint8_t { autoencoder, classifier };

struct NetworkShape {
  Task task = Task::autoencoder;
  int64_t hidden = 64;
  DType dtype = DType::f32;

  int64_t outputs() const;  // numbers for each image
};

/// The tensors, as PyTorch's modules of the tutorial name, shape and order them.
std::vector<ModelTensor> tensors_of(const NetworkShape& shape);

/// y = x·Wᵀ + b, with W as [out, in].
class Linear {
 public:
  Linear() = default;
  Linear(const ParameterSet& parameters, const std::string& name, int64_t in, int64_t out);

  void forward(kernels::Kernels& kernels, int64_t rows, kernels::ConstArray x,
               kernels::Array y) const;
  /// Adds to the parameters' gradients; `dx` may be null.
  void backward(kernels::Kernels& kernels, int64_t rows, kernels::ConstArray x,
                kernels::ConstArray dy, kernels::Array dx) const;

  int64_t in() const { return in_; }
  int64_t out() const { return out_; }

 private:
  Parameter weight_, bias_;
  int64_t in_ = 0, out_ = 0;
};

/// One micro-batch: images and labels in the host's memory.
struct ImageBatch {
  std::vector<float> pixels;    // [images, 784]
  std::vector<int32_t> labels;  // of the images

  int64_t rows() const { return static_cast<int64_t>(labels.size()); }
};

/// The passes over micro-batches of at most `rows` images, and the memory that they use.
class Network {
 public:
  /// References must outlive it.
  Network(const NetworkShape& shape, const ParameterSet& parameters, kernels::Kernels& kernels,
          int64_t rows);

  /// What the network makes of the images: [rows, outputs()]. The losses' sum, over elements or
  /// over images, is on its way to *sum, which kernels.wait() lets one read; loss_count() says what
  /// it is to be divided by.
  kernels::ConstArray forward(const ImageBatch& batch, double* sum);
  /// After forward(): adds the gradient of `scale` times the batch's mean loss.
  void backward(const ImageBatch& batch, double scale);
  /// Losses of a micro-batch: one a pixel, or one an image.
  int64_t loss_count(int64_t rows) const {
    return shape_.task == Task::classifier ? rows : rows * shape_.outputs();
  }

 private:
  struct Layer {
    Linear linear;
    bool has_relu = false;  // after it
    kernels::Array sum, output;
  };

  kernels::Array allocate(int64_t elements, kernels::Type type);
  void upload(const ImageBatch& batch);
  void compare_images(int64_t rows, double* sum);
  void compare_labels(int64_t rows, double* sum, const float* weight);

  NetworkShape shape_;
  kernels::Kernels& kernels_;
  kernels::Type type_;
  std::vector<std::shared_ptr<void>> memory_;
  std::vector<Layer> layers_;
  kernels::Array images_, input_, wide_output_, error_, gradient_, next_gradient_;
  int32_t* labels_ = nullptr;
  float *losses_ = nullptr, *weights_ = nullptr;  // by image
  double* loss_ = nullptr;
};

}  // namespace ferry::mnist
