#include "text/json_file.h"

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/base/json_error.h"

namespace ferry {
namespace {

constexpr uint64_t kLargestJson = uint64_t{512} << 20;  // bytes
constexpr int kDeepestJson = 100;

}  // namespace

nlohmann::json read_json(const FileSystem& file_system, const std::string& path) {
  const std::string text = read_file(file_system, path, kLargestJson);
  try {
    nlohmann::json json =
        nlohmann::json::parse(text, [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
          if (depth > kDeepestJson) {
            fail(ErrorKind::corrupt, "{} has values nested {} deep, which no tokenizer has", path,
                 depth);
          }
          return true;
        });
    return json;
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::corrupt, "{} is not JSON: {}", path, json_message(error));
  }
}

int32_t token_id(const nlohmann::json& value, const std::string& path, const std::string& token) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kLargestTokenId) {
    fail(ErrorKind::corrupt, "{}: the id of the token '{}' must be a number from 0 to {}, found {}",
         path, token.substr(0, 80), kLargestTokenId, value.dump().substr(0, 80));
  }
  return value.get<int32_t>();
}

}  // namespace ferry
