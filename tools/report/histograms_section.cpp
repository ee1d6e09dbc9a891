// How values are distributed.
#include <fmt/format.h>

#include <algorithm>

#include "tools/report/html.h"
#include "tools/report/report_page.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr double kWidth = 300, kHeight = 90;

std::string bars(const std::vector<int64_t>& bins) {
  const int64_t most = *std::max_element(bins.begin(), bins.end());
  const double width = kWidth / static_cast<double>(bins.size());
  std::string path;
  for (size_t i = 0; i < bins.size(); ++i) {
    if (bins[i] == 0) continue;
    const double height =
        std::max(1.0, kHeight * static_cast<double>(bins[i]) / static_cast<double>(most));
    path += fmt::format("M{:.4g} {:.4g}h{:.4g}V{}H{:.4g}z", static_cast<double>(i) * width,
                        kHeight - height, std::max(width - 0.5, 0.5), kHeight,
                        static_cast<double>(i) * width);
  }
  return path;
}

std::string drawing(const Histogram& histogram) {
  constexpr double kTop = 16, kBottom = kTop + kHeight;
  const int64_t most = *std::max_element(histogram.bins.begin(), histogram.bins.end());
  std::string svg = fmt::format(
      "<svg class=\"hist\" role=\"img\" aria-label=\"histogram from {:.4g} to {:.4g}\" "
      "width=\"{}\" height=\"{}\" viewBox=\"0 0 {} {}\">",
      histogram.low, histogram.high, kWidth, kBottom + 18, kWidth, kBottom + 18);
  svg += fmt::format("<text y=\"11\">{} element{} at most in a bar</text>", grouped(most),
                     most == 1 ? "" : "s");
  svg += fmt::format(
      "<path transform=\"translate(0 {})\" d=\"{}\"/><line x2=\"{}\" y1=\"{}\" "
      "y2=\"{}\"/>",
      kTop, bars(histogram.bins), kWidth, kBottom, kBottom);
  return svg + fmt::format(
                   "<text y=\"{}\">{:.4g}</text><text x=\"{}\" y=\"{}\" "
                   "text-anchor=\"middle\">value</text><text x=\"{}\" y=\"{}\" "
                   "text-anchor=\"end\">{:.4g}</text></svg>",
                   kBottom + 14, histogram.low, kWidth / 2, kBottom + 14, kWidth, kBottom + 14,
                   histogram.high);
}

// What the drawing leaves out.
std::string far_away(const Histogram& histogram) {
  std::string text;
  if (histogram.below > 0) {
    text += fmt::format("{} below, down to {:.4g}", grouped(histogram.below), histogram.values.min);
  }
  if (histogram.above > 0) {
    text += fmt::format("{}{} above, up to {:.4g}", text.empty() ? "" : "; ",
                        grouped(histogram.above), histogram.values.max);
  }
  return text.empty() ? "" : "<p class=\"soft\">" + text + "</p>";
}

std::string card(const Entry& entry, const Histogram& histogram) {
  const Statistics& values = histogram.values;
  std::string text = fmt::format(
      "<article class=\"card\"><h3 class=\"mono\">{}</h3><p class=\"soft mono\">{} {}</p>",
      html(entry.name), html(safetensors_name(entry.dtype)), html(to_string(entry.shape)));
  if (!values.problem.empty()) return text + "<p>" + html(values.problem) + "</p></article>\n";
  text +=
      histogram.bins.empty() ? "<p>no finite value</p>" : drawing(histogram) + far_away(histogram);
  text += fmt::format(
      "<dl><dt>mean</dt><dd>{:.5g}</dd><dt>std</dt><dd>{:.5g}</dd><dt>NaN</dt><dd>{}</dd>"
      "<dt>Inf</dt><dd>{}</dd></dl>",
      values.mean, values.std, grouped(values.nan), grouped(values.infinite));
  return text + "</article>\n";
}

}  // namespace

std::string histograms_section(const ReportContent& content) {
  if (content.histograms.empty()) return "";
  std::string text =
      "<section aria-labelledby=\"values\"><h2 id=\"values\">Values</h2>\n<div class=\"cards\">\n";
  for (const auto& [entry, histogram] : content.histograms) text += card(*entry, histogram);
  return text + "</div></section>\n";
}

}  // namespace ferry::tool
