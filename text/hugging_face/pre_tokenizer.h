// The pre-tokenizer of tokenizer.json, which splits normalized text into pieces.
// Source: huggingface/tokenizers, tokenizers/src/pre_tokenizers.
#pragma once

#include <deque>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/split/splitter.h"

namespace ferry {

struct TextPiece {
  std::string_view text;
  bool starts = false;  // it is the start of the document
};

/// Pieces, and the storage of those that are no longer parts of the document.
struct TextPieces {
  std::vector<TextPiece> pieces, next;
  std::deque<std::string> texts;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Thread-safe.
  virtual void apply(TextPieces& pieces) const = 0;
  /// The splitter, if this only makes each match and each gap a piece.
  virtual const Splitter* isolates() const { return nullptr; }
};

struct PreTokenizers {
  std::vector<std::unique_ptr<const PreTokenizer>> steps;
  bool byte_level = false;  // the model treats pieces as bytes
};

/// Reads the member `pre_tokenizer`. corrupt and unsupported name `path`.
PreTokenizers read_pre_tokenizers(const nlohmann::json& pre_tokenizer, const std::string& path);

}  // namespace ferry
