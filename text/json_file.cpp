#include "text/json_file.h"

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/json_events.h"

namespace ferry {
namespace {

constexpr uint64_t kLargestJson = uint64_t{512} << 20;  // bytes

}  // namespace

nlohmann::json read_json(const FileSystem& file_system, const std::string& path) {
  return parse_json(read_file(file_system, path, kLargestJson), path);
}

int32_t token_id(const nlohmann::json& value, const std::string& path, const std::string& token) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kLargestTokenId) {
    fail(ErrorKind::corrupt, "{}: the id of the token '{}' must be a number from 0 to {}, found {}",
         path, token.substr(0, 80), kLargestTokenId, value.dump().substr(0, 80));
  }
  return value.get<int32_t>();
}

}  // namespace ferry
