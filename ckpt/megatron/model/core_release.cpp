#include <charconv>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/target_options.h"

namespace ferry {

CoreRelease parse_core_release(std::string_view given) {
  std::string_view text = given;
  for (std::string_view prefix : {"core_", "v"}) {
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  }
  CoreRelease release;
  const char* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, release.major);
  const bool has_minor = major.ec == std::errc() && major.ptr != end && *major.ptr == '.';
  const auto minor = std::from_chars(has_minor ? major.ptr + 1 : end, end, release.minor);
  const bool whole = minor.ec == std::errc() && (minor.ptr == end || *minor.ptr == '.');
  if (!has_minor || !whole || release.major < 0 || release.minor < 0) {
    fail(ErrorKind::invalid, "'{}' is not a release of Megatron Core such as 0.16", given);
  }
  if (release < kOldestCore) {
    fail(ErrorKind::invalid, "Megatron Core {}: {} is the oldest release that can be written for",
         to_string(release), to_string(kOldestCore));
  }
  return release;
}

std::string to_string(const CoreRelease& release) {
  return fmt::format("{}.{}", release.major, release.minor);
}

}  // namespace ferry
