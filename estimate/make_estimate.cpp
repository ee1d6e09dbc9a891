#include "estimate/make_estimate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/megatron/state/vocabulary.h"
#include "convert/arguments/argument_table.h"
#include "convert/arguments/arguments.h"
#include "estimate/layouts.h"
#include "trainer/arguments/complete.h"
#include "trainer/language/options.h"
#include "trainer/log/log_lines.h"
#include "trainer/schedule/batch_size.h"
#include "trainer/schedule/flops.h"
#include "trainer/schedule/learning_rate.h"

namespace ferry {
namespace {

constexpr double kTokensAStep = 1 << 20;                      // where nobody says it
constexpr std::string_view kNamelessLaunch = "options.gpus";  // as option() writes it

// Rows of the vocabulary that no token has.
int64_t padding_elements(const TrainArguments& a, const std::vector<ModelTensor>& tensors,
                         int64_t vocabulary) {
  if (vocabulary <= 0) return 0;
  int64_t elements = 0;
  for (const ModelTensor& tensor : tensors) {
    const bool has_rows = tensor.name.ends_with("word_embeddings.weight") ||
                          tensor.name.ends_with("output_layer.weight");
    if (has_rows && tensor.shape[0] > vocabulary) {
      elements += (tensor.shape[0] - vocabulary) * *a.hidden_size;
    }
  }
  return elements;
}

ParameterCounts count_parameters(const TrainArguments& a, const std::vector<ModelTensor>& tensors,
                                 int64_t vocabulary) {
  ParameterCounts counts;
  const int64_t experts = a.num_experts.value_or(1);
  for (const ModelTensor& tensor : tensors) {
    if (is_buffer(tensor.name)) continue;
    const int64_t elements = element_count(tensor.shape, tensor.name);
    counts.total += elements;
    const bool is_routed = tensor.name.find(".experts.") != std::string::npos;
    counts.active += is_routed ? elements / experts * a.moe_router_topk : elements;
  }
  const int64_t padding = padding_elements(a, tensors, vocabulary);
  counts.without_padding = counts.total - padding;
  counts.active -= padding;
  return counts;
}

// What is described, with what the arguments say: they may be other than those of that model.
Architecture architecture_of(const TrainArguments& a,
                             const std::optional<Architecture>& described) {
  const LoadedValue args = namespace_of(a);
  const Architecture said = read_arguments(args.value, "the arguments").architecture;
  if (!described) return said;
  Architecture architecture = *described;
  for (const Argument& argument : plain_arguments()) {
    const bool is_said = std::ranges::any_of(argument_rows(), [&](const ArgumentRow& row) {
      return row.name() == argument.name && is_of_size(row);
    });
    if (!is_said) continue;
    std::visit([&](auto member) { architecture.*member = said.*member; }, argument.member);
  }
  architecture.groups = said.groups;
  architecture.tied = said.tied;
  architecture.norm = said.norm;
  if (described->activation != Activation::tanh_geglu) architecture.activation = said.activation;
  if (!described->is_hybrid()) architecture.moe_layers = said.moe_layers;
  return architecture;
}

// Operations of forward and backward passes. Megatron-LM's formula is for layers of attention and
// an MLP.
double operations_of_token(const TrainArguments& a, const Architecture& architecture,
                           const std::vector<ModelTensor>& tensors, int64_t active,
                           std::vector<std::string>& notes) {
  if (architecture.any_linear() || architecture.is_hybrid()) {
    constexpr double kOfParameter = 6;  // a product and a sum, in three passes
    notes.emplace_back(
        "operations are six for each parameter that a token passes: scores of attention and states "
        "of other layers are left out");
    const auto is_embedding = [](const ModelTensor& tensor) {
      return tensor.name == "embedding.word_embeddings.weight";
    };
    const auto embedding = std::ranges::find_if(tensors, is_embedding);
    const int64_t looked_up = embedding == tensors.end() || architecture.tied
                                  ? 0
                                  : element_count(embedding->shape, embedding->name);
    return kOfParameter * static_cast<double>(active - looked_up);
  }
  if (architecture.index_heads > 0) {
    notes.emplace_back(
        "operations are counted without those of indexers, and as if each token attended to all "
        "before it");
  }
  if (architecture.differs_by_layer()) {
    notes.emplace_back(
        "operations are counted as if all layers had the sizes of those with a window");
  }
  return floating_point_operations(a, 1) / static_cast<double>(*a.seq_length);
}

std::vector<RecomputeChoice> recompute_choices(const TrainArguments& arguments,
                                               const RunModel& model) {
  std::vector<RecomputeChoice> choices;
  const auto add = [&](const std::string& name, const auto& set) {
    TrainArguments other = arguments;
    set(other);
    const StagePlan most = largest(memory_plan(other, model, device_kind(other)));
    choices.push_back({name, most.activations, most.bytes()});
  };
  const auto clear = [](TrainArguments& a) {
    a.recompute_granularity.clear();
    a.recompute_method.clear();
    a.recompute_num_layers.reset();
    a.recompute_modules.clear();
  };
  add("none", clear);
  std::vector<std::string> modules = {"layernorm", "mlp"};
  if (arguments.num_experts) modules.emplace_back("moe_act");
  add(fmt::format("selective ({})", fmt::join(modules, ", ")), [&](TrainArguments& a) {
    clear(a);
    a.recompute_granularity = "selective";
    a.recompute_modules = modules;
  });
  add("full, each layer", [&](TrainArguments& a) {
    clear(a);
    a.recompute_granularity = "full";
    a.recompute_method = "uniform";
    a.recompute_num_layers = 1;
  });
  return choices;
}

// Samples that `iterations` iterations consume.
int64_t samples_after(const BatchSizes& sizes, int64_t iterations) {
  if (sizes.steps.size() == 1) {
    return checked_multiply(iterations, batch_at(sizes, 0).running, "consumed samples");
  }
  int64_t samples = 0;
  for (int64_t i = 0; i < iterations; ++i) samples += batch_at(sizes, samples).running;
  return samples;
}

TrainingFigures training_figures(const TrainArguments& a, double operations,
                                 const std::vector<int64_t>& at) {
  const BatchSizes sizes = batch_sizes(a);
  TrainingFigures figures;
  figures.iterations = a.train_iters ? *a.train_iters : iterations_for(sizes, *a.train_samples);
  const IterationBatch batch = batch_at(sizes, sizes.steps.back().from_samples);
  figures.global_batch_size = batch.global;
  figures.micro_batches = batch.micro_batches;
  const DataSizes data = data_sizes(a);
  figures.train_samples = data.train;
  figures.validation_samples = data.validation;
  figures.test_samples = data.test;
  figures.tokens = checked_multiply(data.train, *a.seq_length, "tokens of a run");
  figures.operations = operations * static_cast<double>(figures.tokens);
  if (at.empty()) return figures;
  const Schedule schedule = schedule_of(a);
  for (const int64_t iteration : at) {
    const int64_t samples = samples_after(sizes, iteration);
    figures.rates.push_back({iteration, samples, learning_rate(schedule, samples)});
  }
  return figures;
}

StageMemory memory_of(const StagePlan& plan) {
  return {.stage = plan.stage,
          .parameter_count = plan.parameter_count,
          .parameters = plan.parameter_bytes(),
          .gradients = plan.state.gradients,
          .optimizer = plan.state.optimizer,
          .activations = plan.activations,
          .staging = plan.staging,
          .total = plan.bytes()};
}

void check_options(const EstimateOptions& options) {
  if (!options.gpu_memory_bytes || options.gpus > 0) return;
  fail(ErrorKind::invalid, "{} needs {}, the number of GPUs to find layouts for",
       option("gpu_memory_bytes"), option("gpus"));
}

}  // namespace

std::string gpu_of(const EstimateOptions& options) {
  constexpr uint64_t kMostOfAnH100 = 96'000'000'000;
  if (!options.gpu.empty()) return options.gpu;
  return options.gpu_memory_bytes && *options.gpu_memory_bytes <= kMostOfAnH100 ? "h100" : "h200";
}

kernels::DeviceKind device_kind(const TrainArguments& arguments) {
  return arguments.device == "cpu" ? kernels::DeviceKind::host : kernels::DeviceKind::gpu;
}

const StagePlan& largest(const std::vector<StagePlan>& stages) {
  return *std::max_element(stages.begin(), stages.end(),
                           [](const auto& a, const auto& b) { return a.bytes() < b.bytes(); });
}

TrainArguments completed_for(const EstimateSource& source, int64_t ranks,
                             std::vector<std::string>& notes) {
  TrainArguments a = source.arguments;
  if (ranks > 0) a.data_parallel_size = 0;
  if (!a.micro_batch_size) a.micro_batch_size = 1;
  if (!a.max_position_embeddings) a.max_position_embeddings = a.seq_length;
  // What the trainer's checks want, and no figure here depends on.
  if (!a.train_iters && !a.train_samples) a.train_iters = 1;
  if (!a.lr) a.lr = 1;
  if (!a.global_batch_size && ranks > 0 && a.seq_length) {
    const int64_t least = *a.micro_batch_size * ranks;
    const auto sequences = static_cast<int64_t>(
        kTokensAStep / static_cast<double>(std::max<int64_t>(*a.seq_length, 1)));
    a.global_batch_size = (std::max<int64_t>(sequences, 1) + least - 1) / least * least;
    notes.push_back(fmt::format("--global-batch-size {} is taken: about a million tokens a step",
                                *a.global_batch_size));
  }
  const Launch launch{ranks > 0 ? std::string(kNamelessLaunch) : "", std::max<int64_t>(ranks, 1),
                      0};
  complete_arguments(a, launch, notes);
  complete_vocabulary(a, a.vocab_size.value_or(0));
  return a;
}

Estimate make_estimate(EstimateSource source, const EstimateOptions& options) {
  check_options(options);
  Estimate estimate;
  estimate.what = source.what;
  estimate.notes = source.notes;
  estimate.arguments =
      std::make_shared<const TrainArguments>(completed_for(source, options.gpus, estimate.notes));
  const TrainArguments& a = *estimate.arguments;
  const Architecture architecture = architecture_of(a, source.model);
  const std::vector<ModelTensor> tensors = model_tensors(architecture, parameter_dtype(a));
  estimate.parameters = count_parameters(a, tensors, source.vocabulary);
  estimate.operations_per_token =
      operations_of_token(a, architecture, tensors, estimate.parameters.active, estimate.notes);
  std::vector<StagePlan> stages;
  try {
    if (const auto reasons = untrainable_reasons(architecture); !reasons.empty()) {
      fail(ErrorKind::unsupported, "this model cannot be trained: {}", fmt::join(reasons, "; "));
    }
    const RunModel model = model_of(a, nullptr);
    stages = memory_plan(a, model, device_kind(a));
    estimate.recompute = recompute_choices(a, model);
  } catch (const Error& error) {
    const bool is_too_large = error.kind() == ErrorKind::exhausted;
    if (error.kind() != ErrorKind::unsupported && !is_too_large) throw;
    stages.clear();
    estimate.no_plan = error.what();
  }
  for (const StagePlan& stage : stages) estimate.stages.push_back(memory_of(stage));
  estimate.checkpoints = checkpoint_sizes(a, tensors, stages, estimate.parameters.without_padding,
                                          options.bandwidth_bytes);
  if (source.arguments.train_iters || source.arguments.train_samples) {
    estimate.training = training_figures(a, estimate.operations_per_token,
                                         source.arguments.lr ? options.at : std::vector<int64_t>());
  }
  if (device_kind(a) == kernels::DeviceKind::gpu) {
    const SpeedEstimate speed = speed_for(gpu_of(options), estimate.operations_per_token);
    if (speed.from != nullptr) estimate.speed = speed;
  }
  if (!options.at.empty() && (!estimate.training || estimate.training->rates.empty())) {
    fail(ErrorKind::invalid,
         "{} asks for learning rates, which need --lr and --train-iters or --train-samples among "
         "the arguments",
         option("at"));
  }
  if (options.gpu_memory_bytes) estimate.layouts = find_layouts(source, options);
  return estimate;
}

Estimate estimate(const EstimateOptions& options) {
  check_options(options);
  return with_paths({options.model}, [&] {
    return make_estimate(
        read_estimate_source(posix_file_system(), options.model, options.arguments), options);
  });
}

}  // namespace ferry
