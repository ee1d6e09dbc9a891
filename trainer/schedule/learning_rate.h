// Learning rate and weight decay over a run, and their state in checkpoints.
//
// Source: Megatron-LM megatron/core/optimizer_param_scheduler.py, training/training.py
// (get_optimizer_param_scheduler). WSD's 1-sqrt: swiss-ai/Megatron-LM.
#pragma once

#include <cstdint>
#include <string>

#include "ckpt/format/pickle/values/draft.h"
#include "trainer/arguments/train_arguments.h"

namespace ferry {

/// All lengths are samples.
struct Schedule {
  double init_lr = 0, max_lr = 0, min_lr = 0;
  double warmup = 0;  // may be fractional if given as a fraction of the decay
  int64_t decay = 0, wsd_decay = 0;
  std::string style;      // constant, linear, cosine, inverse-square-root, WSD
  std::string wsd_style;  // linear, cosine, exponential, minus_sqrt or 1-sqrt
  double start_weight_decay = 0, end_weight_decay = 0;
  int64_t weight_decay_samples = 0;
  std::string weight_decay_style;  // constant, linear, cosine

  bool operator==(const Schedule&) const = default;
};

/// invalid if the warmup is not shorter than the decay, or a sample count overflows.
Schedule schedule_of(const TrainArguments& arguments);

/// The learning rate after `samples`. `max_lr`, `min_lr`: a parameter group's own (decoupled), or
/// the schedule's.
double learning_rate(const Schedule& schedule, int64_t samples);
double learning_rate(const Schedule& schedule, int64_t samples, double max_lr, double min_lr);
double weight_decay(const Schedule& schedule, int64_t samples);

/// The opt_param_scheduler object of a checkpoint.
Value write_schedule(const Schedule& schedule, int64_t samples, Draft& draft);

/// What to do if values of a checkpoint and of the command line differ.
enum class ScheduleChoice : uint8_t {
  must_agree,       // mismatch, naming both
  checkpoint_wins,  // --use-checkpoint-opt-param-scheduler
  arguments_win,    // --override-opt-param-scheduler
};
ScheduleChoice schedule_choice(const ScheduleArguments& arguments);

struct LoadedSchedule {
  Schedule schedule;
  int64_t samples = 0;  // position of the scheduler
};

/// Reads the object of write_schedule() or of Megatron-LM, including names of older releases.
/// corrupt if it has no sample count.
LoadedSchedule read_schedule(const Value& state, const Schedule& ours, ScheduleChoice choice,
                             const std::string& path);

}  // namespace ferry
