// A figure of one or several runs over their iterations, as a drawing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/report/training/series.h"

namespace ferry::tool {

struct ChartLine {
  const Series* series = nullptr;  // has points
  size_t run = 0;                  // whose colour and dashes it has
  bool has_dots = false;           // of a few values that are worth a dot each
  std::string label;               // "run a, lm loss validation"
};

/// Something that happened, at the lower edge.
struct ChartTick {
  int64_t iteration = 0;
  size_t run = 0;
};

/// Iterations from the first to the last.
struct IterationWindow {
  int64_t first = INT64_MIN, last = INT64_MAX;
};

struct Chart {
  std::string name;  // of what is drawn, for those who cannot see it
  std::vector<ChartLine> lines;
  std::vector<int64_t> marks;  // iterations with a line from top to bottom
  std::vector<ChartTick> saves;
  bool is_linear = false;       // whatever the values
  std::string unit = {};        // of the values
  IterationWindow window = {};  // what is drawn of the lines; at least one has points in it
};

/// What a chart shows of the values: all of them but single ones far away from the others.
struct ValueRange {
  double low = 0, high = 1;
  bool is_log = false;        // spread over powers of ten
  bool is_cut = false;        // some values are above
  bool is_cut_below = false;  // some values are below
};
ValueRange value_range(const std::vector<ChartLine>& lines, bool is_linear = false,
                       const IterationWindow& window = {});

/// A value as axes have it.
std::string tick_text(double value);

/// The hue, in degrees, that stands for a run.
int hue_of_run(size_t run);

/// About as many round numbers from low to high as `count`, by powers of ten where `is_log`.
std::vector<double> ticks(const ValueRange& range, int count);

/// An SVG element. Its size does not depend on how many points the lines have. `number` identifies
/// the chart within its page.
std::string chart_svg(const Chart& chart, size_t number);

/// A short piece of the line that stands for a run.
std::string line_sample(size_t run);

}  // namespace ferry::tool
