// Collects pieces of optimizer state into one entry a parameter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

class OptimizerEntries {
 public:
  explicit OptimizerEntries(const std::vector<ModelTensor>& tensors) : tensors_(&tensors) {}

  /// Elements [begin, begin + count) of `box` of a model tensor; `extent` starts at the first of
  /// them. `shared` when the item holds more than these: the chunk is then a run even where it
  /// is the whole box. mismatch when one state of a tensor comes in two dtypes.
  void add(std::string_view state, DType dtype, uint32_t tensor, const Box& box, int64_t begin,
           int64_t count, const Extent& extent, bool shared);

  /// Elements [begin, begin + count) of a rank's parameter, whose pieces follow one another;
  /// `extent` starts at the first of them.
  void add(std::string_view state, DType dtype, const LocalParameter& parameter, int64_t begin,
           int64_t count, const Extent& extent);

  /// A chunk of a model tensor, as it is.
  void add(std::string_view state, DType dtype, uint32_t tensor, Chunk chunk);

  /// All entries, in the order of the model's tensors. mismatch when one is not complete.
  std::vector<Entry> take();

 private:
  struct State {
    std::string name;
    std::vector<DType> dtypes;  // one a model tensor, of its chunks
    std::vector<std::vector<Chunk>> chunks;
  };
  std::vector<Chunk>& chunks(std::string_view name, DType dtype, uint32_t tensor);

  const std::vector<ModelTensor>* tensors_;
  std::vector<State> states_;
};

}  // namespace ferry
