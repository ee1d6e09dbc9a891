// Reading JSON files of tokenizers.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "ckpt/io/file_system.h"

namespace ferry {

inline constexpr int32_t kLargestTokenId = (1 << 24) - 1;  // limits memory for hostile files

/// corrupt, with the position, if it is not JSON; exhausted if it is larger than 512 MiB.
nlohmann::json read_json(const FileSystem& file_system, const std::string& path);

/// corrupt unless `value` is a token id, 0 to kLargestTokenId.
int32_t token_id(const nlohmann::json& value, const std::string& path, const std::string& token);

}  // namespace ferry
