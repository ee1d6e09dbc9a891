// The tutorial's networks as the training loop knows a model (trainer/loop/trained_model.h).
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "images.h"
#include "network.h"
#include "trainer/data/sampler.h"
#include "trainer/loop/rank_setup.h"
#include "trainer/loop/trained_model.h"

namespace ferry::mnist {

/// What the network made of the test split's samples, by their number: each rank sets what it
/// computed.
struct Outputs {
  int64_t width;  // numbers for each sample
  std::vector<float> values;

  Outputs(int64_t samples, int64_t numbers)
      : width(numbers), values(static_cast<size_t>(samples * numbers)) {}
};

struct ImageModelOptions {
  NetworkShape shape;
  PerSplit<OrderedImages> images;
  std::function<std::unique_ptr<const Source>()> open_source;  // null: the run has none
  Outputs* outputs = nullptr;                                  // null: they are not kept
};

/// The loss is called "reduced_train_loss" in training and "val_loss" in evaluations: the means
/// over pixels, or images, of all micro-batches of all ranks.
class ImageModel final : public TrainedModel {
 public:
  /// `arguments` are complete. References must outlive it.
  ImageModel(const TrainArguments& arguments, const RankSetup& setup, ImageModelOptions options);
  ~ImageModel() override;

  std::unique_ptr<const Source> take_source() override;
  void build(RunLog& log) override;
  RankDevice& device() override { return *device_; }
  Grid& grid() override { return *grid_; }
  ModelState& state() override { return *state_; }
  const StateLayout& layout() const override { return layout_; }
  bool has_samples(DataSplit split) const override { return options_.images[split].size() > 0; }
  /// As PyTorch's linear layers begin: uniform between -1/sqrt(in) and 1/sqrt(in).
  void initialize() override;
  std::string description() const override;
  void train(const StepSamples& samples, double loss_scale) override;
  std::vector<LossSum> losses() override;
  std::vector<LossSum> evaluate(DataSplit split, const StepSamples& samples) override;
  double operations(int64_t samples) const override;

 private:
  void read(DataSplit split, const StepSamples& samples, int64_t number);
  void keep_outputs(kernels::ConstArray outputs, kernels::Type type);
  std::vector<LossSum> sum_up(const char* name);

  const TrainArguments& arguments_;
  const RankSetup& setup_;
  ImageModelOptions options_;
  StateLayout layout_;
  std::optional<RankDevice> device_;
  std::optional<Grid> grid_;
  std::optional<ModelState> state_;
  std::optional<Network> network_;
  ImageBatch batch_;
  std::vector<int64_t> numbers_;  // of the batch's samples
  /// For each micro-batch: the sum of its losses, and their number.
  std::list<std::pair<double, int64_t>> sums_;
};

}  // namespace ferry::mnist
