#include "ckpt/format/hugging_face/json_events.h"

#include <fmt/format.h>

namespace ferry {
namespace {

constexpr int kMaxDepth = 100;

// The library takes a NUL for the end of its input, and what follows would go unseen.
void refuse_nul(std::string_view text, const std::string& what) {
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    fail(ErrorKind::corrupt, "{}: NUL at byte {} of its JSON; the file is damaged", what, nul);
  }
}

// The library's messages open with its own error number: "[json.exception.parse_error.101] ...".
std::string_view plain(std::string_view message) {
  const size_t end = message.find("] ");
  return end == std::string_view::npos ? message : message.substr(end + 2);
}

}  // namespace

bool JsonEvents::parse_error(std::size_t position, const std::string&,
                             const nlohmann::detail::exception& error) {
  fail(ErrorKind::corrupt, "{}: not JSON at byte {} ({}); the file is damaged or is something else",
       what_, position, plain(error.what()));
}

bool JsonEvents::refuse(std::string_view found) const {
  fail(ErrorKind::corrupt, "{}: {}, not {}", what_, expected(), found);
}

void parse_events(std::string_view text, JsonEvents& events) {
  refuse_nul(text, events.what());
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
}

nlohmann::json parse_json(std::string_view text, const std::string& what) {
  refuse_nul(text, what);
  const auto bound = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > kMaxDepth) {
      fail(ErrorKind::corrupt, "{}: nested deeper than {} levels", what, kMaxDepth);
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), bound);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::corrupt, "{}: not JSON ({}); the file is damaged or is something else", what,
         plain(error.what()));
  }
}

}  // namespace ferry
