#include "tools/report/training/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/report/html.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr double kLeft = 58, kRight = 512, kTop = 26, kBottom = 222, kBelow = 42;  // of the plot
constexpr int64_t kColumns = 454;     // in each of which a line has one point
constexpr size_t kMostDots = 60;      // of a line
constexpr size_t kMostMarks = 60;     // of a chart
constexpr double kShortPart = 0.125;  // of the width: a line that is as short has dots
constexpr size_t kMostTicks = 120;    // of a chart
constexpr std::array kHues = {212, 22, 150, 325, 265, 48, 185, 0};
constexpr std::array kDashes = {"", "7 3", "2 3", "9 3 2 3"};

struct Plot {
  ValueRange range;
  int64_t first = 0, last = 1;  // iterations

  bool has(const SeriesPoint& point) const { return point.last >= first && point.first <= last; }
  // Whether a line is too short to be seen next to longer ones.
  bool is_short(const Series& series) const {
    const double begin = std::max(x(static_cast<double>(series.points().front().first)), kLeft);
    const double end = std::min(x(static_cast<double>(series.points().back().last)), kRight);
    return end - begin < kShortPart * (kRight - kLeft);
  }
  double x(double iteration) const {
    const double part = (iteration - static_cast<double>(first)) /
                        std::max(1.0, static_cast<double>(last) - static_cast<double>(first));
    return kLeft + part * (kRight - kLeft);
  }
  // Halves, for the width of the widest range is not a number.
  double y(double value) const {
    double low = range.low, high = range.high;
    if (range.is_log) {
      low = std::log10(low), high = std::log10(high);
      value = std::log10(std::max(value, range.low));
    }
    const double part = (value / 2 - low / 2) / (high / 2 - low / 2);
    return kBottom - std::clamp(part, -0.5, 1.5) * (kBottom - kTop);
  }
};

double middle_of(const SeriesPoint& point) {
  return (static_cast<double>(point.first) + static_cast<double>(point.last)) / 2;
}

// The points, those of a column taken together.
std::vector<SeriesPoint> columns_of(const Series& series, const Plot& plot) {
  std::vector<SeriesPoint> columns;
  int64_t before = -1;
  for (const SeriesPoint& point : series.points()) {
    if (!plot.has(point)) continue;
    const auto column = static_cast<int64_t>((plot.x(middle_of(point)) - kLeft) / (kRight - kLeft) *
                                             static_cast<double>(kColumns));
    if (column != before) {
      columns.push_back(point);
    } else {
      SeriesPoint& into = columns.back();
      const double share =
          static_cast<double>(point.count) / static_cast<double>(into.count + point.count);
      into.mean = into.mean * (1 - share) + point.mean * share;
      into.least = std::min(into.least, point.least);
      into.most = std::max(into.most, point.most);
      into.last = point.last;
      into.count += point.count;
    }
    before = column;
  }
  return columns;
}

std::string path_of(const std::vector<SeriesPoint>& points, const Plot& plot) {
  std::string path;
  for (const SeriesPoint& point : points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", plot.x(middle_of(point)),
                        plot.y(point.mean));
  }
  if (points.size() == 1) path += "h.01";  // which round ends make a dot
  return path;
}

// From the most to the least of each column, where a column has several values.
std::string band_of(const std::vector<SeriesPoint>& points, const Plot& plot) {
  const bool is_any = std::any_of(points.begin(), points.end(),
                                  [](const auto& point) { return point.least < point.most; });
  if (!is_any) return "";
  std::string path;
  for (const SeriesPoint& point : points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", plot.x(middle_of(point)),
                        plot.y(point.most));
  }
  for (size_t i = points.size(); i-- > 0;) {
    path += fmt::format("L{:.1f} {:.1f}", plot.x(middle_of(points[i])), plot.y(points[i].least));
  }
  return path + "z";
}

std::string line_svg(const ChartLine& line, const Plot& plot) {
  const std::vector<SeriesPoint> points = columns_of(*line.series, plot);
  if (points.empty()) return "";
  const bool has_dots = line.has_dots || plot.is_short(*line.series);
  const int hue = hue_of_run(line.run);
  std::string svg = fmt::format("<g style=\"--h:{}\"><title>{}</title>", hue, html(line.label));
  if (const std::string band = band_of(points, plot); !band.empty()) {
    svg += fmt::format("<path class=\"band\" d=\"{}\"/>", band);
  }
  const char* const dashes = kDashes[line.run % kDashes.size()];
  svg += fmt::format(
      "<path class=\"line{}\" stroke-linecap=\"round\" stroke-dasharray=\"{}\" d=\"{}\"/>",
      line.has_dots ? " at" : "", *dashes == 0 ? "none" : dashes, path_of(points, plot));
  if (has_dots && points.size() <= kMostDots) {
    for (const SeriesPoint& point : points) {
      svg += fmt::format("<circle class=\"dot\" r=\"2.5\" cx=\"{:.1f}\" cy=\"{:.1f}\"/>",
                         plot.x(middle_of(point)), plot.y(point.mean));
    }
  }
  return svg + "</g>";
}

