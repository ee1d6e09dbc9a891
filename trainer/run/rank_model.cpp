#include "trainer/run/rank_model.h"

#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/state/norm_names.h"
#include "convert/arguments/arguments.h"
#include "convert/model/model_tensors.h"

namespace ferry {
namespace {

constexpr const char* kPath = "the arguments";  // for messages

// What a checkpoint has and the arguments do not tell of would be left as it is.
void check_all_used(const ParameterSet& parameters, const std::string& path) {
  const std::string unused = parameters.first_unused();
  if (unused.empty()) return;
  fail(ErrorKind::mismatch,
       "{} has tensor {}, which a model of these arguments does not: give the arguments of the "
       "run that saved it (--qk-layernorm, --add-qkv-bias, ...)",
       path, unused);
}

// What the arguments tell of and a checkpoint has not, or in another size.
[[noreturn]] void fail_other_model(const std::string& path, const std::string& problem) {
  fail(ErrorKind::mismatch,
       "{} is not of a model of these arguments ({}): give the arguments of the run that saved it, "
       "or --use-checkpoint-args",
       path, problem);
}

std::vector<ModelChunk> chunks_of(const TrainArguments& arguments, const RunModel& model,
                                  const Grid& grid, const ModelState& memory, Float8State* float8,
                                  kernels::Kernels& kernels, const std::string& path) {
  const ModelOptions options = model_options(arguments, model, grid.place());
  const PipelineLayout& layout = model.layout.pipeline();
  std::vector<ModelChunk> chunks;
  for (int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
    ParameterSet parameters = memory.parameters(chunk);
    parameters.set_float8(float8);
    try {
      chunks.emplace_back(parameters, model.architecture, layout.at(grid.place().stage, chunk),
                          options, kernels);
    } catch (const Error& error) {
      if (path.empty() || error.kind() != ErrorKind::internal) throw;
      fail_other_model(path, error.what());
    }
    check_all_used(parameters, path);
  }
  if (float8 != nullptr) float8->allocate(kernels);
  return chunks;
}

}  // namespace

RunModel model_of(const TrainArguments& arguments, const Source* source) {
  const LoadedValue args = namespace_of(arguments);
  const DType dtype = parameter_dtype(arguments);
  if (source == nullptr) {
    const ReadArguments read = read_arguments(args.value, kPath);
    std::vector<ModelTensor> tensors = model_tensors(read.architecture, dtype);
    name_norms(tensors, read_run_arguments(args.value).transformer_engine);
    return {args.value, std::move(tensors), kPath};
  }
  std::vector<ModelTensor> tensors;
  for (const StateTensor& tensor : source->state.tensors) {
    if (tensor.role != Role::model) continue;
    tensors.push_back({tensor.name, tensor.shape, is_buffer(tensor.name) ? DType::f32 : dtype});
  }
  return {args.value, std::move(tensors), kPath};
}

RankModel::RankModel(const TrainArguments& arguments, const RunModel& model, int rank,
                     RankDevice& device, const std::string& path)
    : grid(GridSizes(model.run()), rank, device.make_communicator),
      memory(model.layout, model.choice, grid, *device.kernels, state_options(arguments, model)),
      float8(arguments.fp8.empty()
                 ? nullptr
                 : std::make_unique<Float8State>(float8_options(arguments, model))),
      pipeline(chunks_of(arguments, model, grid, memory, float8.get(), *device.kernels, path),
               model.architecture, grid, *device.kernels, pipeline_options(arguments)) {
  pipeline.set_watcher(&memory);
}

}  // namespace ferry
