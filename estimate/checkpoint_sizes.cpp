#include "ckpt/base/checked.h"
#include "ckpt/base/dtype.h"
#include "estimate/make_estimate.h"
#include "trainer/arguments/complete.h"
#include "trainer/language/options.h"

namespace ferry {
namespace {

// What the optimizer keeps of a parameter, as checkpoints have it: `masters` bytes of its copy.
int64_t state_bytes(const TrainArguments& a, int64_t masters) {
  const auto kinds = static_cast<int64_t>(optimizer_options(a).state_kinds().size());
  return 4 * kinds + masters;
}

}  // namespace

std::vector<CheckpointSize> checkpoint_sizes(const TrainArguments& a,
                                             const std::vector<ModelTensor>& tensors,
                                             const std::vector<StagePlan>& stages,
                                             int64_t parameters_without_padding,
                                             std::optional<uint64_t> bandwidth_bytes) {
  const DType dtype = parameter_dtype(a);
  const int64_t masters = dtype == DType::f32 ? 0 : 4;
  const bool has_halves = keeps_remainders(a) && !a.dist_ckpt_optim_fully_reshardable;
  int64_t weights = 0, trained = 0;
  for (const ModelTensor& tensor : tensors) {
    const int64_t elements = element_count(tensor.shape, tensor.name);
    weights += checked_multiply(elements, size_bytes(tensor.dtype), "bytes of a checkpoint");
    if (!is_buffer(tensor.name)) trained += elements;
  }
  std::vector<CheckpointSize> sizes;
  const auto add = [&](const char* format, bool has_optimizer, int64_t bytes) {
    sizes.push_back({format, has_optimizer, bytes, {}});
    if (!bandwidth_bytes) return;
    sizes.back().seconds = static_cast<double>(bytes) / static_cast<double>(*bandwidth_bytes);
  };
  add("torch_dist", false, weights);
  add("torch_dist", true, weights + trained * state_bytes(a, has_halves ? 2 : masters));
  if (!stages.empty()) {
    // Each model-parallel rank has a file with all that it holds, norms and the rest of what ranks
    // share included.
    int64_t held = 0;
    const int64_t ranks = a.tensor_model_parallel_size * a.expert_model_parallel_size;
    for (const StagePlan& stage : stages) held += stage.parameter_count * ranks;
    add("torch", false, held * size_bytes(dtype));
    add("torch", true, held * (size_bytes(dtype) + state_bytes(a, masters)));
  }
  add("hf", false, parameters_without_padding * size_bytes(dtype));
  return sizes;
}

}  // namespace ferry
