#include <fmt/format.h>

#include "tools/estimate/estimate_output.h"
#include "tools/report/html.h"
#include "tools/terminal/flags.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

std::string html_of(const EstimateTable& table) {
  std::string text = fmt::format(
      "<section aria-labelledby=\"{0}\"><h2 id=\"{0}\">{1}</h2>\n<div class=\"scroll\" "
      "tabindex=\"0\" role=\"region\" aria-label=\"{1}\"><table><caption>{1}</caption>",
      table.id, html(table.heading));
  for (size_t row = 0; row < table.rows.size(); ++row) {
    const bool is_head = row == 0;
    text += is_head ? "<thead><tr>" : "<tr>";
    for (size_t i = 0; i < table.rows[row].size(); ++i) {
      text += fmt::format("<{0}{1}{2}>{3}</{0}>", is_head ? "th" : "td",
                          is_head ? " scope=\"col\"" : "", table.is_number[i] ? " class=\"n\"" : "",
                          html(table.rows[row][i]));
    }
    text += is_head ? "</tr></thead><tbody>\n" : "</tr>\n";
  }
  text += "</tbody></table></div>\n";
  if (!table.below.empty()) text += "<p class=\"soft\">" + html(table.below) + "</p>\n";
  return text + "</section>\n";
}

std::vector<std::string> notes_of(const EstimateOutput& output) {
  std::vector<std::string> notes = output.estimate->notes;
  if (!output.estimate->no_plan.empty()) {
    notes.push_back("no plan of memory: " + output.estimate->no_plan);
  }
  if (output.estimate->layouts) {
    notes.insert(notes.end(), output.estimate->layouts->notes.begin(),
                 output.estimate->layouts->notes.end());
  }
  return notes;
}

}  // namespace

std::string estimate_text(const EstimateOutput& output) {
  std::string text;
  std::vector<std::vector<std::string>> facts;
  for (const auto& [name, value] : estimate_facts(output)) facts.push_back({name, value});
  text += table(facts, {false, false}, "");
  for (const EstimateTable& one : estimate_tables(output)) {
    text += fmt::format("\n{}\n{}", one.heading, table(one.rows, one.is_number, "  "));
    if (!one.below.empty()) text += "  " + one.below + "\n";
  }
  return text + note_lines(notes_of(output));
}

std::string estimate_page(const EstimateOutput& output, const std::string& title) {
  HtmlPage page;
  page.title = html(title);
  page.subtitle = "What training it takes, by the trainer's own plan of memory";
  page.first = "facts";
  page.navigation = link_to("facts", "What it is");
  page.main =
      "<section aria-labelledby=\"facts\"><h2 id=\"facts\">What it is</h2>\n<div "
      "class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"What it is\"><table "
      "class=\"facts\"><caption>What it is</caption><tbody>\n";
  for (const auto& [name, value] : estimate_facts(output)) {
    page.main +=
        fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", html(name), html(value));
  }
  page.main += "</tbody></table></div>\n";
  for (const std::string& note : notes_of(output)) {
    page.main += "<p class=\"soft\">Note: " + html(in_flags(note)) + "</p>\n";
  }
  page.main += "</section>\n";
  for (const EstimateTable& one : estimate_tables(output)) {
    page.navigation += link_to(one.id, html(one.heading));
    page.main += html_of(one);
  }
  return html_page(page);
}

}  // namespace ferry::tool
