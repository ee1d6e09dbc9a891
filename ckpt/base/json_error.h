// What nlohmann's JSON library says is wrong with a text.
#pragma once

#include <exception>
#include <string_view>

namespace ferry {

/// The message of an exception of the library's, as long as that lives, without the library's own
/// number of the error: "[json.exception.parse_error.101] ...".
inline std::string_view json_message(const std::exception& error) {
  const std::string_view message = error.what();
  const size_t end = message.find("] ");
  return end == std::string_view::npos ? message : message.substr(end + 2);
}

}  // namespace ferry
