#include "tools/report/training/training_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tools/report/html.h"
#include "tools/report/training/chart.h"
#include "tools/report/training/training_charts.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr size_t kMostEvents = 200;  // of a run, in the table

std::string legend(const std::vector<RunFigures>& runs) {
  std::string text = "<ul class=\"legend\">";
  for (size_t i = 0; i < runs.size(); ++i) {
    text += "<li>" + line_sample(i) + "<span class=\"mono\">" + html(runs[i].name) + "</span></li>";
  }
  return text + "</ul>\n";
}

// A line of the table: one figure of every run.
struct FigureRow {
  std::string name;
  std::function<std::string(const RunFigures&)> value;
};

std::string iterations_text(const RunFigures& run) {
  if (run.last == 0) return "";
  std::string text = fmt::format("{} to {}", grouped(run.first), grouped(run.last));
  return run.planned > 0 ? text + " of " + grouped(run.planned) : text;
}

std::string last_text(const RunFigures& run, const std::string& name) {
  for (const auto& [known, series] : run.series) {
    if (known == name) return fmt::format("{:.6g}", series.latest());  // one that diverged, too
  }
  return "";
}

std::string least_text(const RunFigures& run, const std::string& name) {
  const Series* const series = run.find(name);
  if (series == nullptr) return "";
  return fmt::format("{:.6g} at {}", series->least(), grouped(series->iteration_of_least()));
}

std::string median_text(const RunFigures& run, const std::string& name) {
  const Series* const series = run.find(name);
  if (series == nullptr) return "";
  const double median = series->median();
  const bool is_count = median >= 1000 && median < 1e15;
  return is_count ? grouped(std::llround(median)) : fmt::format("{:.4g}", median);
}

std::string total_text(const RunFigures& run, const std::string& name) {
  const Series* const series = run.find(name);
  return series == nullptr ? "" : fmt::format("{:.0f}", total(*series));
}

std::string values_not_finite(const RunFigures& run) {
  std::string text;
  for (const auto& [name, series] : run.series) {
    if (series.not_finite() == 0) continue;
    text += fmt::format("{}{}: {}, first at {}", text.empty() ? "" : "; ", name,
                        grouped(series.not_finite()), grouped(series.first_not_finite()));
  }
  return text;
}

std::vector<FigureRow> figure_rows(const std::vector<RunFigures>& runs) {
  std::vector<FigureRow> all = {{"iterations", iterations_text}};
  for (const std::string& name : names_of_losses(runs)) {
    all.push_back({name + ", last", [name](const auto& run) { return last_text(run, name); }});
    const std::string validation = name + std::string(kValidation);
    all.push_back({validation + ", least",
                   [validation](const auto& run) { return least_text(run, validation); }});
  }
  for (const auto& [name, title] : {std::pair{"tokens_per_second", "tokens a second, median"},
                                    {"samples_per_second", "samples a second, median"},
                                    {"teraflops", "TFLOP/s a rank, median"},
                                    {"milliseconds", "milliseconds an iteration, median"}}) {
    const std::string figure = name;
    all.push_back({title, [figure](const auto& run) { return median_text(run, figure); }});
  }
  for (const auto& [name, title] : {std::pair{"skipped_iterations", "iterations skipped"},
                                    {"nan_iterations", "iterations with NaN"}}) {
    const std::string figure = name;
    all.push_back({title, [figure](const auto& run) { return total_text(run, figure); }});
  }
  all.push_back({"values that are not numbers", values_not_finite});
  const auto count = [](size_t number) { return grouped(static_cast<int64_t>(number)); };
  all.push_back({"restarts", [=](const auto& run) { return count(run.restarts.size()); }});
  all.push_back({"saves", [=](const auto& run) {
                   const std::string there =
                       run.on_disk.empty()
                           ? ""
                           : ", of which " + count(run.on_disk.size()) + " are there";
                   return count(run.saves.size()) + there;
                 }});
  all.push_back({"lines read", [](const auto& run) { return grouped(run.lines); }});
  return all;
}

