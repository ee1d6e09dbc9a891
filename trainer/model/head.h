// The final norm, the output layer and the loss, and the layers that predict tokens further on.
#pragma once

#include "trainer/model/output.h"
#include "trainer/model/prediction.h"

namespace ferry {

class Head {
 public:
  struct Saved {
    NormLayer::Saved norm;
    kernels::Array normed;   // where prediction layers start from it
    kernels::Array dnormed;  // gradient of the norm's output, [own rows, hidden]
    Predictions::Saved predictions;
  };

  Head() = default;
  Head(const ParameterSet& parameters, const Architecture& architecture,
       const ModelOptions& options, kernels::Kernels& kernels);

  Saved forward(Pass& pass, const MicroBatch& batch, kernels::ConstArray x) const;
  /// dx is set.
  void backward(Pass& pass, const MicroBatch& batch, const Saved& saved, kernels::ConstArray x,
                kernels::Array dx) const;

  const Predictions& predictions() const noexcept { return predictions_; }

 private:
  NormLayer norm_;
  OutputLayer output_;
  Predictions predictions_;
  int64_t hidden_ = 0;
};

}  // namespace ferry
