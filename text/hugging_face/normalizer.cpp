#include "text/hugging_face/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "text/base64.h"
#include "text/hugging_face/member.h"
#include "text/sentencepiece/sentence_normalizer.h"
#include "text/split/splitter.h"
#include "text/unicode/classes.h"
#include "text/unicode/peer_tables.h"
#include "text/unicode/utf8.h"

namespace ferry {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char byte) { return (byte & 0x80) == 0; });
}

// NFC, NFD, NFKC, NFKD (Unicode Standard Annex 15). Characters that Hugging Face's tokenizers do
// not know are left alone like unassigned ones, whatever utf8proc knows of them: those in its
// tables, and those newer than Unicode 16, which have no class. (Control and format characters have
// no class, either, and normal forms do not change them.) utf8proc drops U+11A7 after a Hangul
// syllable; the trailing consonants start after it.
class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(int options)
      : options_(options), classes_(unicode::character_classes(unicode::Version::v16)) {}
  void apply(std::string& text, bool&) const override {
    if (is_ascii(text)) return;
    std::string result;
    size_t done = 0;
    for (size_t at = 0; at < text.size();) {
      const unicode::Character character = unicode::character_at(text.data() + at);
      if (character.bytes > 1 && stays(character.point)) {
        result += form_of(std::string_view(text).substr(done, at - done));
        result.append(text, at, character.bytes);
        done = at + character.bytes;
      }
      at += character.bytes;
    }
    text = result + form_of(std::string_view(text).substr(done));
  }

 private:
  bool stays(char32_t point) const {
    return point == 0x11A7 || classes_[point] == 0 ||
           unicode::range_of(unicode::kNotNormalized, point) != nullptr;
  }

  std::string form_of(std::string_view text) const {
    if (text.empty()) return "";
    utf8proc_uint8_t* result = nullptr;
    const utf8proc_ssize_t bytes =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                     static_cast<utf8proc_ssize_t>(text.size()), &result,
                     static_cast<utf8proc_option_t>(options_));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
    if (bytes < 0) {
      fail(ErrorKind::exhausted, "a text of {} bytes cannot be normalized: {}", text.size(),
           utf8proc_errmsg(bytes));
    }
    return {reinterpret_cast<const char*>(result), static_cast<size_t>(bytes)};
  }

  int options_;
  const uint8_t* classes_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(std::string& text, bool&) const override {
    std::string lower;
    lower.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const unicode::Character character = unicode::character_at(text.data() + at);
      at += character.bytes;
      if (character.point == 0x130) {  // the only character with a lower case of two
        lower += "i\u0307";
        continue;
      }
      if (const unicode::PeerLower* known =
              unicode::range_of(unicode::kLowerCases, character.point)) {
        unicode::append(lower, character.point + static_cast<char32_t>(known->distance));
        continue;
      }
      unicode::append(lower, static_cast<char32_t>(
                                 utf8proc_tolower(static_cast<utf8proc_int32_t>(character.point))));
    }
    text = std::move(lower);
  }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right)
      : left_(left), right_(right), classes_(unicode::character_classes(unicode::Version::v16)) {}
  void apply(std::string& text, bool& starts) const override {
    size_t begin = 0, end = text.size();
    while (left_ && begin < end && is_space(text, begin)) {
      begin += unicode::character_at(text.data() + begin).bytes;
    }
    while (right_ && end > begin) {
      size_t last = end - 1;
      while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
      if (!is_space(text, last)) break;
      end = last;
    }
    starts = starts && begin == 0;
    text = text.substr(begin, end - begin);
  }

 private:
  bool is_space(const std::string& text, size_t at) const {
    return (classes_[unicode::character_at(text.data() + at).point] & unicode::kSpace) != 0;
  }

  bool left_, right_;
  const uint8_t* classes_;
};

class StripAccents final : public Normalizer {
 public:
  void apply(std::string& text, bool&) const override {
    const uint8_t* classes = unicode::character_classes(unicode::Version::v16);
    std::string without;
    for (size_t at = 0; at < text.size();) {
      const unicode::Character character = unicode::character_at(text.data() + at);
      if ((classes[character.point] & unicode::kMark) == 0)
        without += text.substr(at, character.bytes);
      at += character.bytes;
    }
    text = std::move(without);
  }
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string before) : before_(std::move(before)) {}
  void apply(std::string& text, bool&) const override {
    if (!text.empty()) text.insert(0, before_);
  }

 private:
  std::string before_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::unique_ptr<const Splitter> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::string& text, bool&) const override {
    Match match = pattern_->find(text, 0);
    if (match.begin == text.size()) return;
    std::string result;
    size_t at = 0;
    while (match.begin < text.size()) {
      result.append(text, at, match.begin - at);
      result += content_;
      at = match.end;
      const size_t next = match.end > match.begin
                              ? match.end
                              : match.end + unicode::character_at(text.data() + match.end).bytes;
      match = pattern_->find(text, next);
    }
    result.append(text, at);
    text = std::move(result);
  }

 private:
  std::unique_ptr<const Splitter> pattern_;
  std::string content_;
};

