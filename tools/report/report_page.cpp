#include "tools/report/report_page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/report/html.h"
#include "tools/report/tensor_kinds.h"
#include "tools/terminal/flags.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr size_t kMostObjects = 200;
constexpr size_t kMostValue = 300;  // characters of an argument

std::string tile(const std::string& number, std::string_view what) {
  return fmt::format("<div class=\"tile\"><b>{}</b>{}</div>", html(number), what);
}

std::string tiles(const InspectReport& report) {
  const Catalog& catalog = report.checkpoint->catalog;
  size_t pieces = 0;
  for (const Entry& entry : catalog.entries) pieces += entry.chunks.size();
  const auto count = [](size_t number) { return grouped(static_cast<int64_t>(number)); };
  return "<div class=\"tiles\">" + tile(human_count(report.count.parameters), "parameters") +
         tile(human_bytes(report.file_bytes), "in " + count(catalog.files.size()) + " data files") +
         tile(count(catalog.entries.size()), "tensors in " + count(pieces) + " pieces") +
         tile(count(catalog.objects.size()), "objects besides") + "</div>\n";
}

std::string fact_rows(const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string text;
  for (const auto& [key, value] : facts) {
    text += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", html(key), html(value));
  }
  return text;
}

std::string html_table(std::string_view caption, const std::string& rows) {
  return fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table "
      "class=\"facts\">"
      "<caption>{0}</caption><tbody>\n{1}</tbody></table></div>\n",
      caption, rows);
}

std::string overview(const InspectReport& report) {
  std::string text = "<section aria-labelledby=\"overview\"><h2 id=\"overview\">What it is</h2>\n" +
                     html_table("What the checkpoint is", fact_rows(facts(report)));
  for (const std::string& note : report.checkpoint->notes) {
    text += "<p class=\"soft\">Note: " + html(in_flags(note)) + "</p>\n";
  }
  return text + "</section>\n";
}

std::string brief_text(const nlohmann::json& value) {
  return shortened(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                   kMostValue);
}

std::string arguments(const InspectReport& report) {
  if (!report.checkpoint->args.document) return "";
  nlohmann::json values = ferry::to_json(report.checkpoint->args.value);
  if (!values.is_object()) return "";
  values.erase("__class__");
  std::vector<std::pair<std::string, std::string>> rows;
  for (const auto& [key, value] : values.items()) rows.emplace_back(key, brief_text(value));
  return fmt::format(
      "<section aria-labelledby=\"arguments\"><h2 id=\"arguments\">Arguments of the run</h2>\n"
      "<details><summary>{} arguments</summary>\n{}</details></section>\n",
      rows.size(), html_table("Arguments of the run", fact_rows(rows)));
}

std::string objects(const Catalog& catalog) {
  if (catalog.objects.empty()) return "";
  std::string list;
  for (size_t i = 0; i < catalog.objects.size() && i < kMostObjects; ++i) {
    list += "<li class=\"mono\">" + html(catalog.objects[i].name) + "</li>\n";
  }
  if (catalog.objects.size() > kMostObjects) {
    list += fmt::format("<li>and {} more</li>\n", catalog.objects.size() - kMostObjects);
  }
  return fmt::format(
      "<section aria-labelledby=\"objects\"><h2 id=\"objects\">Objects besides the tensors</h2>\n"
      "<details><summary>{} objects</summary><ul>\n{}</ul></details></section>\n",
      catalog.objects.size(), list);
}

std::string navigation(const ReportContent& content) {
  const Checkpoint& checkpoint = *content.inspect->checkpoint;
  std::string text;
  const auto add = [&](bool is_there, const char* id, const char* name) {
    if (is_there) text += link_to(id, name);
  };
  add(true, "overview", "What it is");
  add(true, "modules", "Sizes by module");
  add(true, "map", "Where tensors are stored");
  add(true, "files", "Files");
  add(!content.histograms.empty(), "values", "Values");
  add(!checkpoint.catalog->objects.empty(), "objects", "Objects");
  add(static_cast<bool>(checkpoint.args.document), "arguments", "Arguments");
  return text;
}

}  // namespace

std::string report_page(const ReportContent& content) {
  const InspectReport& report = *content.inspect;
  const Checkpoint& checkpoint = *report.checkpoint;
  const Catalog& catalog = checkpoint.catalog;
  const std::vector<std::string> labels = file_labels(catalog);
  HtmlPage page;
  page.title = html(checkpoint.path);
  page.subtitle =
      fmt::format("A {} checkpoint{}", html(name(checkpoint.format)),
                  checkpoint.iteration ? ", iteration " + grouped(*checkpoint.iteration) : "");
  page.first = "overview";
  page.navigation = navigation(content);
  page.main = tiles(report) + overview(report) + modules_section(catalog) +
              map_section(catalog, labels) + files_section(catalog, labels, checkpoint.path) +
              histograms_section(content) + objects(catalog) + arguments(report);
  return html_page(page);
}

}  // namespace ferry::tool
