#include "trainer/model/initial_weights.h"

#include <cmath>
#include <functional>
#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "trainer/model/parameters.h"

namespace ferry {

using kernels::Array;

namespace {

// What a parameter begins as.
struct Start {
  double value = 0, deviation = 0;
};

Start start_of(std::string_view name, const Architecture& a) {
  const auto found = find_parameter(name);
  if (!found)
    fail(ErrorKind::internal, "{}: the values that training starts from are not known", name);
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
  }
  fail(ErrorKind::internal, "{}: unknown first values", name);
}

uint64_t key_of(std::string_view name, int64_t seed) {
  uint64_t key = static_cast<uint64_t>(seed);
  for (const char letter : name) key = kernels::mix_key(key, static_cast<unsigned char>(letter));
  return key;
}

// Calls `act` with runs of a region's elements that follow one another in the whole tensor:
// the place of the first there, that in the region, and how many.
void for_runs(const Region& region, const std::function<void(int64_t, int64_t, int64_t)>& act) {
  const Dims strides = row_major_strides(region.shape);
  const Box& box = region.shard.box;
  const size_t axes = box.size.size();
  size_t first = axes;  // axes from here on are whole, but for the one before
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

void initialise(kernels::Kernels& kernels, std::span<const Region> regions,
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
