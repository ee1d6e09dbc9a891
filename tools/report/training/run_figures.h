// What is known of a run's training: figures over iterations, saves, restarts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/report/training/log_lines.h"
#include "tools/report/training/series.h"

namespace ferry::tool {

using NamedSeries = std::vector<std::pair<std::string, Series>>;

/// A job that went on with the run, or began it anew.
struct Restart {
  int64_t iteration = 0;       // the first that it did
  int64_t replaced_until = 0;  // iterations from there to here were done before; 0: none
  std::string when;            // empty: unknown
};

struct RunFigures {
  std::string name;
  std::vector<std::string> sources;  // files and folders that were read
  NamedSeries series;  // names as LogRecord's; "tokens_per_second" or "samples_per_second" besides
  std::map<int64_t, std::string> saves;  // iteration: when, empty: unknown
  std::vector<int64_t> on_disk;          // iterations that a run folder holds whole, rising
  std::vector<Restart> restarts;
  std::vector<std::string> exits;  // why jobs ended
  bool has_ended = false;          // nothing is logged after the last exit
  std::string last_exit;           // of those with a time the latest
  int64_t first = 0, last = 0;     // iterations with figures
  int64_t planned = 0;             // iterations; 0: unknown
  int64_t lines = 0, lines_used = 0;
  std::vector<std::string> notes;

  const Series* find(std::string_view figure) const;  // null without points
};

/// Sum over the values of all points.
double total(const Series& series);

/// Takes a run's lines in their order. What begins again at an iteration replaces what there was
/// from there on. Memory is bounded: of a run with more names, restarts or saves than anyone reads,
/// the first are kept.
class RunFiguresBuilder {
 public:
  /// Adds the next line of any source.
  void add(const LogRecord& record);
  void add_line() { ++run_.lines; }
  void add_source(const std::string& path) { run_.sources.push_back(path); }
  void add_save(int64_t iteration, const std::string& when);
  void add_on_disk(int64_t iteration, const std::string& when);
  RunFigures finish(std::string name);

 private:
  // Log lines and JSON lines describe the same iterations, each in an order of its own.
  struct Lineage {
    NamedSeries series;
    std::vector<Restart> restarts;
    int64_t last = -1;
    std::string began, last_when;
    bool has_begun = false;  // a job, of which no figure was seen
  };

  void add_figures(const LogRecord& record, Lineage& lineage);
  void add_exit(const LogRecord& record);
  void note_activity(const LogRecord& record);
  void note_restart(const LogRecord& record, Lineage& lineage);
  void add_speed(const LogRecord& record, Lineage& lineage);
  void note(const std::string& text);

  RunFigures run_;
  Lineage log_, json_;
  int64_t sequence_length_ = 0;
  std::string last_active_, exited_;  // times, as far as log lines have them
};

}  // namespace ferry::tool
