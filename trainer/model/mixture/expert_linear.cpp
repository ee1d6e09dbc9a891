#include "trainer/model/mixture/expert_linear.h"

namespace ferry {

using kernels::Array;
using kernels::ConstArray;

ExpertLinear::ExpertLinear(const ParameterSet& parameters, const std::vector<std::string>& names,
                           int64_t in, int64_t out)
    : in_(in), out_(out) {
  for (const std::string& name : names) {
    const Parameter weight = parameters.get(name + ".weight", in * out);
    weights_.push_back(weight.value);
    gradients_.push_back(weight.gradient);
    parameters_.push_back(weight);
  }
}

void ExpertLinear::forward(Pass& pass, int64_t rows, const int64_t* offsets, ConstArray x,
                           Array y) const {
  pass.kernels.run(kernels::GroupedMatmul{.n = out_,
                                          .k = in_,
                                          .rows = rows,
                                          .offsets = offsets,
                                          .a = x,
                                          .b = weights_,
                                          .c = y,
                                          .b_transposed = true});
}

void ExpertLinear::backward(Pass& pass, int64_t rows, const int64_t* offsets, ConstArray x,
                            ConstArray dy, Array dx) const {
  // Experts of a layer have their gradients together, those without rows as well.
  bool accumulate = true;
  for (const Parameter& weight : parameters_) accumulate = weight.take_gradient().accumulate;
  pass.kernels.run(kernels::GroupedMatmulGradient{.m = out_,
                                                  .n = in_,
                                                  .rows = rows,
                                                  .offsets = offsets,
                                                  .a = dy,
                                                  .b = x,
                                                  .c = gradients_,
                                                  .accumulate = accumulate});
  pass.kernels.run(kernels::GroupedMatmul{
      .n = in_, .k = out_, .rows = rows, .offsets = offsets, .a = dy, .b = weights_, .c = dx});
}

}  // namespace ferry
