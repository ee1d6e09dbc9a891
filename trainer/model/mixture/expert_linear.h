// Linear layers of routed experts.
#pragma once

#include <string>
#include <vector>

#include "trainer/model/parameters.h"
#include "trainer/model/pass/pass.h"

namespace ferry {

/// y = x · Wᵀ of the rows of each of a rank's experts, with a weight for each.
class ExpertLinear {
 public:
  ExpertLinear() = default;
  /// `names` of the experts' modules, without ".weight".
  ExpertLinear(const ParameterSet& parameters, const std::vector<std::string>& names, int64_t in,
               int64_t out);

  /// Rows of expert e are [offsets[e], offsets[e + 1]) of `rows`.
  void forward(Pass& pass, int64_t rows, const int64_t* offsets, kernels::ConstArray x,
               kernels::Array y) const;
  /// Adds to the weights' gradients and sets dx.
  void backward(Pass& pass, int64_t rows, const int64_t* offsets, kernels::ConstArray x,
                kernels::ConstArray dy, kernels::Array dx) const;

 private:
  std::vector<kernels::ConstArray> weights_;
  std::vector<Parameter> parameters_;
  std::vector<kernels::Array> gradients_;
  int64_t in_ = 0, out_ = 0;
};

}  // namespace ferry
