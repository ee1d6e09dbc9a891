// One line on a terminal that says how far a long run has come.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "ckpt/engine/engine.h"

namespace ferry::tool {

/// "  43%  1.23 GB of 2.87 GB  1.9 GB/s  2 s left"
std::string progress_line(const Progress& progress, double seconds);

/// The text, or as much of it as `columns` columns show; no columns: nobody knows how many.
std::string cut_to_width(std::string text, size_t columns);

/// How a progress is told.
enum class ProgressManner { silent, in_place, line_by_line };

/// By whether it is told to a terminal, and to which (TERM; null: unset), and whether it is wanted
/// in files, too.
ProgressManner progress_manner(bool is_terminal, const char* terminal, bool wanted_in_logs);

/// Whether another line is to be told `elapsed` seconds after the start, the last one at `last`.
bool is_progress_due(ProgressManner manner, double elapsed, double last);

/// Writes to standard error. Where that is a terminal, the line is written again in its place, at
/// most ten times a second, once a second has passed. On a terminal that cannot do that
/// (TERM=dumb), and where `wanted_in_logs` and it is no terminal, a line of its own is added every
/// half minute.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what, bool wanted_in_logs = false);
  ~ProgressLine();  // wipes the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const Progress& progress);
  double seconds() const;  // since construction

 private:
  std::string what_;
  std::chrono::steady_clock::time_point start_;
  ProgressManner manner_;
  double last_ = 0;  // second of the last line
  bool shown_ = false;
};

}  // namespace ferry::tool
