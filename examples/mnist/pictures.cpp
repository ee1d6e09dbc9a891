#include "pictures.h"

#include <fmt/format.h>
#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "ckpt/base/error.h"

namespace ferry::mnist {
namespace {

constexpr double kWidth = 640, kHeight = 300, kLeft = 60, kRight = 20, kTop = 40, kBottom = 40;

// No more points than an image can show: means of neighbours.
std::vector<std::pair<double, double>> thinned(
    const std::vector<std::pair<double, double>>& points) {
  constexpr size_t kMost = 250;
  const size_t group = (points.size() + kMost - 1) / kMost;
  if (group <= 1) return points;
  std::vector<std::pair<double, double>> few;
  for (size_t begin = 0; begin < points.size(); begin += group) {
    const size_t end = std::min(begin + group, points.size());
    double x = 0, y = 0;
    for (size_t i = begin; i < end; ++i) {
      x += points[i].first;
      y += points[i].second;
    }
    const auto count = static_cast<double>(end - begin);
    few.emplace_back(x / count, y / count);
  }
  return few;
}

// Round numbers, of which a few are in the range.
double step_of(double range) {
  const double power = std::pow(10, std::floor(std::log10(range / 3)));
  for (const double step : {power, 2 * power, 5 * power}) {
    if (range / step <= 6) return step;
  }
  return 10 * power;
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     text);
}

std::string line(double x1, double y1, double x2, double y2) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", x1, y1,
      x2, y2);
}

std::string svg(double width, double height, const std::string& content) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" "
      "height=\"{1}\" fill=\"white\"/>\n{2}</svg>\n",
      width, height, content);
}

// White with so much of a colour.
std::string mixed(const std::array<int, 3>& colour, double share) {
  std::string text = "#";
  for (const int part : colour) {
    text += fmt::format("{:02x}", static_cast<int>(255 - share * (255 - part)));
  }
  return text;
}

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

// A part of a PNG file (W3C, Portable Network Graphics, section 5.3).
std::string chunk(const std::string& type, const std::string& data) {
  const std::string checked = type + data;
  const uint32_t crc =
      crc32_gzip_refl(0, reinterpret_cast<const unsigned char*>(checked.data()), checked.size());
  return big_endian(static_cast<uint32_t>(data.size())) + checked + big_endian(crc);
}

std::string deflated(const std::string& text) {
  isal_zstream stream;
  isal_deflate_stateless_init(&stream);
  std::string packed(text.size() + 1024, 0);
  stream.gzip_flag = IGZIP_ZLIB;
  stream.end_of_stream = 1;
  stream.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uint32_t>(text.size());
  stream.next_out = reinterpret_cast<uint8_t*>(packed.data());
  stream.avail_out = static_cast<uint32_t>(packed.size());
  if (isal_deflate_stateless(&stream) != COMP_OK) {
    fail(ErrorKind::internal, "an image of {} bytes cannot be packed", text.size());
  }
  packed.resize(stream.total_out);
  return packed;
}

}  // namespace

std::string curves_svg(const std::string& title, const std::vector<Curve>& curves) {
  double most_x = 1, most_y = 1e-9;
  for (const Curve& curve : curves) {
    for (const auto& [x, y] : curve.points) {
      most_x = std::max(most_x, x);
      most_y = std::max(most_y, y);
    }
  }
  const auto place_x = [&](double x) { return kLeft + x / most_x * (kWidth - kLeft - kRight); };
  const auto place_y = [&](double y) {
    return kHeight - kBottom - y / most_y * (kHeight - kTop - kBottom);
  };
  std::string content = label(kLeft, 20, "start", title);
  for (double y = 0; y <= most_y; y += step_of(most_y)) {
    content += line(kLeft, place_y(y), kWidth - kRight, place_y(y)) +
               label(kLeft - 6, place_y(y) + 4, "end", fmt::format("{:.3g}", y));
  }
  for (double x = 0; x <= most_x; x += step_of(most_x)) {
    content += label(place_x(x), kHeight - kBottom + 18, "middle", fmt::format("{:.0f}", x));
  }
  content += label(kWidth - kRight, kHeight - 6, "end", "iteration");
  double legend = kWidth - kRight;
  for (const Curve& curve : curves) {
    std::string points;
    for (const auto& [x, y] : thinned(curve.points)) {
      points += fmt::format("{:.1f},{:.1f} ", place_x(x), place_y(y));
    }
    content +=
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n",
                    points, curve.colour);
    content +=
        fmt::format("<g fill=\"{}\">{}</g>\n", curve.colour, label(legend, 20, "end", curve.name));
    legend -= 8.0 * static_cast<double>(curve.name.size());
  }
  return svg(kWidth, kHeight, content);
}

std::string confusion_svg(const Confusion& counts) {
  constexpr double kCell = 40, kFirst = 60;
  std::string content = label(kFirst, 20, "start", "digits (rows) by prediction (columns)");
  for (size_t digit = 0; digit < counts.size(); ++digit) {
    const std::vector<int64_t>& row = counts[digit];
    int64_t all = 0;
    for (const int64_t count : row) all += count;
    const double y = kFirst + kCell * static_cast<double>(digit);
    content += label(kFirst - 10, y + 25, "end", std::to_string(digit)) +
               label(y + kCell / 2, kFirst - 10, "middle", std::to_string(digit));
    for (size_t guess = 0; guess < row.size(); ++guess) {
      const double x = kFirst + kCell * static_cast<double>(guess);
      const double share =
          static_cast<double>(row[guess]) / static_cast<double>(std::max<int64_t>(all, 1));
      const std::string colour = guess == digit
                                     ? mixed({0x22, 0xaa, 0x77}, share)
                                     : mixed({0xcc, 0x33, 0x33}, std::min(1.0, 8 * share));
      content += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#ddd\"/>\n", x,
          y, kCell, kCell, colour);
      if (row[guess] > 0)
        content += label(x + kCell / 2, y + 25, "middle", std::to_string(row[guess]));
    }
  }
  const double side = kFirst + kCell * static_cast<double>(counts.size()) + 20;
  return svg(side, side, content);
}

std::string digits_png(const std::vector<std::vector<std::vector<float>>>& rows) {
  constexpr size_t kZoom = 3, kGap = 1;
  constexpr auto kCell = static_cast<size_t>(kSide) + kGap;
  size_t columns = 0;
  for (const auto& row : rows) columns = std::max(columns, row.size());
  const size_t width = columns * kCell * kZoom, height = rows.size() * kCell * kZoom;
  std::string lines;
  for (size_t y = 0; y < height; ++y) {
    lines += '\0';  // no filter
    const size_t cell_y = y / kZoom % kCell;
    const auto& row = rows[y / kZoom / kCell];
    for (size_t x = 0; x < width; ++x) {
      const size_t column = x / kZoom / kCell, cell_x = x / kZoom % kCell;
      float dark = 0;
      if (column < row.size() && cell_x < kCell - kGap && cell_y < kCell - kGap) {
        dark = row[column][cell_y * static_cast<size_t>(kSide) + cell_x];
      }
      const auto grey = static_cast<uint8_t>(255.0F * (1 - std::clamp(dark, 0.0F, 1.0F)));
      lines += static_cast<char>(grey);
    }
  }
  const std::string header = big_endian(static_cast<uint32_t>(width)) +
                             big_endian(static_cast<uint32_t>(height)) +
                             std::string("\x08\0\0\0\0", 5);  // 8 bits of grey
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", deflated(lines)) +
         chunk("IEND", "");
}

}  // namespace ferry::mnist
