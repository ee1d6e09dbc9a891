// A language model as the loop sees it: RankModel and its token datasets.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/arguments/train_arguments.h"
#include "trainer/data/data_options.h"
#include "trainer/data/sampler.h"
#include "trainer/language/rank_model.h"
#include "trainer/log/log_lines.h"
#include "trainer/loop/rank_setup.h"
#include "trainer/loop/trained_model.h"
#include "trainer/loop/training_loop.h"

namespace ferry {

class LanguageModel final : public TrainedModel {
 public:
  /// Opens what the run starts from (open_source) and determines the model. References must outlive
  /// it.
  LanguageModel(const TrainArguments& arguments, const RankSetup& setup);
  ~LanguageModel() override;

  void build(RunLog& log) override;
  std::unique_ptr<const Source> take_source() override;
  RankDevice& device() override { return *device_; }
  Grid& grid() override { return rank_->grid; }
  ModelState& state() override { return rank_->memory; }
  const StateLayout& layout() const override { return model_; }
  Objects objects() override;
  void set_objects(const Objects& objects, const std::string& path) override;
  bool has_samples(DataSplit split) const override { return datasets_[split] != nullptr; }
  void initialize() override;
  std::string description() const override;
  void begin_step(int64_t number) override;
  void train(const StepSamples& samples, double loss_scale) override;
  double gradient_divisor() override;
  std::vector<LossSum> losses() override;
  NamedLosses end_step(const StepSamples& samples) override;
  std::vector<LossSum> evaluate(DataSplit split, const StepSamples& samples) override;
  double operations(int64_t samples) const override;

 private:
  void open_data(RunLog& log);
  void check_float8() const;
  Sampler sampler_of(const Dataset& dataset) const;
  void read(Sampler& sampler, const Dataset& dataset, const BatchAhead::Place& place,
            Batch& batch) const;

  const TrainArguments& arguments_;
  const RankSetup& setup_;
  std::unique_ptr<const Source> source_;
  RunModel model_;
  std::string source_path_;  // empty: there is none
  std::vector<std::string> start_notes_,
      start_warnings_;    // rank 0's, about what the run starts from
  bool goes_on_ = false;  // resumes in the middle of its data
  DataPhase phase_;
  int64_t iteration_ = 0;  // completed
  PerSplit<std::shared_ptr<const Dataset>> datasets_;
  std::optional<RankDevice> device_;
  std::optional<RankModel> rank_;
  std::optional<Sampler> sampler_;
  RunLog* log_ = nullptr;
  std::map<DataSplit, Sampler> samplers_;    // for evaluations
  std::optional<BatchAhead> batches_ahead_;  // last: destroyed before what it reads from
};

// One rank of a language model's training run, from its arguments to its end.
//
// All ranks of a run make the same calls, as threads of one process or as processes. Output, files
// and exits are Megatron-LM's (the headers of trainer/schedule and trainer/log name the sources).

/// train() of training_loop.h with the language model that the arguments describe.
RunEnd train(const TrainArguments& arguments, const RankSetup& setup);

}  // namespace ferry
