#include "trainer/schedule/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"

namespace ferry {

namespace {

double cosine(double ratio) { return 0.5 * (std::cos(std::numbers::pi * ratio) + 1.0); }

double wsd_coefficient(const Schedule& schedule, int64_t samples) {
  const int64_t start = schedule.decay - schedule.wsd_decay;
  if (samples <= start) return 1;
  const double ratio =
      static_cast<double>(samples - start) / static_cast<double>(schedule.wsd_decay);
  if (schedule.wsd_style == "linear") return 1 - ratio;
  if (schedule.wsd_style == "cosine") return cosine(ratio);
  if (schedule.wsd_style == "exponential") return 2 * std::pow(0.5, ratio) - 1;
  return 1 - std::sqrt(ratio);
}

// Looks up the first of several names in a checkpoint.
Value first_of(const Value& state, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (const Value value = state.get(name); !value.is_none()) return value;
  }
  return {};
}

class ScheduleReader {
 public:
  ScheduleReader(ScheduleChoice choice, const std::string& path) : choice_(choice), path_(path) {}

  template <typename T>
  void resolve(std::string_view what, const Value& saved, T& ours) const {
    if (saved.is_none() || choice_ == ScheduleChoice::arguments_win) return;
    T theirs{};
    if constexpr (std::is_same_v<T, std::string>) {
      theirs = std::string(saved.string().value_or(""));
    } else {
      const auto number = saved.real();
      if (!number || !std::isfinite(*number) || std::abs(*number) > 9e18) {
        fail(ErrorKind::corrupt, "{}: {} of the scheduler is not a number", path_, what);
      }
      theirs = static_cast<T>(*number);
    }
    if (choice_ == ScheduleChoice::must_agree && theirs != ours) {
      fail(ErrorKind::mismatch,
           "{}: {} is {} in the checkpoint's scheduler and {} now; give the same value, or "
           "--override-opt-param-scheduler or --use-checkpoint-opt-param-scheduler",
           path_, what, theirs, ours);
    }
    ours = theirs;
  }

 private:
  ScheduleChoice choice_;
  const std::string& path_;
};

}  // namespace

Schedule schedule_of(const TrainArguments& a) {
  Schedule s;
  s.init_lr = a.lr_warmup_init;
  s.max_lr = a.lr.value_or(0);
  s.min_lr = a.min_lr;
  s.style = a.lr_decay_style;
  s.wsd_style = a.lr_wsd_decay_style;
  s.start_weight_decay = a.start_weight_decay.value_or(a.weight_decay);
  s.end_weight_decay = a.end_weight_decay.value_or(a.weight_decay);
  s.weight_decay_style = a.weight_decay_incr_style;
  const auto samples = [&](int64_t iterations) {
    return checked_multiply(iterations, a.global_batch_size.value_or(1), "samples of the schedule");
  };
  if (a.train_samples) {
    s.weight_decay_samples = *a.train_samples;
    s.decay = a.lr_decay_samples.value_or(*a.train_samples);
    s.wsd_decay = a.lr_wsd_decay_samples.value_or(0);
    s.warmup = static_cast<double>(a.lr_warmup_samples);
  } else {
    s.weight_decay_samples = samples(a.train_iters.value_or(0));
    s.decay = samples(a.lr_decay_iters.value_or(a.train_iters.value_or(0)));
    s.wsd_decay = samples(a.lr_wsd_decay_iters.value_or(0));
    s.warmup = static_cast<double>(samples(a.lr_warmup_iters));
  }
  if (a.lr_warmup_fraction) s.warmup = *a.lr_warmup_fraction * static_cast<double>(s.decay);
  if (a.skip_train) {  // no steps: any schedule is fine
    s.decay = std::max<int64_t>(s.decay, 1);
    s.warmup = std::min(s.warmup, static_cast<double>(s.decay - 1));
  }
  if (s.decay <= 0 || s.warmup >= static_cast<double>(s.decay)) {
    fail(ErrorKind::invalid,
         "the learning rate warms up over {} samples and decays until sample {}: the warm-up must "
         "end before (--lr-warmup-iters, --lr-decay-iters, --train-iters, or their -samples)",
         s.warmup, s.decay);
  }
  return s;
}

double learning_rate(const Schedule& s, int64_t samples) {
  return learning_rate(s, samples, s.max_lr, s.min_lr);
}

