#include "trainer/loop/metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace ferry {
namespace {

using Json = nlohmann::ordered_json;

class Scalars {
 public:
  Scalars(int64_t iteration, int64_t samples) : iteration_(iteration), samples_(samples) {}

  void add(const std::string& name, double value) { all_.push_back({name, value, iteration_}); }
  void add_both(const std::string& name, double value) {
    add(name, value);
    all_.push_back({name + " vs samples", value, samples_});
  }
  std::vector<Scalar> all() && { return std::move(all_); }

 private:
  int64_t iteration_, samples_;
  std::vector<Scalar> all_;
};

Json json_number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

std::vector<Scalar> training_scalars(const TrainArguments& a, const TrainingLine& line) {
  Scalars scalars(line.iteration, line.consumed_samples);
  if (line.learning_rate) scalars.add_both("learning-rate", *line.learning_rate);
  if (line.skipped_samples > 0) {
    scalars.add("skipped-train-samples", static_cast<double>(line.skipped_samples));
  }
  scalars.add_both("batch-size", static_cast<double>(line.batch_size));
  for (const auto& [name, loss] : line.losses) scalars.add_both(name, loss);
  if (a.log_loss_scale_to_tensorboard) scalars.add_both("loss-scale", line.loss_scale);
  if (a.log_world_size_to_tensorboard) {
    scalars.add_both("world-size", static_cast<double>(a.world_size));
  }
  if (line.gradient_norm) scalars.add_both("grad-norm", *line.gradient_norm);
  if (line.zeros) scalars.add_both("num-zeros", *line.zeros);
  if (line.parameter_norm) scalars.add_both("params-norm", *line.parameter_norm);
  return std::move(scalars).all();
}

std::vector<Scalar> timing_scalars(const TrainArguments& a, const TrainingLine& line) {
  Scalars scalars(line.iteration, line.consumed_samples);
  if (!a.log_timers_to_tensorboard) return {};
  scalars.add("iteration-time", line.milliseconds / 1000);
  if (line.teraflops) scalars.add("throughput", *line.teraflops);
  return std::move(scalars).all();
}

std::vector<Scalar> validation_scalars(const TrainArguments& a, const NamedLosses& losses,
                                       int64_t iteration, int64_t consumed_samples) {
  std::vector<Scalar> all;
  const auto add = [&](const std::string& name, double value) {
    all.push_back({name, value, iteration});
    all.push_back({name + " vs samples", value, consumed_samples});
  };
  for (const auto& [name, loss] : losses) {
    add(name + " validation", loss);
    if (a.log_validation_ppl_to_tensorboard) add(name + " validation ppl", perplexity(loss));
  }
  return all;
}

std::string metrics_json(const TrainingLine& line) {
  Json json = {{"iteration", line.iteration},
               {"consumed_samples", line.consumed_samples},
               {"skipped_samples", line.skipped_samples},
               {"milliseconds", json_number(line.milliseconds)},
               {"global_batch_size", line.batch_size},
               {"loss_scale", json_number(line.loss_scale)}};
  for (const auto& [name, loss] : line.losses) json[name] = json_number(loss);
  if (line.learning_rate) json["learning_rate"] = json_number(*line.learning_rate);
  if (line.teraflops) json["teraflops"] = json_number(*line.teraflops);
  if (line.gradient_norm) json["grad_norm"] = json_number(*line.gradient_norm);
  if (line.zeros) json["num_zeros"] = json_number(*line.zeros);
  if (line.parameter_norm) json["params_norm"] = json_number(*line.parameter_norm);
  json["skipped_iterations"] = line.skipped;
  json["nan_iterations"] = line.nan;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string validation_json(const NamedLosses& losses, int64_t iteration,
                            int64_t consumed_samples) {
  Json json = {{"iteration", iteration}, {"consumed_samples", consumed_samples}};
  for (const auto& [name, loss] : losses) json[name + " validation"] = json_number(loss);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ferry
