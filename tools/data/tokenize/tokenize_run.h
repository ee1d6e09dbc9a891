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
};

/// What a run tells while it runs, on the caller's thread.
struct TokenizeWatch {
  std::function<void(const EncodeCounts& so_far, uint64_t bytes_read)> piece_done;
  std::function<void()> check;  // may throw, to stop it
};

struct TokenizeResult {
  EncodeCounts counts;
  std::vector<WrittenTokens> outputs;  // of each key
  bool went_on = false;
};

/// Writes all pairs, and puts them in place when all are whole. With a journal what was written
/// stays when it is stopped or fails, and the next run goes on there; without, nothing stays.
TokenizeResult tokenize(std::shared_ptr<const FileSystem> file_system,
                        const TextTokenizer& tokenizer, const TokenizePlan& plan, Journal* journal,
                        const TokenizeWatch& watch);

}  // namespace ferry::tool