double learning_rate(const Schedule& s, int64_t samples, double max_lr, double min_lr) {
  const auto n = static_cast<double>(samples);
  const auto decay = static_cast<double>(s.decay);
  if (s.warmup > 0 && n <= s.warmup) return s.init_lr + (max_lr - s.init_lr) * n / s.warmup;
  if (s.style == "constant") return max_lr;
  if (samples > s.decay) return min_lr;
  if (s.style == "inverse-square-root") {
    return std::max(
        min_lr, max_lr * std::pow(std::max(s.warmup, 1.0), 0.5) / std::pow(std::max(n, 1.0), 0.5));
  }
  const double ratio = (n - s.warmup) / (decay - s.warmup);
  const double coefficient = s.style == "linear"   ? 1 - ratio
                             : s.style == "cosine" ? cosine(ratio)
                                                   : wsd_coefficient(s, samples);
  return min_lr + coefficient * (max_lr - min_lr);
}

double weight_decay(const Schedule& s, int64_t samples) {
  if (samples > s.weight_decay_samples || s.weight_decay_style == "constant") {
    return s.end_weight_decay;
  }
  const double ratio =
      s.weight_decay_samples == 0
          ? 1
          : static_cast<double>(samples) / static_cast<double>(s.weight_decay_samples);
  const double coefficient = s.weight_decay_style == "linear" ? ratio : cosine(1 - ratio);
  return s.start_weight_decay + coefficient * (s.end_weight_decay - s.start_weight_decay);
}

Value write_schedule(const Schedule& s, int64_t samples, Draft& draft) {
  Value state = draft.dict();
  // A warmup given as a fraction of the decay is also a float in Megatron-LM.
  const bool whole = s.warmup == std::floor(s.warmup);
  const auto put = [&](std::string_view name, const Value& value) {
    draft.put(state, name, value);
  };
  put("max_lr", draft.real(s.max_lr));
  put("lr_warmup_steps",
      whole ? draft.integer(static_cast<int64_t>(s.warmup)) : draft.real(s.warmup));
  put("num_steps", draft.integer(samples));
  put("lr_decay_style", draft.string(s.style));
  put("lr_decay_steps", draft.integer(s.decay));
  put("min_lr", draft.real(s.min_lr));
  put("start_wd", draft.real(s.start_weight_decay));
  put("end_wd", draft.real(s.end_weight_decay));
  put("wd_incr_style", draft.string(s.weight_decay_style));
  put("wd_incr_steps", draft.integer(s.weight_decay_samples));
  return state;
}

ScheduleChoice schedule_choice(const ScheduleArguments& a) {
  if (a.override_opt_param_scheduler) return ScheduleChoice::arguments_win;
  return a.use_checkpoint_opt_param_scheduler ? ScheduleChoice::checkpoint_wins
                                              : ScheduleChoice::must_agree;
}

LoadedSchedule read_schedule(const Value& state, const Schedule& ours, ScheduleChoice choice,
                             const std::string& path) {
  LoadedSchedule loaded{ours, 0};
  Schedule& s = loaded.schedule;
  const ScheduleReader reader(choice, path);
  reader.resolve("the learning rate (--lr)", first_of(state, {"start_lr", "max_lr"}), s.max_lr);
  reader.resolve("the least learning rate (--min-lr)", state.get("min_lr"), s.min_lr);
  reader.resolve("the warm-up in samples (--lr-warmup-iters)",
                 first_of(state, {"warmup_iter", "warmup_steps", "lr_warmup_steps"}), s.warmup);
  reader.resolve("the decay in samples (--lr-decay-iters, without it --train-iters)",
                 first_of(state, {"end_iter", "decay_steps", "lr_decay_steps"}), s.decay);
  reader.resolve("the decay style", first_of(state, {"decay_style", "lr_decay_style"}), s.style);
  const auto steps = first_of(state, {"num_iters", "num_steps"}).integer();
  if (!steps || *steps < 0) {
    fail(ErrorKind::corrupt, "{}: the scheduler's state has no count of samples (num_steps)", path);
  }
  loaded.samples = *steps;
  if (state.get("start_wd").is_none()) return loaded;
  reader.resolve("the first weight decay (--start-weight-decay, --weight-decay)",
                 state.get("start_wd"), s.start_weight_decay);
  reader.resolve("the last weight decay (--end-weight-decay, --weight-decay)", state.get("end_wd"),
                 s.end_weight_decay);
  reader.resolve("the weight decay's growth in samples (--train-iters)", state.get("wd_incr_steps"),
                 s.weight_decay_samples);
  reader.resolve("the weight decay's style (--weight-decay-incr-style)", state.get("wd_incr_style"),
                 s.weight_decay_style);
  return loaded;
}

}  // namespace ferry
