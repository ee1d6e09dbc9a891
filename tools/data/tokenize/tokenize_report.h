// What `ferry data tokenize` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/data/tokenize/tokenize_run.h"
#include "tools/terminal/progress.h"

namespace ferry::tool {

struct TokenizedText {
  std::vector<std::string> outputs, inputs;
  std::string tokenizer;
  int64_t vocab_size = 0;
  std::string training_options;  // that name the tokenizer to ferry train
  DType type = DType::u16;
  Part part;
  int workers = 1;
  uint64_t input_bytes = 0;  // as they are stored; 0: not known
  TokenizeResult result;
  bool dry_run = false;
  double seconds = 0;
};
std::string to_text(const TokenizedText& tokenized);
nlohmann::json to_json(const TokenizedText& tokenized);

/// preprocess_data.py's own lines, for scripts that read them, and a progress line on a terminal.
class TokenizeLog {
 public:
  /// `interval`: documents from one line to the next; 0: at thousands, but at most one a second.
  TokenizeLog(int64_t interval, bool quiet, uint64_t total_bytes);

  /// "Processing data with N workers.", "Opening ..." and "Time to startup: ..."
  void begin(const TokenizedText& tokenized, const EncodeCounts& of_earlier_run);
  void show(const EncodeCounts& counts, uint64_t bytes_read);
  double seconds() const { return line_.seconds(); }

 private:
  int64_t interval_;
  bool quiet_;
  uint64_t total_bytes_;
  ProgressLine line_;
  bool terminal_;
  double begun_ = 0, reported_ = 0;
  int64_t documents_reported_ = 0;
  int64_t earlier_documents_ = 0, earlier_characters_ = 0;
};

}  // namespace ferry::tool
