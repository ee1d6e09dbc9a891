// Texts to token files: reads, encodes on several threads, writes in order.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "text/tokenizer.h"
#include "tools/data/tokenize/encode_piece.h"
#include "tools/data/tokenize/journal.h"
#include "tools/data/tokenize/line_reader.h"
#include "tools/data/tokenize/text_inputs.h"

namespace ferry::tool {

struct TokenizePlan {
  std::vector<TextInput> inputs;
  std::vector<InputRange> ranges;
  std::vector<std::string> prefixes;  // to write, one a key
  EncodeOptions encode;
  LineReaderOptions reader;
  int workers = 1;
  bool overwrite = false;
  double journal_seconds = 30;
  /// Tokens of partitions that wait for those before them. The inputs are read as often as this
  /// makes necessary: once where all partitions fit.
  uint64_t held_bytes = 256 << 20;
};

/// Callbacks of a run, on the caller's thread.
struct TokenizeWatch {
  /// `bytes_done`: the part of the inputs' bytes that stands for the part of the work that is done.
  std::function<void(const EncodeCounts& so_far, uint64_t bytes_done)> piece_done;
  std::function<void()> check;                        // may throw, to stop it
  std::function<void(const std::string&)> note = {};  // for people; may be empty
};

struct TokenizeResult {
  EncodeCounts counts;
  std::vector<WrittenTokens> outputs;  // of each key
  bool went_on = false;
};

/// Bytes of the plan's inputs, as they are stored; 0: not known.
uint64_t input_bytes(const TokenizePlan& plan);

/// Writes all pairs, and puts them in place when all are whole. With a journal what was written
/// stays when it is stopped or fails, and the next run goes on there; without, nothing stays.
TokenizeResult tokenize(std::shared_ptr<const FileSystem> file_system,
                        const TextTokenizer& tokenizer, const TokenizePlan& plan, Journal* journal,
                        const TokenizeWatch& watch);

}  // namespace ferry::tool
