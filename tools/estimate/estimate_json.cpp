#include <nlohmann/json.hpp>

#include "tools/estimate/estimate_output.h"
#include "trainer/arguments/train_arguments.h"

namespace ferry::tool {
namespace {

using nlohmann::json;

json stages_json(const Estimate& estimate) {
  json stages = json::array();
  for (const StageMemory& stage : estimate.stages) {
    stages.push_back({{"stage", stage.stage},
                      {"parameters_held", stage.parameter_count},
                      {"parameters_bytes", stage.parameters},
                      {"gradients_bytes", stage.gradients},
                      {"optimizer_bytes", stage.optimizer},
                      {"activations_bytes", stage.activations},
                      {"staging_bytes", stage.staging},
                      {"total_bytes", stage.total}});
  }
  return stages;
}

json training_json(const TrainingFigures& training) {
  json rates = json::array();
  for (const TrainingFigures::Rate& rate : training.rates) {
    rates.push_back({{"iteration", rate.iteration},
                     {"consumed_samples", rate.samples},
                     {"learning_rate", rate.learning_rate}});
  }
  return {{"iterations", training.iterations},
          {"global_batch_size", training.global_batch_size},
          {"micro_batches", training.micro_batches},
          {"train_samples", training.train_samples},
          {"validation_samples", training.validation_samples},
          {"test_samples", training.test_samples},
          {"tokens", training.tokens},
          {"operations", training.operations},
          {"learning_rates", rates}};
}

json layouts_json(const EstimateOutput& output) {
  json layouts = json::array();
  for (const LayoutChoice& choice : output.estimate->layouts->fitting) {
    if (layouts.size() >= output.most_layouts) break;
    layouts.push_back({{"tensor", choice.tensor},
                       {"pipeline", choice.pipeline},
                       {"context", choice.context},
                       {"expert", choice.expert},
                       {"data", choice.data},
                       {"recompute", choice.recompute},
                       {"micro_batches", choice.micro_batches},
                       {"bytes", choice.bytes},
                       {"bubble", choice.bubble},
                       {"tokens_per_second",
                        output.estimate->speed ? json(choice.tokens_per_second) : json(nullptr)},
                       {"why", choice.reason}});
  }
  return {{"tried", output.estimate->layouts->tried},
          {"fit", output.estimate->layouts->fitting.size()},
          {"least_bytes_that_do_not_fit", output.estimate->layouts->least_bytes > 0
                                              ? json(output.estimate->layouts->least_bytes)
                                              : json(nullptr)},
          {"best", layouts}};
}

json ranks_json(const TrainArguments& a) {
  return {{"world", a.world_size},
          {"tensor", a.tensor_model_parallel_size},
          {"pipeline", a.pipeline_model_parallel_size},
          {"context", a.context_parallel_size},
          {"expert", a.expert_model_parallel_size},
          {"data", a.data_parallel_size}};
}

}  // namespace

json estimate_json(const EstimateOutput& output) {
  const Estimate& estimate = *output.estimate;
  json checkpoints = json::array(), recompute = json::array();
  for (const CheckpointSize& size : estimate.checkpoints) {
    checkpoints.push_back({{"format", size.format},
                           {"optimizer", size.has_optimizer},
                           {"bytes", size.bytes},
                           {"seconds", size.seconds ? json(*size.seconds) : json(nullptr)}});
  }
  for (const RecomputeChoice& choice : estimate.recompute) {
    recompute.push_back({{"recompute", choice.name},
                         {"activations_bytes", choice.activations},
                         {"total_bytes", choice.bytes}});
  }
  json result = {{"what", estimate.what},
                 {"parameters",
                  {{"total", estimate.parameters.total},
                   {"without_padding", estimate.parameters.without_padding},
                   {"active", estimate.parameters.active}}},
                 {"operations_per_token", estimate.operations_per_token},
                 {"ranks", ranks_json(*estimate.arguments)},
                 {"stages", stages_json(estimate)},
                 {"recompute", recompute},
                 {"checkpoints", checkpoints},
                 {"training", nullptr},
                 {"speed", nullptr},
                 {"layouts", nullptr},
                 {"notes", estimate.notes}};
  if (!estimate.no_plan.empty()) result["no_plan"] = estimate.no_plan;
  if (estimate.training) result["training"] = training_json(*estimate.training);
  if (const auto& speed = estimate.speed) {
    result["speed"] = {{"tokens_per_second", speed->tokens_per_second},
                       {"teraflops", speed->from->teraflops()},
                       {"gpu", speed->from->gpu},
                       {"program", speed->from->program},
                       {"model", speed->from->model},
                       {"source", speed->from->source}};
  }
  if (output.estimate->layouts) result["layouts"] = layouts_json(output);
  return result;
}

}  // namespace ferry::tool
