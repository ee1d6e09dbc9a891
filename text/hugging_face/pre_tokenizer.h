// How tokenizer.json divides normalized text into pieces.
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
  bool starts = false;  // it is what the document begins with
};

/// Pieces, and the texts that those look into which no longer are parts of the document.
struct TextPieces {
  std::vector<TextPiece> pieces, next;
  std::deque<std::string> texts;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Safe from several threads.
  virtual void apply(TextPieces& pieces) const = 0;
  /// The splitter, where all that it does is to make each match and each gap a piece.
  virtual const Splitter* isolates() const { return nullptr; }
};

struct PreTokenizers {
  std::vector<std::unique_ptr<const PreTokenizer>> steps;
  bool byte_level = false;  // pieces are bytes to the model
};

/// Of the member `pre_tokenizer`. corrupt and unsupported name `path`.
PreTokenizers read_pre_tokenizers(const nlohmann::json& pre_tokenizer, const std::string& path);

}  // namespace ferry
