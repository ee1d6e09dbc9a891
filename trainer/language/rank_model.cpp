#include "trainer/language/rank_model.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "ckpt/megatron/state/norm_names.h"
#include "convert/arguments/arguments.h"
#include "convert/model/model_tensors.h"

namespace ferry {

namespace {

constexpr const char* kPath = "the arguments";  // for messages

// Rejects tensors of a checkpoint that the arguments do not imply: they would not be loaded.
void check_all_used(const ParameterSet& parameters, const std::string& path) {
  const std::string unused = parameters.first_unused();
  if (unused.empty()) return;
  fail(ErrorKind::mismatch,
       "{} has tensor {}, which a model with these arguments does not have; give the arguments of "
       "the run that saved it (--qk-layernorm, --add-qkv-bias, ...)",
       path, unused);
}

// Rejects parameters that the arguments imply and a checkpoint lacks, or has in another size.
[[noreturn]] void fail_other_model(const std::string& path, const std::string& problem) {
  fail(ErrorKind::mismatch,
       "{} is not from a model with these arguments ({}); give the arguments of the run that saved "
       "it, or --use-checkpoint-args",
       path, problem);
}

// Stacked and separate, since files differ in whether they stack layers, experts and gated
// projections.
std::string stacked_name(std::string_view stored) {
  std::string name = global_name(stored, true).name;
  for (const std::string_view half : {".weight_w", ".weight_v", ".bias_w", ".bias_v"}) {
    if (name.ends_with(half)) name.resize(name.size() - 2);
  }
  return name;
}

// Norms are named as by one of the two kinds of modules.
std::set<std::string> parameters_of(std::vector<ModelTensor> tensors) {
  name_norms(tensors, false);
  std::set<std::string> names;
  for (const ModelTensor& tensor : tensors) {
    if (!is_buffer(tensor.name)) names.insert(stacked_name(tensor.name));
  }
  return names;
}

// A model whose parameters do not match its arguments would be saved with arguments by which it
// cannot be loaded.
void check_same_parameters(const std::vector<ModelTensor>& described,
                           const std::vector<ModelTensor>& stored, const std::string& path) {
  const std::set<std::string> ours = parameters_of(described), theirs = parameters_of(stored);
  const auto only_in = [](const std::set<std::string>& a, const std::set<std::string>& b) {
    const auto found = std::ranges::find_if(a, [&](const auto& name) { return !b.contains(name); });
    return found == a.end() ? std::string() : *found;
  };
  if (const std::string name = only_in(theirs, ours); !name.empty()) {
    fail_other_model(path, "it has the parameter " + name + ", which they do not");
  }
  if (const std::string name = only_in(ours, theirs); !name.empty()) {
    fail_other_model(path, "it lacks the parameter " + name);
  }
}

std::vector<ModelTensor> described_tensors(const Value& args, DType dtype) {
  std::vector<ModelTensor> tensors = model_tensors(read_arguments(args, kPath).architecture, dtype);
  name_norms(tensors, read_run_arguments(args).transformer_engine);
  return tensors;
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
  std::vector<ModelTensor> described = described_tensors(args.value, dtype);
  if (source == nullptr) return {args.value, std::move(described), kPath};
  std::vector<ModelTensor> tensors;
  for (const StateTensor& tensor : source->state.tensors) {
    if (tensor.role != Role::model) continue;
    tensors.push_back({tensor.name, tensor.shape, is_buffer(tensor.name) ? DType::f32 : dtype});
  }
  check_same_parameters(described, tensors, source->checkpoint.path);
  return {args.value, std::move(tensors), kPath};
}

RankModel::RankModel(const TrainArguments& arguments, const RunModel& model, int rank,
                     RankDevice& device, const std::string& path)
    : grid(GridSizes(model.run()), rank, device.make_communicator),
      memory(model.layout, model.choice, grid, *device.kernels, state_options(arguments, model)),
      float8(arguments.fp8.empty() ? nullptr
                                   : std::make_unique<Float8State>(
                                         float8_options(arguments, model, *device.kernels))),
      pipeline(chunks_of(arguments, model, grid, memory, float8.get(), *device.kernels, path),
               model.architecture, grid, *device.kernels, pipeline_options(arguments)) {
  pipeline.set_watcher(&memory);
}

}  // namespace ferry
