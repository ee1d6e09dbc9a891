// Tokens that are matched in the text before anything else.
// Source: huggingface/tokenizers, tokenizers/src/tokenizer/added_vocabulary.rs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false, strip_left = false, strip_right = false;
  bool normalized = false;  // matched in normalized text, and normalized itself
  bool special = false;
};

/// Finds the leftmost of all tokens, and the longest among those.
class AddedTokens {
 public:
  void insert(AddedToken token);
  bool empty() const { return tokens_.empty(); }
  /// Calls between(begin, end) and found(id) in text order.
  void divide(std::string_view text, const std::function<void(size_t, size_t)>& between,
              const std::function<void(int32_t)>& found) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t at) const;
  bool stands_alone(std::string_view text, size_t begin, size_t end) const;

  std::vector<AddedToken> tokens_;
  std::array<std::vector<uint32_t>, 256> by_first_byte_;  // longest first
};

// The ids that tokenizer.json's post-processor adds before and after a text.

struct AroundText {
  std::vector<int32_t> before, after;
};

/// Reads the member `post_processor`. corrupt and unsupported name `path`.
AroundText read_post_processor(const nlohmann::json& post_processor, const std::string& path);

}  // namespace ferry
