// What the writer and the reader of a manifest's text share.
#pragma once

#include <cstdint>
#include <string_view>

namespace ferry {

inline constexpr std::string_view kManifestFormat = "ferry.manifest";
inline constexpr uint64_t kManifestVersion = 1;

/// The text ends in these, with 32 hexadecimal digits between: the digest of all bytes before the
/// digits.
inline constexpr std::string_view kManifestDigestBefore = "\"digest\": \"";
inline constexpr std::string_view kManifestDigestAfter = "\"\n}\n";

}  // namespace ferry
