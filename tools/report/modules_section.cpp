// Sizes by module, as a tree to open.
#include <fmt/format.h>

#include <algorithm>

#include "tools/report/html.h"
#include "tools/report/module_tree.h"
#include "tools/report/report_page.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr size_t kMostChildren = 60;

double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string row(const ModuleNode& node, uint64_t whole) {
  std::string name = html(node.name);
  if (node.numbers.size() > 1) {
    name += fmt::format(" <span class=\"soft\">({} of them)</span>", node.numbers.size());
  }
  return fmt::format(
      "<span class=\"row\"><span class=\"mono\">{}</span><span class=\"n\">{}</span><span "
      "class=\"bar\" title=\"{:.1f} % of all: {} of the model, {} of the optimizer\"><i "
      "class=\"m\" "
      "style=\"width:{:.4g}%\"></i><i class=\"o\" style=\"width:{:.4g}%\"></i></span></span>",
      name, human_bytes(node.bytes()), percent(node.bytes(), whole), human_bytes(node.model_bytes),
      human_bytes(node.optimizer_bytes), percent(node.model_bytes, whole),
      percent(node.optimizer_bytes, whole));
}

std::string node_html(const ModuleNode& node, uint64_t whole, int level) {
  if (node.children.empty()) return "<div class=\"leaf\">" + row(node, whole) + "</div>\n";
  std::string text = fmt::format("<details{}><summary>{}</summary>\n", level == 0 ? " open" : "",
                                 row(node, whole));
  const size_t shown = std::min(node.children.size(), kMostChildren);
  for (size_t i = 0; i < shown; ++i) text += node_html(node.children[i], whole, level + 1);
  if (shown < node.children.size()) {
    text += fmt::format("<div class=\"leaf soft\">and {} more</div>\n",
                        grouped(static_cast<int64_t>(node.children.size() - shown)));
  }
  return text + "</details>\n";
}

}  // namespace

std::string modules_section(const Catalog& catalog) {
  const ModuleNode root = module_tree(catalog);
  std::string text =
      "<section aria-labelledby=\"modules\"><h2 id=\"modules\">Sizes by module</h2>\n<p>Layers and "
      "experts are added up: <code>*</code> stands for their numbers. <span class=\"key\"><i "
      "class=\"m\"></i>model</span><span class=\"key\"><i class=\"o\"></i>optimizer</span></p>\n"
      "<div class=\"scroll tree\">\n";
  for (size_t i = 0; i < root.children.size() && i < kMostChildren; ++i) {
    text += node_html(root.children[i], root.bytes(), 0);
  }
  if (root.children.size() > kMostChildren) {
    text += fmt::format("<div class=\"leaf soft\">and {} more</div>\n",
                        grouped(static_cast<int64_t>(root.children.size() - kMostChildren)));
  }
  return text + "</div></section>\n";
}

}  // namespace ferry::tool
