// One line on a terminal that says how far a long run has come.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "ckpt/engine/engine.h"

namespace ferry::tool {

/// "  43%  1.23 GB of 2.87 GB  1.9 GB/s  2 s left"
std::string progress_line(const Progress& progress, double seconds);

/// The text, cut to `columns` columns; 0: width unknown, not cut.
std::string cut_to_width(std::string text, size_t columns);

/// How progress is shown.
enum class ProgressManner { silent, in_place, line_by_line };

/// `terminal` is TERM, null if unset; `in_logs`: progress is also written to files and pipes.
ProgressManner progress_manner(bool is_terminal, const char* terminal, bool in_logs);

/// Whether to print another line `elapsed` seconds after the start; the last one was at `last`.
bool is_progress_due(ProgressManner manner, double elapsed, double last);

/// Writes to standard error. On a terminal the line is rewritten in place, at most ten times a
/// second, starting after one second. On a dumb terminal (TERM=dumb), and with `in_logs` elsewhere,
/// a new line is printed every half minute.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what, bool in_logs = false);
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
