// What estimate() returns.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "estimate/estimate.h"
#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/record.h"
#include "python/bindings/text.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

void bind_memory(nb::module_& module) {
  Record<ParameterCounts>(module, "ParameterCounts", "Parameters of a model.")
      .field("total", &ParameterCounts::total, "The vocabulary's padding included.")
      .field("without_padding", &ParameterCounts::without_padding)
      .field("active", &ParameterCounts::active, "Those that a token passes through.");
  Record<StageMemory>(module, "StageMemory", "Bytes of one rank of a pipeline stage.")
      .field("stage", &StageMemory::stage)
      .field("parameter_count", &StageMemory::parameter_count)
      .field("parameters", &StageMemory::parameters)
      .field("gradients", &StageMemory::gradients)
      .field("optimizer", &StageMemory::optimizer)
      .field("activations", &StageMemory::activations)
      .field("staging", &StageMemory::staging, "Host memory, for copies of what is saved.")
      .field("total", &StageMemory::total, "Of the memory that the rank computes in.");
  Record<RecomputeChoice>(module, "RecomputeChoice",
                          "What the largest stage takes with other recomputation.")
      .field("name", &RecomputeChoice::name)
      .field("activations", &RecomputeChoice::activations)
      .field("bytes", &RecomputeChoice::bytes);
  Record<CheckpointSize>(module, "CheckpointSize", "Size of a checkpoint in one format.")
      .field("format", &CheckpointSize::format)
      .field("has_optimizer", &CheckpointSize::has_optimizer)
      .field("bytes", &CheckpointSize::bytes, "Of its tensors.")
      .field("seconds", &CheckpointSize::seconds, "With bandwidth: to save it, or to load it.");
}

void bind_training(nb::module_& module) {
  using Figures = TrainingFigures;
  Record<Figures::Rate>(module, "LearningRate", "The learning rate after an iteration.")
      .field("iteration", &Figures::Rate::iteration)
      .field("samples", &Figures::Rate::samples, "Consumed by then.")
      .field("learning_rate", &Figures::Rate::learning_rate);
  Record<Figures>(module, "TrainingFigures", "How long a training is.")
      .field("iterations", &Figures::iterations)
      .field("global_batch_size", &Figures::global_batch_size)
      .field("micro_batches", &Figures::micro_batches)
      .field("train_samples", &Figures::train_samples)
      .field("validation_samples", &Figures::validation_samples)
      .field("test_samples", &Figures::test_samples)
      .field("tokens", &Figures::tokens)
      .field("operations", &Figures::operations)
      .field("rates", &Figures::rates);
  Record<SpeedEstimate>(module, "SpeedEstimate", "From the most similar measured training.")
      .field("tokens_per_second", &SpeedEstimate::tokens_per_second, "Of a GPU.")
      .field("teraflops", [](const SpeedEstimate& speed) { return speed.from->teraflops(); })
      .field("gpu", [](const SpeedEstimate& speed) { return speed.from->gpu; })
      .field("program", [](const SpeedEstimate& speed) { return speed.from->program; })
      .field("model", [](const SpeedEstimate& speed) { return speed.from->model; })
      .field(
          "source", [](const SpeedEstimate& speed) { return speed.from->source; },
          "Where the figure was published.");
}

void bind_layouts(nb::module_& module) {
  Record<LayoutChoice>(module, "LayoutChoice", "A parallel layout that fits.")
      .field("tensor", &LayoutChoice::tensor)
      .field("pipeline", &LayoutChoice::pipeline)
      .field("context", &LayoutChoice::context)
      .field("expert", &LayoutChoice::expert)
      .field("data", &LayoutChoice::data)
      .field("recompute", &LayoutChoice::recompute, "'none' or 'full'.")
      .field("micro_batches", &LayoutChoice::micro_batches)
      .field("bytes", &LayoutChoice::bytes, "Of the stage that takes most.")
      .field("bubble", &LayoutChoice::bubble, "Part of the time in which a stage waits.")
      .field("tokens_per_second", &LayoutChoice::tokens_per_second,
             "Of a GPU; an order alone where Estimate.speed is None.")
      .field("reason", &LayoutChoice::reason);
  Record<LayoutSearch>(module, "LayoutSearch", "Layouts that were tried.")
      .field("fitting", &LayoutSearch::fitting, "Best first.")
      .field("tried", &LayoutSearch::tried)
      .field("least_bytes", known<&LayoutSearch::least_bytes>,
             "The smallest of those that are too large; None: not known.")
      .field("notes", messages<&LayoutSearch::notes>);
}

}  // namespace

void bind_estimate(nb::module_& module) {
  bind_memory(module);
  bind_training(module);
  bind_layouts(module);
  Record<Estimate>(module, "Estimate", "What a training takes; memory in bytes of a rank.")
      .field("what", &Estimate::what, "'a config.json of family llama'.")
      .field("notes", messages<&Estimate::notes>)
      .field("parameters", &Estimate::parameters)
      .field("operations_per_token", &Estimate::operations_per_token)
      .field("stages", &Estimate::stages)
      .field("no_plan", message_or_none<&Estimate::no_plan>, "Why there are no stages.")
      .field("recompute", &Estimate::recompute)
      .field("checkpoints", &Estimate::checkpoints)
      .field("training", &Estimate::training, "None: the arguments do not say how long it is.")
      .field("speed", &Estimate::speed, "None: none of a similar model was measured.")
      .field("layouts", &Estimate::layouts, "With gpu_memory.");
}

}  // namespace ferry::python
