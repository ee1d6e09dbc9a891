#include "ckpt/base/error.h"

#include <algorithm>

namespace ferry {
namespace {

constexpr std::string_view kBeforePaths = " '\"(", kAfterPaths = " '\"(),;:";

// Where `message` names `path`, as a whole or as a folder of a path; npos: nowhere.
size_t named_at(std::string_view message, std::string_view path) {
  if (path.empty()) return std::string_view::npos;
  for (size_t at = message.find(path); at != std::string_view::npos;
       at = message.find(path, at + 1)) {
    const size_t end = at + path.size();
    const bool begins = at == 0 || kBeforePaths.find(message[at - 1]) != std::string_view::npos;
    const bool ends = end == message.size() || path.back() == '/' || message[end] == '/' ||
                      kAfterPaths.find(message[end]) != std::string_view::npos ||
                      (message[end] == '.' && end + 1 == message.size());
    if (begins && ends) return at;
  }
  return std::string_view::npos;
}

}  // namespace

std::string_view name(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::not_found:
      return "not found";
    case ErrorKind::corrupt:
      return "corrupt";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::invalid:
      return "invalid";
    case ErrorKind::mismatch:
      return "mismatch";
    case ErrorKind::io:
      return "io";
    case ErrorKind::exhausted:
      return "exhausted";
    case ErrorKind::busy:
      return "busy";
    case ErrorKind::internal:
      return "internal";
    case ErrorKind::cancelled:
      return "cancelled";
  }
  return "internal";
}

void Error::find_path(std::initializer_list<std::string_view> paths) {
  if (path_) return;
  const std::string_view message = what();
  size_t begin = std::string_view::npos, length = 0;
  for (const std::string_view path : paths) {
    const size_t at = named_at(message, path);
    if (at < begin || (at == begin && at != std::string_view::npos && path.size() > length)) {
      begin = at;
      length = path.size();
    }
  }
  if (begin == std::string_view::npos) return;
  size_t end = std::min(message.find_first_of(kAfterPaths, begin + length), message.size());
  if (message[end - 1] == '.') --end;  // of the sentence
  set_path(std::string(message.substr(begin, std::max(end - begin, length))));
}

std::string_view hint_of(std::string_view message) noexcept {
  const size_t at = message.rfind("; ");
  return at == std::string_view::npos ? std::string_view() : message.substr(at + 2);
}

}  // namespace ferry
