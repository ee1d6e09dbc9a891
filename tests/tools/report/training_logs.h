// Logs of trainings that never were, and the figures in them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/io/memory_file_system.h"
#include "tools/report/training/run_sources.h"
#include "trainer/log/log_lines.h"

namespace ferry::tool {

inline TrainingLine training_line_of(int64_t iteration, double loss) {
  TrainingLine line;
  line.iteration = iteration;
  line.train_iterations = 100;
  line.consumed_samples = 8 * iteration;
  line.milliseconds = 500;
  line.learning_rate = 1e-3;
  line.batch_size = 8;
  line.losses = {{"lm loss", loss}};
  line.gradient_norm = 0.5;
  return line;
}

inline std::string log_of(int64_t first, int64_t last, double loss) {
  std::string log = "[before the start of training step] datetime: 2026-11-22 06:27:16.000001 \n";
  for (int64_t i = first; i <= last; ++i) log += training_line(training_line_of(i, loss)) + "\n";
  return log;
}

inline RunFigures run_of(const std::map<std::string, std::string>& files,
                         const std::string& paths) {
  MemoryFileSystem memory;
  for (const auto& [name, content] : files) memory.put(name, content);
  return read_run_figures(memory, paths);
}

}  // namespace ferry::tool
