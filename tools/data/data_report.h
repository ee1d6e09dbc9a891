// What `ferry data` prints, as text and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/data/byte_tokens.h"
#include "tools/data/token_files.h"

namespace ferry::tool {

struct InspectedTokens {
  std::string prefix;
  DType type = DType::u16;
  int64_t documents = 0, sequences = 0, tokens = 0;
  uint64_t token_bytes = 0;
  bool has_modes = false;
  LengthSummary lengths;
  std::optional<int64_t> largest_token;  // of --largest-token
  std::optional<int64_t> document;       // of --document
  std::vector<int32_t> document_tokens;
};
std::string to_text(const InspectedTokens& inspected);
nlohmann::json to_json(const InspectedTokens& inspected);

struct CheckedTokens {
  std::string prefix;
  TokenFilesCheck check;
};
size_t problem_count(const std::vector<CheckedTokens>& checked);
std::string to_text(const std::vector<CheckedTokens>& checked);
nlohmann::json to_json(const std::vector<CheckedTokens>& checked);

struct MergedTokens {
  std::string output;
  std::vector<std::string> inputs;  // in the order of their documents
  DType type = DType::u16;
  int64_t documents = 0, sequences = 0, tokens = 0;
  uint64_t bytes = 0;  // of both files
  bool dry_run = false;
  double seconds = 0;
};
std::string to_text(const MergedTokens& merged);
nlohmann::json to_json(const MergedTokens& merged);

struct WrittenBytes {
  std::string output;
  std::vector<std::string> files;
  ByteTokens written;
  uint64_t bytes = 0;  // of OUT.bin and OUT.idx
  double seconds = 0;
};
std::string to_text(const WrittenBytes& result);
nlohmann::json to_json(const WrittenBytes& result);

}  // namespace ferry::tool
