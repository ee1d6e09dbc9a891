#include "metric_tracker.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace ferry::mnist {
namespace {

void add_batch(MetricTracker::Collection& collection, const NamedLosses& losses,
               int64_t iteration) {
  for (const auto& [name, value] : losses) collection.values[name].push_back(value);
  collection.iterations.push_back(iteration);
}

void add_names(MetricTracker::Collection& collection, const NamedLosses& losses) {
  for (const auto& loss : losses) collection.logged_metrics.push_back(loss.first);
}

nlohmann::ordered_json json_of(const MetricTracker::Collection& collection) {
  nlohmann::ordered_json json = {{"iterations", collection.iterations}};
  for (const auto& [name, values] : collection.values) json[name] = values;
  json["logged_metrics"] = collection.logged_metrics;
  return json;
}

}  // namespace

void MetricTracker::on_iteration(const TrainingLine& line, bool is_skipped) {
  static_cast<void>(is_skipped);
  add_batch(train_, line.losses, line.iteration);
  const bool is_end = samples_per_epoch_ > 0 && line.consumed_samples % samples_per_epoch_ == 0;
  if (is_end) add_names(train_, line.losses);
}

void MetricTracker::on_evaluation_batch(DataSplit split, const NamedLosses& losses,
                                        int64_t iteration) {
  if (split == DataSplit::valid) add_batch(valid_, losses, iteration);
}

void MetricTracker::on_evaluation(DataSplit split, const NamedLosses& losses, int64_t iteration) {
  static_cast<void>(iteration);
  if (split == DataSplit::valid) add_names(valid_, losses);
}

double MetricTracker::last(const std::string& name) const {
  const auto found = train_.values.find(name);
  return found == train_.values.end() || found->second.empty() ? std::nan("")
                                                               : found->second.back();
}

std::string MetricTracker::json() const {
  return nlohmann::ordered_json({{"train", json_of(train_)}, {"val", json_of(valid_)}}).dump(1) +
         "\n";
}

}  // namespace ferry::mnist
