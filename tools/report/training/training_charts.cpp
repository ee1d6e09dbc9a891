#include "tools/report/training/training_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tools/report/html.h"
#include "tools/report/training/chart.h"

namespace ferry::tool {
namespace {

constexpr size_t kMostCharts = 40;

struct KnownFigure {
  std::string_view name, title;
  bool is_steady;  // worth a drawing only where it changes
};
// In the order of the page, behind the losses.
constexpr std::array kFigures = {KnownFigure{"learning_rate", "Learning rate", false},
                                 KnownFigure{"grad_norm", "Norm of the gradients", false},
                                 KnownFigure{"tokens_per_second", "Tokens a second", false},
                                 KnownFigure{"samples_per_second", "Samples a second", false},
                                 KnownFigure{"teraflops", "TFLOP/s a rank", false},
                                 KnownFigure{"milliseconds", "Milliseconds an iteration", false},
                                 KnownFigure{"global_batch_size", "Samples an iteration", true},
                                 KnownFigure{"loss_scale", "Loss scale", true},
                                 KnownFigure{"params_norm", "Norm of the parameters", false},
                                 KnownFigure{"num_zeros", "Zeros in the gradients", true},
                                 KnownFigure{"skipped_iterations", "Iterations skipped", true},
                                 KnownFigure{"nan_iterations", "Iterations with NaN", true},
                                 KnownFigure{"skipped_samples", "Samples skipped", true},
                                 KnownFigure{"consumed_samples", "", true}};

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

std::string chart_card(const std::string& title, Chart& chart, const std::vector<RunFigures>& runs,
                       size_t number) {
  for (const RunFigures& run : runs) {
    for (const Restart& restart : run.restarts) chart.marks.push_back(restart.iteration);
  }
  chart.name = title + " over iterations";
  const ValueRange range = value_range(chart.lines, chart.is_linear);
  std::string more;
  if (range.is_cut) more += fmt::format("; some values are above {:.4g}", range.high);
  if (range.is_log) more += "; by powers of ten";
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
    add(chart.lines.size() > own ? name + ", dots: validation" : name, chart);
  }
  for (const KnownFigure& figure : kFigures) {
    Chart chart;
    if (figure.title.empty()) continue;
    chart.is_linear = figure.name == "learning_rate";
    add_lines(runs, std::string(figure.name), false, chart);
    const bool changes = std::any_of(chart.lines.begin(), chart.lines.end(), [](const auto& line) {
      return line.series->least() < line.series->most();
    });
    if (changes || !figure.is_steady) add(std::string(figure.title), chart);
  }
  return text;
}

}  // namespace ferry::tool
