// What one line of a run's logs says: those of Megatron-LM and of ferry train, JSON lines of
// --metrics-json, progress.txt. Lines are anybody's: what is no such line says nothing.
//
// Source: Megatron-LM megatron/training/training.py (training_log, evaluate_and_print_results,
// print_datetime), checkpointing.py, utils/log_utils.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ferry::tool {

struct LogRecord {
  enum class Kind : uint8_t {
    nothing,
    figures,          // of an iteration, or of an evaluation after it
    saved,            // a checkpoint of an iteration
    job_began,        // a process begins to train
    exit,             // text: why; figures: what of `iteration` was not finite
    sequence_length,  // iteration: that many tokens
  };
  Kind kind = Kind::nothing;
  bool is_json = false;
  bool is_validation = false;  // figures of an evaluation
  int64_t iteration = 0;       // at least 0
  int64_t planned = 0;         // iterations of the run; 0: unknown
  std::string when;            // "2026-11-22 06:27:19", empty: unknown
  std::string text;
  /// By the names that --metrics-json gives them: "lm loss", "learning_rate", "lm loss validation".
  /// Values may be NaN.
  std::vector<std::pair<std::string, double>> figures;
};

/// `line` without its newline; what is not text makes no difference to safety.
LogRecord read_log_line(std::string_view line);

}  // namespace ferry::tool
