#include "trainer/language/language_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "kernels/host_products.h"
#include "trainer/checkpoint/float8_scaling.h"
#include "trainer/data/open_datasets.h"
#include "trainer/language/memory_plan.h"
#include "trainer/language/sample_warnings.h"
#include "trainer/language/source.h"
#include "trainer/loop/training_loop.h"
#include "trainer/model/parameters.h"
#include "trainer/schedule/flops.h"

namespace ferry {

namespace {

std::vector<LossSum> loss_sums(const StepLoss& loss) {
  return {{"lm loss", loss.sum, loss.tokens}};
}

}  // namespace

LanguageModel::LanguageModel(const TrainArguments& arguments, const RankSetup& setup)
    : arguments_(arguments),
      setup_(setup),
      source_(open_source(setup.files, arguments, *setup.group)),
      model_(model_of(arguments, source_.get())),
      source_path_(source_ ? source_->checkpoint.path : std::string()) {
  int64_t done = 0;
  if (source_ && !source_->weights_only) done = source_->state.iteration.value_or(0);
  if (source_) done = arguments.override_ckpt_iteration.value_or(done);
  phase_ = data_phase(arguments, done);
  goes_on_ = source_ && done > 0;
  if (setup.group->rank() != 0) return;
  start_warnings_ = folder_warnings(*setup.files, arguments, source_ != nullptr);
  if (!source_) return;
  for (std::string& warning : model_warnings(arguments, *source_)) {
    start_warnings_.push_back(std::move(warning));
  }
  for (std::string& warning : sample_warnings(setup.files, arguments, *source_, &start_notes_)) {
    start_warnings_.push_back(std::move(warning));
  }
}

LanguageModel::~LanguageModel() = default;

std::unique_ptr<const Source> LanguageModel::take_source() { return std::move(source_); }

// Data are checked, found and ordered before any of the model's memory is allocated.
void LanguageModel::build(RunLog& log) {
  log_ = &log;
  log.write_arguments();
  for (const std::string& note : start_notes_) log.write(fmt::format(" > {}\n", note));
  for (const std::string& warning : start_warnings_) log.warn(warning);
  // Invalid sizes are reported here.
  if (!arguments_.fp8.empty()) {
    memory_plan(arguments_, model_, kernels::DeviceKind::host, source_path_);
  }
  open_data(log);
  device_ = setup_.device();
  if (arguments_.bf16 && device_->kernels->kind() == kernels::DeviceKind::host &&
      kernels::bf16_instructions_unused()) {
    log.write(
        " > products of bf16 are computed in fp32 by this program, which runs on any Linux; one "
        "that is "
        "built from source is several times as fast in bf16 on this processor\n");
  }
  check_float8();
  rank_.emplace(arguments_, model_, setup_.group->rank(), *device_, source_path_);
  if (!datasets_.train || arguments_.skip_train) return;
  sampler_.emplace(sampler_of(*datasets_.train));
  batches_ahead_.emplace([this](const BatchAhead::Place& place, Batch& batch) {
    read(*sampler_, *datasets_.train, place, batch);
  });
}

void LanguageModel::check_float8() const {
  if (arguments_.fp8.empty()) return;
  if (!device_->kernels->has_float8()) {
    fail(ErrorKind::unsupported,
         "--fp8-format {}: this GPU does not support FP8 matrix products (they need compute "
         "capability 9.0, Hopper, or later): leave it out",
         arguments_.fp8);
  }
  const std::string note =
      bf16_experts_note(arguments_, model_.architecture, device_->kernels->has_grouped_float8());
  if (!note.empty()) log_->write(fmt::format(" > {}\n", note));
}

// One rank builds what the cache lacks, then the others find it there.
void LanguageModel::open_data(RunLog& log) {
  DataOptions options = data_options(arguments_);
  options.samples.train = phase_.samples;
  if (const int32_t padding = options.masks.padding; padding >= 0) {
    log.write(fmt::format(" > token {} pads: it has no loss, and is read as 0\n", padding));
  }
  from_first_together(*setup_.group, [&] {
    const auto train = open_datasets(setup_.files, options).train;
    check_train_data(arguments_, train != nullptr);
    if (goes_on_ && train && train->has_replaced_order()) {
      log.warn(source_path_ +
               ": the cached order of samples does not match the data: they have changed since the "
               "run used them, or the cache is damaged. The run continues in a new order, which "
               "may repeat samples");
    }
    return std::string();
  });
  datasets_ = open_datasets(setup_.files, options);
}

void LanguageModel::initialize() {
  ferry::initialize(*device_->kernels, rank_->memory.model_regions(), model_.architecture,
                    arguments_.seed);
}

std::string LanguageModel::description() const {
  return plan_text(arguments_, model_,
                   memory_plan(arguments_, model_, device_->kernels->kind(), {},
                               device_->kernels->has_grouped_float8()));
}

void LanguageModel::begin_step(int64_t number) {
  iteration_ = number;
  rank_->pipeline.begin_step(number);
}

void LanguageModel::train(const StepSamples& samples, double loss_scale) {
  const IterationBatch& batch = samples.batch;
  const bool has_phases = !arguments_.phase_transition_iterations.empty();
  const int64_t consumed =
      has_phases ? (iteration_ - phase_.first) * batch.global : samples.consumed;
  rank_->pipeline.train(batch.micro_batches, loss_scale, [&](int64_t number, Batch& micro_batch) {
    const TimerScope timer(log_->timers(), "batch-generator", 2);
    const bool is_last = number + 1 == batch.micro_batches;
    const BatchAhead::Place next{consumed + (is_last ? batch.running : 0),
                                 is_last ? 0 : number + 1};
    batches_ahead_->take({consumed, number}, next, micro_batch);
  });
}

double LanguageModel::gradient_divisor() { return rank_->pipeline.gradient_divisor(); }

std::vector<LossSum> LanguageModel::losses() { return loss_sums(rank_->pipeline.losses()); }

TrainedModel::Objects LanguageModel::objects() {
  if (!rank_->float8) return {};
  std::vector<double> numbers = rank_->float8->numbers(*device_->kernels);
  // All ranks of a pipeline stage have the same state.
  const GridPlace& place = rank_->grid.place();
  if (place.tensor != 0 || place.context != 0 || place.data != 0) std::ranges::fill(numbers, 0.0);
  rank_->grid.world().add_numbers(numbers);
  LoadedValue scaling = write_float8_scaling(rank_->float8->names(), numbers);
  if (!scaling.document) return {};
  return {{kFloat8Scaling, std::move(scaling)}};
}

void LanguageModel::set_objects(const Objects& objects, const std::string& path) {
  if (!rank_->float8) return;
  Float8State& float8 = *rank_->float8;
  for (const auto& [name, object] : objects) {
    if (name != kFloat8Scaling) continue;
    float8.set_numbers(*device_->kernels, read_float8_scaling(object.value, float8.names(),
                                                              float8.numbers_of_tensor(), path));
  }
  // A checkpoint of another program, of a run without FP8, or of one that had fewer layers in it.
  std::vector<double> are_new = float8.without_history();
  rank_->grid.world().add_numbers(are_new);
  const auto is_new = [](double ranks) { return ranks > 0; };
  const auto first = std::ranges::find_if(are_new, is_new);
  if (first == are_new.end()) return;
  log_->write(
      fmt::format(" > {} has no FP8 scales of {} linear layers (the first is {}): their first step "
                  "takes scales from its own values, and their histories begin anew\n",
                  path, std::ranges::count_if(are_new, is_new),
                  float8.names()[static_cast<size_t>(first - are_new.begin())]));
}

NamedLosses LanguageModel::end_step(const StepSamples& samples) {
  if (rank_->float8) rank_->float8->end_step(*device_->kernels, rank_->grid.stage());
  return rank_->pipeline.end_step(samples.batch.micro_batches);
}

std::vector<LossSum> LanguageModel::evaluate(DataSplit split, const StepSamples& samples) {
  const Dataset& dataset = *datasets_[split];
  Sampler& sampler = samplers_.try_emplace(split, sampler_of(dataset)).first->second;
  return loss_sums(rank_->pipeline.evaluate(
      samples.batch.micro_batches, [&](int64_t number, Batch& micro_batch) {
        read(sampler, dataset, {samples.consumed, number}, micro_batch);
      }));
}

double LanguageModel::operations(int64_t samples) const {
  return floating_point_operations(arguments_, samples);
}

Sampler LanguageModel::sampler_of(const Dataset& dataset) const {
  const bool is_cyclic = arguments_.dataloader_type == "cyclic";
  return Sampler(sampler_options(arguments_, is_cyclic ? SampleOrder::cyclic : SampleOrder::single,
                                 dataset.size()));
}

void LanguageModel::read(Sampler& sampler, const Dataset& dataset, const BatchAhead::Place& place,
                         Batch& batch) const {
  std::vector<int64_t> indices;
  Sample sample;
  sampler.take(place.consumed, place.number, rank_->grid.place().data, indices);
  read_batch(dataset, indices, sample, batch);
}

RunEnd train(const TrainArguments& arguments, const RankSetup& setup) {
  RankParts parts;
  parts.make_model = [&] {
    check_run(arguments);
    from_first_together(*setup.group, [&] {
      check_outputs(*setup.files, arguments);
      return std::string();
    });
    return std::make_unique<LanguageModel>(arguments, setup);
  };
  return train(arguments, setup, parts);
}

}  // namespace ferry
