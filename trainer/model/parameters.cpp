#include "trainer/model/parameters.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "trainer/model/float8/float8_linear.h"

namespace ferry {

using kernels::Array;

namespace {

// Inserts `number` after `prefix` if the name has none there.
void put_number(std::string& name, std::string_view prefix, int64_t number) {
  const size_t at = name.find(prefix);
  if (at == std::string::npos || number < 0) return;
  const size_t end = at + prefix.size();
  std::string_view rest = std::string_view(name).substr(end);
  if (leading_number(rest, &rest)) return;
  name.insert(end, fmt::format("{}.", number));
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

Float8Linear* ParameterSet::float8(const std::string& name, int64_t in, int64_t out,
                                   int64_t weights) const {
  return float8_ == nullptr ? nullptr : float8_->add(name, in, out, weights);
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
  if (found->piece >= 0) name.resize(name.find_last_of("._"));
  return separate_norm_name(name, *found);
}

using kernels::Array;

namespace {

// The initial distribution of a parameter.
struct Start {
  double value = 0, deviation = 0;
};

Start start_of(std::string_view name, const Architecture& a) {
  const auto found = find_parameter(name);
  if (!found) fail(ErrorKind::internal, "{}: unknown initial values", name);
  switch (found->row->first_values) {
    case FirstValues::normal:
      return {0, a.init_std};
    case FirstValues::scaled_normal:
      return {0, a.init_std / std::sqrt(2 * static_cast<double>(a.layers))};
    case FirstValues::zeros:
      return {};
    case FirstValues::ones:
      return {1, 0};
    case FirstValues::xielu_positive:
      return {std::log(std::expm1(0.8)), 0};
    case FirstValues::xielu_negative:
      return {std::log(std::expm1(0.3)), 0};
    case FirstValues::not_trained:
      break;
  }
  fail(ErrorKind::internal, "{}: unknown first values", name);
}

uint64_t key_of(std::string_view name, int64_t seed) {
  uint64_t key = static_cast<uint64_t>(seed);
  for (const char letter : name) key = kernels::mix_key(key, static_cast<unsigned char>(letter));
  return key;
}

// Calls `act` for runs of a region's elements that are contiguous in the whole tensor, with the
// offset there, the offset in the region, and the length.
void for_runs(const Region& region, const std::function<void(int64_t, int64_t, int64_t)>& act) {
  const Dims strides = row_major_strides(region.shape);
  const Box& box = region.shard.box;
  const size_t axes = box.size.size();
  size_t first = axes;  // axes from here on are whole; the previous one may be partial
  int64_t run = 1;
  while (first > 0) {
    run *= box.size[--first];
    if (box.size[first] != region.shape[first]) break;
  }
  const int64_t count = element_count(box.size, region.name);
  if (count == 0) return;
  Dims index(axes, 0);
  for (int64_t done = 0; done < count; done += run) {
    int64_t place = 0;
    for (size_t axis = 0; axis < axes; ++axis) {
      place += (box.offset[axis] + index[axis]) * strides[axis];
    }
    act(place, done, run);
    for (size_t axis = first; axis-- > 0 && ++index[axis] == box.size[axis];) index[axis] = 0;
  }
}

}  // namespace

void initialize(kernels::Kernels& kernels, std::span<const Region> regions,
                const Architecture& architecture, int64_t seed) {
  for (const Region& region : regions) {
    const Start start = start_of(region.name, architecture);
    const Array memory(region.data, kernel_type(region.dtype, region.name));
    if (start.deviation == 0) {
      kernels.run(kernels::FillConstant{.count = region.shard.elements(region.name),
                                        .value = static_cast<float>(start.value),
                                        .y = memory});
      continue;
    }
    const uint64_t key = key_of(region.name, seed);
    for_runs(region, [&](int64_t place, int64_t at, int64_t count) {
      kernels.run(kernels::FillNormal{.count = count,
                                      .key = key,
                                      .first = static_cast<uint64_t>(place),
                                      .deviation = start.deviation,
                                      .y = memory.from(at)});
    });
  }
}

}  // namespace ferry
