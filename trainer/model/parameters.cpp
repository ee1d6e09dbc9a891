#include "trainer/model/parameters.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "trainer/model/float8/float8_linear.h"

namespace ferry {

using kernels::Array;

namespace {

// Puts `number` behind `prefix` where the name goes on without one.
void put_number(std::string& name, std::string_view prefix, int64_t number) {
  const size_t at = name.find(prefix);
  if (at == std::string::npos || number < 0) return;
  const size_t behind = at + prefix.size();
  std::string_view rest = std::string_view(name).substr(behind);
  if (leading_number(rest, &rest)) return;
  name.insert(behind, fmt::format("{}.", number));
}

}  // namespace

Array Parameter::take_cleared_gradient(kernels::Kernels& kernels) const {
  if (!take_gradient().accumulate) kernels.run(kernels::Clear{.count = elements, .y = gradient});
  return gradient;
}

kernels::Type kernel_type(DType dtype, std::string_view what) {
  switch (dtype) {
    case DType::f32:
      return kernels::Type::f32;
    case DType::bf16:
      return kernels::Type::bf16;
    case DType::f16:
      return kernels::Type::f16;
    default:
      fail(ErrorKind::unsupported, "{}: {} cannot be trained", what, torch_name(dtype));
  }
}

void ParameterSet::add(const std::string& name, const Parameter& parameter) {
  if (!parameters_.emplace(name, parameter).second) {
    fail(ErrorKind::internal, "two parameters are {}", name);
  }
}

Parameter ParameterSet::get(const std::string& name, int64_t elements) const {
  const Parameter found = find(name, elements);
  if (!found) fail(ErrorKind::internal, "the model has no parameter {}", name);
  return found;
}

Parameter ParameterSet::find(const std::string& name, int64_t elements) const {
  const auto found = parameters_.find(name);
  if (found == parameters_.end()) return {};
  used_.insert(name);
  if (found->second.elements != elements) {
    fail(ErrorKind::internal, "parameter {} has {} elements where the model has {}", name,
         found->second.elements, elements);
  }
  return found->second;
}

Float8Linear* ParameterSet::float8(const std::string& name, int64_t in, int64_t out) const {
  return float8_ == nullptr ? nullptr : float8_->add(name, in, out);
}

std::string ParameterSet::first_unused() const {
  std::string first;
  for (const auto& [name, parameter] : parameters_) {
    if (!used_.contains(name) && (first.empty() || name < first)) first = name;
  }
  return first;
}

std::string canonical_name(const ModelLayout& layout, const LocalParameter& parameter) {
  std::string name = layout.tensors()[parameter.shards.front().tensor].name;
  put_number(name, "decoder.layers.", parameter.layer);
  put_number(name, kRoutedExperts, parameter.expert);
  const auto found = find_parameter(name);
  if (!found) return name;
  if (found->half != Half::none) name.resize(name.size() - 2);
  return separate_norm_name(name, *found);
}

}  // namespace ferry
