// The tutorial's MetricTracker: metrics of each training and validation batch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/log/run_log.h"

namespace ferry::mnist {

/// On one rank; all ranks see the same metrics.
class MetricTracker final : public RunObserver {
 public:
  struct Collection {
    std::map<std::string, std::vector<double>> values;  // by name, a value a batch
    std::vector<int64_t> iterations;                    // of the batches
    std::vector<std::string> logged_metrics;            // names, once more at each epoch's end
  };

  /// `samples_per_epoch`: of training.
  explicit MetricTracker(int64_t samples_per_epoch) : samples_per_epoch_(samples_per_epoch) {}

  void on_iteration(const TrainingLine& line, bool is_skipped) override;
  void on_evaluation_batch(DataSplit split, const NamedLosses& losses, int64_t iteration) override;
  void on_evaluation(DataSplit split, const NamedLosses& losses, int64_t iteration) override;

  const Collection& train() const { return train_; }
  const Collection& valid() const { return valid_; }
  /// The last value of a training metric; NaN before the first.
  double last(const std::string& name) const;
  std::string json() const;

 private:
  int64_t samples_per_epoch_;
  Collection train_, valid_;
};

}  // namespace ferry::mnist
