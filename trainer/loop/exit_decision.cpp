#include "trainer/loop/exit_decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ckpt/base/error.h"
#include "trainer/arguments/argument_value.h"

namespace ferry {

ExitSigns or_of(const ExitSigns& a, const ExitSigns& b) {
  return {a.signalled || b.signalled, a.out_of_time || b.out_of_time,
          a.save_trigger || b.save_trigger, a.exit_trigger || b.exit_trigger};
}

std::set<int64_t> phase_transitions(const std::string& text) {
  std::set<int64_t> iterations;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const char* first = text.data() + std::min(text.find_first_not_of(' ', at), end);
    int64_t iteration = 0;
    const auto [last, error] = std::from_chars(first, text.data() + end, iteration);
    if (error != std::errc() || iteration < 0 ||
        std::any_of(last, text.data() + end, [](char c) { return c != ' '; })) {
      fail(ErrorKind::invalid, "--phase-transition-iterations '{}': 1000,2000 is wanted", text);
    }
    iterations.insert(iteration);
    at = end + 1;
  }
  return iterations;
}

ExitDecision decide_exit(const TrainArguments& a, int64_t iteration, const ExitSigns& signs,
                         double minutes) {
  ExitDecision decision;
  const auto divides = [&](const std::optional<int64_t>& interval) {
    return interval.value_or(0) > 0 && iteration % *interval == 0;
  };
  const auto save = [&](SaveKind kind) {
    if (!a.save.empty() && decision.save == SaveKind::none) decision.save = kind;
  };
  const auto leave = [&](std::string why) {
    save(SaveKind::persistent);
    decision.exit = true;
    decision.why = std::move(why);
    decision.obeys_exit_trigger = signs.exit_trigger;
    return decision;
  };
  if (a.exit_signal_handler && signs.signalled) {
    return leave(fmt::format("exiting program after receiving {}.", a.exit_signal));
  }
  if (divides(a.save_interval)) {
    save(SaveKind::persistent);
  } else if (divides(a.non_persistent_save_interval)) {
    save(SaveKind::non_persistent);
  }
  if (a.exit_duration_in_mins && signs.out_of_time) {
    return leave(fmt::format("exiting program after {} minutes", python_real(minutes)));
  }
  if (divides(a.exit_interval) ||
      phase_transitions(a.phase_transition_iterations).count(iteration)) {
    return leave(fmt::format("exiting program at iteration {}", iteration));
  }
  if (a.trigger_path.empty() || !divides(a.log_interval)) return decision;
  if (signs.save_trigger && !a.save.empty()) {
    save(SaveKind::persistent);
    decision.remove_save_trigger = true;
  }
  if (signs.exit_trigger) {
    decision.exit = true;
    decision.obeys_exit_trigger = true;
    decision.why = fmt::format("exiting program at iteration {}: {}/{} is there", iteration,
                               a.trigger_path, a.exit_trigger);
  }
  return decision;
}

std::string datetime_line(const std::string& what, const std::string& date_and_time) {
  return fmt::format("[{}] datetime: {} \n", what, date_and_time);
}

}  // namespace ferry
