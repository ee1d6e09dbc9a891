#include "text/unicode/classes.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "text/unicode/class_ranges.h"
#include "text/unicode/peer_tables.h"

namespace ferry::unicode {
namespace {

constexpr uint32_t kCharacters = 0x110000;

std::unique_ptr<uint8_t[]> make_classes(Version version) {
  auto classes = std::make_unique<uint8_t[]>(kCharacters);
  for (size_t i = 0; i < std::size(kClassRanges); ++i) {
    const uint32_t end = i + 1 < std::size(kClassRanges) ? kClassRanges[i + 1] >> 8 : kCharacters;
    std::fill(&classes[kClassRanges[i] >> 8], &classes[0] + end,
              static_cast<uint8_t>(kClassRanges[i]));
  }
  if (version == Version::v16) return classes;
  for (size_t i = 0; i < std::size(kNewerClassRanges); i += 2) {
    std::fill_n(&classes[kNewerClassRanges[i] >> 8], kNewerClassRanges[i + 1],
                static_cast<uint8_t>(kNewerClassRanges[i]));
  }
  return classes;
}

}  // namespace

const uint8_t* character_classes(Version version) {
  static const std::unique_ptr<uint8_t[]> v16 = make_classes(Version::v16);
  static const std::unique_ptr<uint8_t[]> v18 = make_classes(Version::v18);
  return (version == Version::v16 ? v16 : v18).get();
}

bool is_word(char32_t point) {
  const bool has_class =
      (character_classes(Version::v16)[point] & (kLetter | kNumber | kMark)) != 0;
  return has_class != (range_of(kOtherWords, point) != nullptr);
}

}  // namespace ferry::unicode
