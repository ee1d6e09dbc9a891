#include "tools/report/training/run_figures.h"

#include <fmt/format.h>

#include <algorithm>

namespace ferry::tool {
namespace {

constexpr size_t kMostSeries = 64, kMostRestarts = 1000, kMostSaves = 10'000, kMostExits = 100;

Series* series_of(NamedSeries& all, const std::string& name) {
  for (auto& [known, series] : all) {
    if (known == name) return &series;
  }
  if (all.size() >= kMostSeries) return nullptr;
  return &all.emplace_back(name, Series{}).second;
}

void add_point(NamedSeries& all, const std::string& name, int64_t iteration, double value) {
  Series* const series = series_of(all, name);
  if (series == nullptr) return;
  const auto& points = series->points();
  if (!points.empty() && points.back().last > iteration) series->forget_from(iteration);
  series->add(iteration, value);
}

double figure(const LogRecord& record, std::string_view name) {
  for (const auto& [known, value] : record.figures) {
    if (known == name) return value;
  }
  return 0;
}

}  // namespace

const Series* RunFigures::find(std::string_view figure) const {
  for (const auto& [known, one] : series) {
    if (known == figure) return one.points().empty() ? nullptr : &one;
  }
  return nullptr;
}

double total(const Series& series) {
  double sum = 0;
  for (const SeriesPoint& point : series.points()) {
    sum += point.mean * static_cast<double>(point.count);
  }
  return sum;
}

void RunFiguresBuilder::note(const std::string& text) {
  if (std::find(run_.notes.begin(), run_.notes.end(), text) == run_.notes.end()) {
    run_.notes.push_back(text);
  }
}

void RunFiguresBuilder::add(const LogRecord& record) {
  if (record.kind == LogRecord::Kind::nothing) return;
  ++run_.lines_used;
  switch (record.kind) {
    case LogRecord::Kind::figures:
      add_figures(record, record.is_json ? json_ : log_);
      break;
    case LogRecord::Kind::saved:
      add_save(record.iteration, record.when);
      break;
    case LogRecord::Kind::job_began:
      log_.has_begun = true;
      log_.began = record.when;
      note_activity(record);
      break;
    case LogRecord::Kind::exit:
      add_exit(record);
      break;
    case LogRecord::Kind::sequence_length:
      sequence_length_ = record.iteration;
      break;
    case LogRecord::Kind::nothing:
      break;
  }
}

// Logs of jobs may come in another order than that of the jobs: where there are times, they count.
void RunFiguresBuilder::add_exit(const LogRecord& record) {
  for (const auto& [name, value] : record.figures) {
    add_point(log_.series, name, record.iteration, value);
  }
  const std::string text = record.when.empty() ? record.text : record.when + " " + record.text;
  if (run_.exits.size() < kMostExits) run_.exits.push_back(text);
  if (record.when.empty() || record.when >= exited_) {
    run_.last_exit = text;
    exited_ = record.when;
  }
  if (record.when.empty() || record.when >= last_active_) run_.has_ended = true;
}

void RunFiguresBuilder::note_activity(const LogRecord& record) {
  if (record.when.empty() || exited_.empty() || record.when > exited_) run_.has_ended = false;
  last_active_ = std::max(last_active_, record.when);
}

void RunFiguresBuilder::note_restart(const LogRecord& record, Lineage& lineage) {
  const bool is_back = record.iteration < lineage.last;
  const bool is_first = lineage.last < 0;
  if (!is_first && (is_back || lineage.has_begun)) {
    const int64_t replaced = record.iteration <= lineage.last ? lineage.last : 0;
    if (lineage.restarts.size() < kMostRestarts) {
      const std::string& when = lineage.began.empty() ? record.when : lineage.began;
      lineage.restarts.push_back({record.iteration, replaced, when});
    } else {
      note(fmt::format("of more restarts than {} the first are shown", kMostRestarts));
    }
    if (is_back && !record.when.empty() && record.when < lineage.last_when) {
      note(
          "lines of a later part are older than those before it; give files in the order of their "
          "jobs");
    }
    for (auto& [name, series] : lineage.series) series.forget_from(record.iteration);
  }
  lineage.has_begun = false;
  lineage.began.clear();
}

void RunFiguresBuilder::add_figures(const LogRecord& record, Lineage& lineage) {
  if (!record.is_validation) {
    if (!record.is_json) note_activity(record);  // JSON lines have no times
    note_restart(record, lineage);
    lineage.last = record.iteration;
    if (!record.when.empty()) lineage.last_when = record.when;
    if (record.planned > 0) run_.planned = record.planned;
    add_speed(record, lineage);
  }
  for (const auto& [name, value] : record.figures) {
    add_point(lineage.series, name, record.iteration, value);
  }
  if (lineage.series.size() >= kMostSeries) {
    note(fmt::format("of more names of figures than {} the first are shown", kMostSeries));
  }
}

void RunFiguresBuilder::add_speed(const LogRecord& record, Lineage& lineage) {
  const double milliseconds = figure(record, "milliseconds");
  const double samples = figure(record, "global_batch_size");
  if (!(milliseconds > 0) || !(samples > 0)) return;
  const double length = sequence_length_ > 0 ? static_cast<double>(sequence_length_) : 1;
  add_point(lineage.series, sequence_length_ > 0 ? "tokens_per_second" : "samples_per_second",
            record.iteration, samples * length * 1000 / milliseconds);
}

void RunFiguresBuilder::add_save(int64_t iteration, const std::string& when) {
  const auto found = run_.saves.find(iteration);
  if (found != run_.saves.end()) {
    if (!when.empty()) found->second = when;
  } else if (run_.saves.size() < kMostSaves) {
    run_.saves.emplace(iteration, when);
  } else {
    note(fmt::format("of more saves than {} the first are shown", kMostSaves));
  }
}

void RunFiguresBuilder::add_on_disk(int64_t iteration, const std::string& when) {
  run_.on_disk.push_back(iteration);
  const auto found = run_.saves.find(iteration);
  add_save(iteration, found == run_.saves.end() || found->second.empty() ? when : "");
}

RunFigures RunFiguresBuilder::finish(std::string name) {
  run_.name = std::move(name);
  // JSON lines have all digits, and each iteration's own loss where log lines have averages.
  run_.series = std::move(json_.series);
  for (auto& [known, series] : log_.series) {
    const Series* const there = run_.find(known);
    if (there == nullptr)
      std::erase_if(run_.series, [&](const auto& s) { return s.first == known; });
    if (there == nullptr) run_.series.emplace_back(known, std::move(series));
  }
  run_.restarts = log_.restarts.empty() ? std::move(json_.restarts) : std::move(log_.restarts);
  bool is_any = false;
  for (const auto& [known, series] : run_.series) {
    if (series.points().empty()) continue;
    const int64_t first = series.points().front().first, last = series.points().back().last;
    run_.first = is_any ? std::min(run_.first, first) : first;
    run_.last = is_any ? std::max(run_.last, last) : last;
    is_any = true;
  }
  std::sort(run_.on_disk.begin(), run_.on_disk.end());
  return std::move(run_);
}

}  // namespace ferry::tool
