#include "trainer/log/timers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace ferry {

namespace {

constexpr std::string_view kOfIterations[] = {"forward-backward",
                                              "layernorm-grads-all-reduce",
                                              "embedding-grads-all-reduce",
                                              "all-grads-sync",
                                              "params-all-gather",
                                              "optimizer-copy-to-main-grad",
                                              "optimizer-unscale-and-check-inf",
                                              "optimizer-clip-main-grad",
                                              "optimizer-count-zeros",
                                              "optimizer-inner-step",
                                              "optimizer-copy-main-to-model-params",
                                              "optimizer"};
constexpr std::string_view kOfPasses[] = {"batch-generator",
                                          "forward-compute",
                                          "backward-compute",
                                          "forward-recv",
                                          "forward-send",
                                          "backward-recv",
                                          "backward-send",
                                          "forward-send-forward-recv",
                                          "forward-send-backward-recv",
                                          "backward-send-forward-recv",
                                          "backward-send-backward-recv",
                                          "forward-backward-send-forward-backward-recv"};

// One line per timer with the times of each rank.
std::string all_lines(std::span<const RankTimes> times, double factor) {
  std::string text;
  for (const RankTimes& timer : times) {
    std::string lines;
    for (size_t rank = 0; rank < timer.seconds.size(); ++rank) {
      if (timer.seconds[rank] <= 0) continue;
      lines += fmt::format("\n     rank {:2d}: {:.2f}", rank, timer.seconds[rank] * factor);
    }
    if (!lines.empty()) text += fmt::format("\n  {}:{}", timer.name, lines);
  }
  return text.empty() ? text : "times across ranks (ms):" + text + "\n";
}

}  // namespace

void Timers::start(const std::string& name, int level, Clock::time_point now) {
  if (level > level_) return;
  Timer& timer = timers_[name];
  if (timer.runs) return;
  timer.started = now;
  timer.runs = true;
}

void Timers::stop(const std::string& name, Clock::time_point now) {
  const auto found = timers_.find(name);
  if (found == timers_.end() || !found->second.runs) return;
  found->second.elapsed += now - found->second.started;
  found->second.runs = false;
}

double Timers::seconds(const std::string& name, bool reset, Clock::time_point now) {
  const auto found = timers_.find(name);
  if (found == timers_.end()) return 0;
  Timer& timer = found->second;
  if (timer.runs) {
    timer.elapsed += now - timer.started;
    timer.started = now;
  }
  const double seconds = timer.elapsed.count();
  if (reset) timer.elapsed = {};
  return seconds;
}

std::vector<std::string_view> timers_of_level(int level) {
  std::vector<std::string_view> names;
  if (level >= 1) names.assign(std::begin(kOfIterations), std::end(kOfIterations));
  if (level >= 2) names.insert(names.end(), std::begin(kOfPasses), std::end(kOfPasses));
  return names;
}

std::string timer_lines(std::span<const RankTimes> times, std::string_view option,
                        int64_t iterations) {
  const double factor = 1000.0 / static_cast<double>(std::max<int64_t>(iterations, 1));
  if (option == "all") return all_lines(times, factor);
  const bool max_only = option == "max";
  std::string text;
  for (const RankTimes& timer : times) {
    std::vector<double> ran;
    std::copy_if(timer.seconds.begin(), timer.seconds.end(), std::back_inserter(ran),
                 [](double seconds) { return seconds > 0; });
    if (ran.empty()) continue;
    const auto [least, most] = std::minmax_element(ran.begin(), ran.end());
    const std::string name = timer.name + " ";
    text += fmt::format("\n    {:.<48}: ", name);
    text += max_only ? fmt::format("{:.2f}", *most * factor)
                     : fmt::format("({:.2f}, {:.2f})", *least * factor, *most * factor);
  }
  if (text.empty()) return text;
  return (max_only ? "max time across ranks (ms):" : "(min, max) time across ranks (ms):") + text +
         "\n";
}

}  // namespace ferry
