// Which file holds which part of which tensor.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tools/report/chunk_map.h"
#include "tools/report/html.h"
#include "tools/report/report_page.h"
#include "tools/report/tensor_kinds.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr size_t kMostKinds = 160;
constexpr size_t kMostCells = 6000;  // of all maps together
constexpr size_t kMostCellsEach = 256;
constexpr double kMapWidth = 300;
constexpr double kLineHeight = 15;  // that a label needs
constexpr double kOutlined = 4;     // wide and high: a smaller cell would be all outline
constexpr size_t kFewCells = 16;    // that can all have labels

struct Labels {
  const Catalog& catalog;
  const std::vector<std::string>& names;
};

// The files of some chunks: "file 3", "8 files from 0 to 7".
std::string files_of(const Entry& entry, const ChunkMap::Cell& cell, const Labels& labels) {
  std::vector<uint64_t> files;
  for (size_t i = cell.first; i < cell.first + cell.chunks; ++i) {
    files.push_back(entry.chunks[i].extent.file);
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  if (files.size() == 1) return "file " + labels.names[files[0]];
  return fmt::format("{} files from {} to {}", grouped(static_cast<int64_t>(files.size())),
                     labels.names[files.front()], labels.names[files.back()]);
}

std::string cell_title(const Entry& entry, const ChunkMap::Cell& cell, const Labels& labels) {
  const Chunk& chunk = entry.chunks[cell.first];
  const std::string files = files_of(entry, cell, labels);
  if (cell.chunks > 1) return fmt::format("{} pieces in {}", cell.chunks, files);
  std::string what = to_string(chunk.box);
  if (chunk.is_run()) {
    what +=
        fmt::format(", elements {} to {}", chunk.run_begin, chunk.run_begin + chunk.run_count - 1);
  }
  return fmt::format("{} in {}", what, files);
}

std::string cell_svg(const Entry& entry, const ChunkMap::Cell& cell, const Labels& labels,
                     double height) {
  const double x = cell.x * kMapWidth, y = cell.y * height;
  const double w = cell.width * kMapWidth, h = cell.height * height;
  const uint32_t file = entry.chunks[cell.first].extent.file;
  const bool is_thin = std::min(w, h) < kOutlined;
  std::string svg = fmt::format(
      "<g><title>{}</title><rect{} x=\"{:.4g}\" y=\"{:.4g}\" width=\"{:.4g}\" height=\"{:.4g}\" "
      "style=\"--h:{}\"/>",
      html(cell_title(entry, cell, labels)), is_thin ? " class=\"thin\"" : "", x, y, w, h,
      hue_of(file, labels.catalog.files.size()));
  const std::string& label = labels.names[file];
  if (cell.chunks == 1 && h >= kLineHeight - 2 &&
      w >= 7.0 * static_cast<double>(label.size()) + 4) {
    svg +=
        fmt::format("<text x=\"{:.4g}\" y=\"{:.4g}\">{}</text>", x + w / 2, y + h / 2, html(label));
  }
  return svg + "</g>";
}

std::string map_svg(const Entry& entry, const ChunkMap& map, const Labels& labels,
                    std::string_view name) {
  const double height = std::clamp(static_cast<double>(map.rows) * kLineHeight, 30.0, 180.0);
  std::string svg = fmt::format(
      "<svg class=\"map\" role=\"img\" aria-label=\"{}\" width=\"{}\" height=\"{:.4g}\" "
      "viewBox=\"0 0 {} {:.4g}\">",
      html(name), kMapWidth, height, kMapWidth, height);
  for (const ChunkMap::Cell& cell : map.cells) svg += cell_svg(entry, cell, labels, height);
  return svg + "</svg>";
}

std::string row(const TensorKind& kind, size_t most_cells, const Labels& labels) {
  const Entry& entry = *kind.example;
  const ChunkMap map = chunk_map(entry, most_cells);
  std::string what = fmt::format("<span class=\"mono\">{}</span>", html(kind.name));
  if (!kind.states.empty()) {
    what += fmt::format("<br><span class=\"soft\">optimizer: {}</span>",
                        html(fmt::format("{}", fmt::join(kind.states, ", "))));
  }
  if (!kind.numbers.empty())
    what += fmt::format("<br><span class=\"soft\">* = {}</span>", html(kind.numbers));
  std::string cut = map.cut.empty() ? "whole" : map.cut;
  if (map.cells.size() > kFewCells || !map.to_scale) {
    cut += ", in " + files_of(entry, {0, 0, 1, 1, 0, entry.chunks.size()}, labels);
  }
  if (!map.to_scale) cut += "; not to scale";
  return fmt::format(
      "<tr><th scope=\"row\" class=\"name\">{}</th><td class=\"n\">{}</td><td "
      "class=\"mono\">{}<br>{}</td>"
      "<td class=\"n\">{}</td><td>{}<span class=\"soft\">{}</span></td></tr>\n",
      what, grouped(kind.tensors), html(safetensors_name(entry.dtype)),
      html(to_string(entry.shape)), human_bytes(kind.bytes), map_svg(entry, map, labels, cut),
      html(cut));
}

}  // namespace

int hue_of(size_t file, size_t files) {
  // 48 degrees apart where there are few files, a rainbow where there are many.
  if (files <= 7) return static_cast<int>(file * 51 + 205) % 360;
  return static_cast<int>(205 + file * 330 / files) % 360;
}

std::string map_section(const Catalog& catalog, const std::vector<std::string>& names) {
  const Labels labels{catalog, names};
  const std::vector<TensorKind> kinds = tensor_kinds(catalog);
  const size_t shown = std::min(kinds.size(), kMostKinds);
  const size_t most_cells =
      std::clamp<size_t>(kMostCells / std::max<size_t>(shown, 1), 24, kMostCellsEach);
  std::string text =
      "<section aria-labelledby=\"map\"><h2 id=\"map\">Where tensors are stored</h2>\n<p>Tensors "
      "that "
      "differ "
      "in a number of their names only, and are stored alike, share a row. Each box is a piece of "
      "the tensor; number and colour show the <a href=\"#files\">file</a> that holds it.</p>\n"
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Where tensors "
      "are stored\"><table>"
      "<caption>Tensors, and the files that hold their parts</caption><thead><tr><th "
      "scope=\"col\">tensor</th><th scope=\"col\" class=\"n\">tensors</th><th scope=\"col\">dtype, "
      "shape</th><th scope=\"col\" class=\"n\">bytes</th><th scope=\"col\">pieces by file</th></tr>"
      "</thead><tbody>\n";
  for (size_t i = 0; i < shown; ++i) text += row(kinds[i], most_cells, labels);
  text += "</tbody></table></div>\n";
  if (shown < kinds.size()) {
    int64_t tensors = 0;
    uint64_t bytes = 0;
    for (size_t i = shown; i < kinds.size(); ++i)
      tensors += kinds[i].tensors, bytes += kinds[i].bytes;
    text += fmt::format("<p class=\"soft\">and {} smaller tensors of {} more kinds, {}</p>\n",
                        grouped(tensors), grouped(static_cast<int64_t>(kinds.size() - shown)),
                        human_bytes(bytes));
  }
  return text + "</section>\n";
}

}  // namespace ferry::tool
