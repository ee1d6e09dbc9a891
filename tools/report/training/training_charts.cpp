#include "tools/report/training/training_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "tools/report/html.h"
#include "tools/report/training/chart.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr size_t kMostCharts = 40;

struct KnownFigure {
  std::string_view name, title, unit;
  bool is_steady;  // worth a drawing only where it changes
};
// In the order of the page, after the losses.
constexpr std::array kFigures = {
    KnownFigure{"learning_rate", "Learning rate", "step size", false},
    KnownFigure{"grad_norm", "Norm of the gradients", "L2 norm", false},
    KnownFigure{"tokens_per_second", "Throughput", "tokens/s", false},
    KnownFigure{"samples_per_second", "Throughput", "samples/s", false},
    KnownFigure{"teraflops", "Operations a rank", "TFLOP/s", false},
    KnownFigure{"milliseconds", "Time of an iteration", "ms", false},
    KnownFigure{"global_batch_size", "Batch of an iteration", "samples", true},
    KnownFigure{"loss_scale", "Loss scale", "factor", true},
    KnownFigure{"params_norm", "Norm of the parameters", "L2 norm", false},
    KnownFigure{"num_zeros", "Zeros in the gradients", "elements", true},
    KnownFigure{"skipped_iterations", "Iterations skipped", "iterations", true},
    KnownFigure{"nan_iterations", "Iterations with NaN", "iterations", true},
    KnownFigure{"skipped_samples", "Samples skipped", "samples", true},
    KnownFigure{"consumed_samples", "", "", true}};

// Losses of language models are cross-entropies; of others nothing is known.
std::string unit_of_loss(std::string_view name) {
  return name == "lm loss" || name.starts_with("mtp_") ? "nats a token" : "value";
}

bool is_known(std::string_view name) {
  return std::any_of(kFigures.begin(), kFigures.end(),
                     [&](const KnownFigure& figure) { return figure.name == name; });
}

void add_lines(const std::vector<RunFigures>& runs, const std::string& name, bool has_dots,
               Chart& chart) {
  for (size_t i = 0; i < runs.size(); ++i) {
    const Series* const series = runs[i].find(name);
    if (series == nullptr) continue;
    chart.lines.push_back({series, i, has_dots, runs[i].name + ", " + name});
  }
}

void add_saves(const std::vector<RunFigures>& runs, Chart& chart) {
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const auto& [iteration, when] : runs[i].saves) {
      if (iteration >= runs[i].first && iteration <= runs[i].last) {
        chart.saves.push_back({iteration, i});
      }
    }
  }
}

std::string not_finite_text(const Chart& chart) {
  int64_t count = 0, first = INT64_MAX;
  for (const ChartLine& line : chart.lines) {
    if (line.series->not_finite() == 0) continue;
    count += line.series->not_finite();
    first = std::min(first, line.series->first_not_finite());
  }
  if (count == 0) return "";
  return fmt::format("; {} NaN or infinite, the first at iteration {}", grouped(count),
                     grouped(first));
}

// The iterations of a run that is much shorter than others, which has little room next to them;
// nothing where all are about as long.
std::optional<IterationWindow> window_of_shortest(const Chart& chart) {
  constexpr int64_t kMuchShorter = 8;
  IterationWindow shortest, all{INT64_MAX, INT64_MIN};
  const auto length = [](const IterationWindow& window) { return window.last - window.first; };
  bool is_first = true;
  for (const ChartLine& line : chart.lines) {
    const auto& points = line.series->points();
    const IterationWindow own{points.front().first, points.back().last};
    all = {std::min(all.first, own.first), std::max(all.last, own.last)};
    if (line.has_dots || points.size() < 2) continue;
    if (is_first || length(own) < length(shortest)) shortest = own;
    is_first = false;
  }
  if (is_first || length(shortest) >= length(all) / kMuchShorter) return std::nullopt;
  return shortest;
}

std::string chart_card(const std::string& title, Chart& chart, const std::vector<RunFigures>& runs,
                       size_t number) {
  chart.marks.clear();
  for (const RunFigures& run : runs) {
    for (const Restart& restart : run.restarts) chart.marks.push_back(restart.iteration);
  }
  chart.name = title + " over iterations";
  const ValueRange range = value_range(chart.lines, chart.is_linear, chart.window);
  std::string more;
  if (range.is_cut) more += "; some values are above " + tick_text(range.high);
  if (range.is_cut_below) more += "; some values are below " + tick_text(range.low);
  if (range.is_log) more += "; by powers of ten";
  more += not_finite_text(chart);
  return fmt::format(
      "<article class=\"card\"><h3>{}<span class=\"soft\">{}</span></h3>{}</article>\n",
      html(title), more, chart_svg(chart, number));
}

}  // namespace

std::vector<std::string> names_of_losses(const std::vector<RunFigures>& runs) {
  std::vector<std::string> names;
  for (const RunFigures& run : runs) {
    for (const auto& [name, series] : run.series) {
      std::string base = name;
      if (base.ends_with(kValidation)) base.resize(base.size() - kValidation.size());
      const bool is_new = std::find(names.begin(), names.end(), base) == names.end();
      if (is_new && !is_known(base)) names.push_back(base);
    }
  }
  return names;
}

std::string training_charts(const std::vector<RunFigures>& runs) {
  std::string text;
  size_t number = 0;
  const auto add = [&](const std::string& title, Chart& chart) {
    if (!chart.lines.empty() && number < kMostCharts)
      text += chart_card(title, chart, runs, number++);
  };
  for (const std::string& name : names_of_losses(runs)) {
    Chart chart;
    add_saves(runs, chart);
    add_lines(runs, name, false, chart);
    const size_t own = chart.lines.size();
    add_lines(runs, name + std::string(kValidation), true, chart);
    chart.unit = unit_of_loss(name);
    const std::string title = chart.lines.size() > own ? name + ", dots: validation" : name;
    add(title, chart);
    if (const auto window = window_of_shortest(chart)) {
      chart.window = *window;
      add(fmt::format("{}, iterations {} to {}", title, grouped(window->first),
                      grouped(window->last)),
          chart);
    }
  }
  for (const KnownFigure& figure : kFigures) {
    Chart chart;
    if (figure.title.empty()) continue;
    chart.is_linear = figure.name == "learning_rate";
    chart.unit = figure.unit;
    add_lines(runs, std::string(figure.name), false, chart);
    const bool changes = std::any_of(chart.lines.begin(), chart.lines.end(), [](const auto& line) {
      return line.series->least() < line.series->most();
    });
    if (changes || !figure.is_steady) add(std::string(figure.title), chart);
  }
  return text;
}

}  // namespace ferry::tool
