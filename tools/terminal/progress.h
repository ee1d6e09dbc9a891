// One line on a terminal that says how far a long run has come.
#pragma once

#include <chrono>
#include <string>

#include "ckpt/engine/engine.h"

namespace ferry::tool {

/// "  43%  1.23 GB of 2.87 GB  1.9 GB/s  2 s left"
std::string progress_line(const Progress& progress, double seconds);

/// Writes to standard error, only where that is a terminal, only once a second has passed,
/// and at most ten times a second.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what);
  ~ProgressLine();  // wipes the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const Progress& progress);
  double seconds() const;  // since construction

 private:
  std::string what_;
  std::chrono::steady_clock::time_point start_;
  bool terminal_;
  double last_ = 0;  // second of the last line
  bool shown_ = false;
};

}  // namespace ferry::tool