std::string axes_svg(const Plot& plot, const std::string& unit) {
  std::string svg;
  for (const double value : ticks(plot.range, 5)) {
    const double y = plot.y(value);
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{}\" "
        "y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
        kLeft, kRight, y, y, kLeft - 6, y + 4, tick_text(value));
  }
  const ValueRange iterations{static_cast<double>(plot.first), static_cast<double>(plot.last)};
  for (const double value : ticks(iterations, 5)) {
    if (value != std::floor(value)) continue;
    const double x = plot.x(value);
    const char* const anchor = x > kRight - 20 ? "end" : x < kLeft + 20 ? "start" : "middle";
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\">{}</text>", x, kBottom + 18,
                       anchor, tick_text(value));
  }
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">iteration</text>", kRight,
                     kBottom + 36);
  return svg + fmt::format("<text x=\"0\" y=\"12\">{}</text>", html(unit));
}

}  // namespace

std::string tick_text(double value) {
  if (value != 0 && (std::abs(value) >= 1e6 || std::abs(value) < 1e-3)) {
    return fmt::format("{:.3g}", value);
  }
  return std::abs(value) >= 1000 ? grouped(static_cast<int64_t>(std::llround(value)))
                                 : fmt::format("{:.4g}", value);
}

int hue_of_run(size_t run) { return kHues[run % kHues.size()]; }

std::string line_sample(size_t run) {
  const char* const dashes = kDashes[run % kDashes.size()];
  return fmt::format(
      "<svg aria-hidden=\"true\" aria-label=\"its line\" width=\"34\" height=\"8\" "
      "style=\"--h:{}\"><path class=\"line\" stroke-dasharray=\"{}\" d=\"M1 4h32\"/></svg>",
      hue_of_run(run), *dashes == 0 ? "none" : dashes);
}

std::string chart_svg(const Chart& chart, size_t number) {
  Plot plot;
  plot.range = value_range(chart.lines, chart.is_linear, chart.window);
  plot.first = INT64_MAX, plot.last = INT64_MIN;
  for (const ChartLine& line : chart.lines) {
    plot.first = std::min(plot.first, line.series->points().front().first);
    plot.last = std::max(plot.last, line.series->points().back().last);
  }
  plot.first = std::max(plot.first, chart.window.first);
  plot.last = std::min(plot.last, chart.window.last);
  std::string svg = fmt::format(
      "<svg class=\"chart\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {} {}\"><clipPath "
      "id=\"plot{}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>",
      html(chart.name), kRight + 8, kBottom + kBelow, number, kLeft - 3, kTop - 3,
      kRight - kLeft + 6, kBottom - kTop + 6);
  svg += axes_svg(plot, chart.unit) + fmt::format("<g clip-path=\"url(#plot{})\">", number);
  for (size_t i = 0; i < chart.marks.size() && i < kMostMarks; ++i) {
    const double x = plot.x(static_cast<double>(chart.marks[i]));
    svg += fmt::format(
        "<g><title>restart at iteration {}</title><path class=\"mark\" d=\"M{:.1f} {}V{}\"/></g>",
        chart.marks[i], x, kTop, kBottom);
  }
  for (size_t i = 0; i < chart.saves.size() && i < kMostTicks; ++i) {
    const ChartTick& save = chart.saves[i];
    svg += fmt::format(
        "<g style=\"--h:{}\"><title>saved at iteration {}</title><path class=\"line\" "
        "d=\"M{:.1f} {}v-7\"/></g>",
        hue_of_run(save.run), save.iteration, plot.x(static_cast<double>(save.iteration)), kBottom);
  }
  for (const bool is_short : {false, true}) {  // short ones above the others
    for (const ChartLine& line : chart.lines) {
      if (plot.is_short(*line.series) == is_short) svg += line_svg(line, plot);
    }
  }
  return svg + "</g></svg>";
}

}  // namespace ferry::tool