// SentencePiece's map. Hugging Face's tokenizers look up whole grapheme clusters of less than six
// bytes first, and use the shortest entry (normalizers/precompiled.rs; spm_precompiled).
class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {}
  void apply(std::string& text, bool&) const override {
    std::string result;
    result.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const size_t end = end_of_cluster(text, at);
      const std::string_view cluster(text.data() + at, end - at);
      const Charsmap::Replacement whole =
          cluster.size() < 6 ? map_.find(cluster, false) : Charsmap::Replacement();
      if (whole.bytes > 0) {
        result += whole.text;
      } else {
        add_characters(cluster, result);
      }
      at = end;
    }
    text = std::move(result);
  }

 private:
  static size_t end_of_cluster(const std::string& text, size_t at) {
    utf8proc_int32_t state = 0;
    unicode::Character before = unicode::character_at(text.data() + at);
    at += before.bytes;
    while (at < text.size()) {
      const unicode::Character next = unicode::character_at(text.data() + at);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before.point),
                                           static_cast<utf8proc_int32_t>(next.point), &state)) {
        break;
      }
      at += next.bytes;
      before = next;
    }
    return at;
  }
  void add_characters(std::string_view cluster, std::string& result) const {
    for (size_t at = 0; at < cluster.size();) {
      const std::string_view character =
          cluster.substr(at, unicode::character_at(cluster.data() + at).bytes);
      const Charsmap::Replacement replacement = map_.find(character, false);
      result += replacement.bytes > 0 ? replacement.text : character;
      at += character.size();
    }
  }

  Charsmap map_;
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<const Normalizer>> all)
      : all_(std::move(all)) {}
  void apply(std::string& text, bool& starts) const override {
    for (const auto& one : all_) one->apply(text, starts);
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> all_;
};

std::unique_ptr<const Normalizer> read_replace(const JsonMembers& members) {
  const JsonMembers pattern = members.member("pattern");
  auto splitter = pattern.has("String") ? make_literal_splitter(pattern.text("String"))
                                        : make_splitter(pattern.text("Regex"),
                                                        PatternSyntax::oniguruma, members.path());
  if (pattern.has("String") && pattern.text("String").empty()) members.refuse("pattern", "longer");
  return std::make_unique<Replace>(std::move(splitter), members.text("content"));
}

std::unique_ptr<const Normalizer> read_form(const std::string& type) {
  constexpr int kStable = UTF8PROC_STABLE;
  if (type == "NFC") return std::make_unique<UnicodeForm>(kStable | UTF8PROC_COMPOSE);
  if (type == "NFD") return std::make_unique<UnicodeForm>(kStable | UTF8PROC_DECOMPOSE);
  if (type == "NFKC") {
    return std::make_unique<UnicodeForm>(kStable | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  }
  if (type == "NFKD") {
    return std::make_unique<UnicodeForm>(kStable | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<const Normalizer> read_normalizer(const nlohmann::json& json,
                                                  const std::string& path) {
  if (json.is_null()) return nullptr;
  const JsonMembers members(json, path, "normalizer");
  const std::string type = members.type();
  if (type == "Sequence") {
    std::vector<std::unique_ptr<const Normalizer>> all;
    for (const nlohmann::json& one : members.array("normalizers")) {
      if (auto normalizer = read_normalizer(one, path)) all.push_back(std::move(normalizer));
    }
    return std::make_unique<NormalizerSequence>(std::move(all));
  }
  if (auto form = read_form(type)) return form;
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Prepend") return std::make_unique<Prepend>(members.text("prepend"));
  if (type == "Replace") return read_replace(members);
  if (type == "Strip") {
    return std::make_unique<Strip>(members.flag("strip_left", true),
                                   members.flag("strip_right", true));
  }
  if (type == "Precompiled") {
    const auto bytes = from_base64(members.text("precompiled_charsmap", ""));
    if (!bytes) members.refuse("precompiled_charsmap", "base64");
    return std::make_unique<Precompiled>(Charsmap(*bytes, path));
  }
  members.unsupported("of type " + type);
}

}  // namespace ferry