std::string runs_section(const std::vector<RunFigures>& runs) {
  std::string text =
      "<section aria-labelledby=\"runs\"><h2 id=\"runs\">Runs</h2>\n<div class=\"scroll\" "
      "tabindex=\"0\" role=\"region\" aria-label=\"Runs\"><table><caption>Runs side by "
      "side</caption><thead><tr><th scope=\"col\">figure</th>";
  for (size_t i = 0; i < runs.size(); ++i) {
    text += "<th scope=\"col\" class=\"mono\">" + line_sample(i) + html(runs[i].name) + "</th>";
  }
  text += "</tr></thead><tbody>\n";
  for (const FigureRow& row : figure_rows(runs)) {
    std::string cells;
    bool is_any = false;
    for (const RunFigures& run : runs) {
      const std::string value = row.value(run);
      is_any = is_any || !value.empty();
      cells += "<td>" + html(value) + "</td>";
    }
    if (is_any) text += "<tr><th scope=\"row\">" + html(row.name) + "</th>" + cells + "</tr>\n";
  }
  text += "</tbody></table></div>\n";
  for (const RunFigures& run : runs) {
    for (const std::string& note : run.notes) {
      text += "<p class=\"soft\">Note on " + html(run.name) + ": " + html(note) + "</p>\n";
    }
  }
  return text + "</section>\n";
}

struct Event {
  int64_t iteration = 0;
  std::string what, when;
};

std::vector<Event> events_of(const RunFigures& run) {
  std::vector<Event> events;
  for (const Restart& restart : run.restarts) {
    std::string what = "restart";
    if (restart.replaced_until > 0) {
      what += fmt::format("; iterations up to {} are done again", grouped(restart.replaced_until));
    }
    events.push_back({restart.iteration, what, restart.when});
  }
  for (const auto& [iteration, when] : run.saves) {
    const bool is_there = std::binary_search(run.on_disk.begin(), run.on_disk.end(), iteration);
    events.push_back({iteration, is_there ? "saved, and there" : "saved", when});
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.iteration < b.iteration; });
  return events;
}

std::string events_section(const std::vector<RunFigures>& runs) {
  std::string text =
      "<section aria-labelledby=\"events\"><h2 id=\"events\">Saves and restarts</h2>\n";
  for (const RunFigures& run : runs) {
    const std::vector<Event> events = events_of(run);
    text += fmt::format(
        "<details{}><summary><span class=\"mono\">{}</span>: {}</summary>\n<div class=\"scroll\" "
        "tabindex=\"0\" role=\"region\" aria-label=\"Saves and restarts\"><table><caption>Saves "
        "and "
        "restarts</caption><thead><tr><th scope=\"col\" class=\"n\">iteration</th><th "
        "scope=\"col\">what</th><th scope=\"col\">when</th></tr></thead><tbody>\n",
        runs.size() == 1 ? " open" : "", html(run.name), events.size());
    const size_t begin = events.size() - std::min(events.size(), kMostEvents);
    for (size_t i = begin; i < events.size(); ++i) {
      text += fmt::format("<tr><td class=\"n\">{}</td><td>{}</td><td>{}</td></tr>\n",
                          grouped(events[i].iteration), html(events[i].what), html(events[i].when));
    }
    text += "</tbody></table></div>\n";
    if (begin > 0) text += fmt::format("<p class=\"soft\">and {} before</p>\n", begin);
    for (const std::string& why : run.exits) text += "<p class=\"soft\">" + html(why) + "</p>\n";
    text += "</details>\n";
  }
  return text + "</section>\n";
}

std::string sources_section(const std::vector<RunFigures>& runs) {
  std::string text = "<section aria-labelledby=\"sources\"><h2 id=\"sources\">Read from</h2><ul>\n";
  for (const RunFigures& run : runs) {
    for (const std::string& source : run.sources) {
      text += "<li class=\"mono\">" + html(source) + "</li>\n";
    }
  }
  return text + "</ul></section>\n";
}

}  // namespace

std::string training_page(const std::vector<RunFigures>& runs) {
  HtmlPage page;
  page.title = runs.size() == 1
                   ? html(runs[0].name)
                   : fmt::format("{} and {} more", html(runs[0].name), runs.size() - 1);
  page.subtitle =
      "Training, iteration by iteration; a line from top to bottom is a restart, a tick below a "
      "save";
  page.first = "runs";
  page.navigation = link_to("runs", "Runs") + link_to("figures", "Figures") +
                    link_to("events", "Saves and restarts") + link_to("sources", "Read from");
  page.main =
      runs_section(runs) +
      "<section aria-labelledby=\"figures\"><h2 id=\"figures\">Figures over iterations</h2>\n" +
      legend(runs) + "<div class=\"charts\">\n" + training_charts(runs) + "</div></section>\n" +
      events_section(runs) + sources_section(runs);
  return html_page(page);
}

}  // namespace ferry::tool
