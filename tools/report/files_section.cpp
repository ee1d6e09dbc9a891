// What each file holds.
#include <fmt/format.h>

#include <algorithm>

#include "ckpt/core/catalog.h"
#include "tools/report/html.h"
#include "tools/report/report_page.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr size_t kFilesListed = 256;

struct FileContent {
  int64_t pieces = 0, objects = 0;
  uint64_t model_bytes = 0, optimizer_bytes = 0;
};

std::vector<FileContent> contents(const Catalog& catalog) {
  std::vector<FileContent> files(catalog.files.size());
  for (const Entry& entry : catalog.entries) {
    for (const Chunk& chunk : entry.chunks) {
      FileContent& file = files[chunk.extent.file];
      ++file.pieces;
      const int64_t elements = chunk.elements(entry.name);
      const auto bytes = static_cast<uint64_t>(elements * size_bytes(entry.stored_dtype()));
      (entry.role == Role::model ? file.model_bytes : file.optimizer_bytes) += bytes;
    }
  }
  for (const Object& object : catalog.objects) ++files[object.extent.file].objects;
  return files;
}

std::string row(const FileContent& content, const FileInfo& file, const std::string& name,
                const std::string& label, int hue, uint64_t largest) {
  const auto width = [&](uint64_t bytes) {
    return 100.0 * static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(largest, 1));
  };
  return fmt::format(
      "<tr><td><span class=\"swatch\" style=\"--h:{}\">{}</span></td><th scope=\"row\" "
      "class=\"mono\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
      "<td style=\"min-width:12rem\"><span class=\"bar\" title=\"{} of the model, {} of the "
      "optimizer\"><i class=\"m\" style=\"width:{:.4g}%\"></i><i class=\"o\" "
      "style=\"width:{:.4g}%\"></i></span></td></tr>\n",
      hue, html(label), html(name), human_bytes(file.bytes), grouped(content.pieces),
      grouped(content.objects), human_bytes(content.model_bytes),
      human_bytes(content.optimizer_bytes), width(content.model_bytes),
      width(content.optimizer_bytes));
}

}  // namespace

std::string files_section(const Catalog& catalog, const std::vector<std::string>& labels,
                          const std::string& folder) {
  const std::vector<FileContent> all = contents(catalog);
  uint64_t largest = 0;
  for (const FileContent& file : all) {
    largest = std::max(largest, file.model_bytes + file.optimizer_bytes);
  }
  std::string text =
      "<section aria-labelledby=\"files\"><h2 id=\"files\">Files</h2>\n<div class=\"scroll\" "
      "tabindex=\"0\" role=\"region\" aria-label=\"Files\"><table><caption>Data files and what "
      "they "
      "hold</caption><thead><tr><th scope=\"col\">no.</th><th scope=\"col\">file</th><th "
      "scope=\"col\" class=\"n\">bytes</th><th scope=\"col\" class=\"n\">pieces</th><th "
      "scope=\"col\" class=\"n\">objects</th><th scope=\"col\">tensors</th></tr></thead><tbody>\n";
  for (size_t i = 0; i < all.size() && i < kFilesListed; ++i) {
    const std::string& path = catalog.files[i].path;
    const bool inside = path.starts_with(folder + "/");
    const std::string name = inside ? path.substr(folder.size() + 1) : path;
    text += row(all[i], catalog.files[i], name, labels[i], hue_of(i, all.size()), largest);
  }
  text += "</tbody></table></div>\n";
  if (all.size() > kFilesListed) {
    text += fmt::format("<p class=\"soft\">and {} more</p>\n",
                        grouped(static_cast<int64_t>(all.size() - kFilesListed)));
  }
  return text + "</section>\n";
}

}  // namespace ferry::tool
