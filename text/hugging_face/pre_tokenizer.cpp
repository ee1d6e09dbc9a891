#include "text/hugging_face/pre_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "text/hugging_face/member.h"
#include "text/split/splitters.h"
#include "text/unicode/classes.h"
#include "text/unicode/peer_tables.h"
#include "text/unicode/utf8.h"

namespace ferry {
namespace {

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// A part of a piece: a match of the pattern, or the gap between two.
struct SplitPart {
  size_t begin, end;
  bool is_match;
};

// Splits at characters of some classes, and at listed ones.
class ClassMatcher final : public Splitter {
 public:
  ClassMatcher(uint8_t classes, std::string_view ascii) : classes_(classes), ascii_(ascii) {}
  Match find(std::string_view text, size_t from) const override {
    const uint8_t* classes = unicode::character_classes(unicode::Version::v16);
    for (size_t at = from; at < text.size();) {
      const unicode::Character character = unicode::character_at(text.data() + at);
      if (has_class(classes, character.point) ||
          (character.bytes == 1 && ascii_.find(text[at]) != std::string_view::npos)) {
        return {at, at + character.bytes};
      }
      at += character.bytes;
    }
    return {text.size(), text.size()};
  }

 private:
  bool has_class(const uint8_t* classes, char32_t point) const {
    const bool has = (classes[point] & classes_) != 0;
    if (classes_ != unicode::kPunctuation || point < 0x80) return has;
    return has != (unicode::range_of(unicode::kOtherPunctuation, point) != nullptr);
  }

  uint8_t classes_;
  std::string_view ascii_;
};

// `invert`: swaps matches and gaps.
std::vector<SplitPart> parts_of(const Splitter& splitter, std::string_view text, bool invert) {
  std::vector<SplitPart> parts;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Match match = splitter.find(text, at);
    if (match.begin >= text.size()) break;
    if (match.begin > done) parts.push_back({done, match.begin, invert});
    parts.push_back({match.begin, match.end, !invert});
    done = match.end;
    at = match.end > match.begin ? match.end
                                 : match.end + unicode::character_at(text.data() + match.end).bytes;
  }
  if (done < text.size()) parts.push_back({done, text.size(), invert});
  return parts;
}

// Joins parts according to the behavior; removed ones become empty.
void join_parts(std::vector<SplitPart>& parts, SplitBehavior behavior) {
  std::vector<SplitPart> joined;
  bool previous = false;
  if (behavior == SplitBehavior::merged_with_next) {
    for (size_t i = parts.size(); i-- > 0;) {
      if (parts[i].is_match && !previous && !joined.empty()) {
        joined.back().begin = parts[i].begin;
      } else {
        joined.push_back(parts[i]);
      }
      previous = parts[i].is_match;
    }
    parts.assign(joined.rbegin(), joined.rend());
    return;
  }
  for (const SplitPart& part : parts) {
    const bool joins = behavior == SplitBehavior::merged_with_previous ? part.is_match && !previous
                       : behavior == SplitBehavior::contiguous         ? part.is_match == previous
                                                                       : false;
    if (behavior == SplitBehavior::removed && part.is_match) continue;
    if (joins && !joined.empty()) {
      joined.back().end = part.end;
    } else {
      joined.push_back(part);
    }
    previous = part.is_match;
  }
  parts = std::move(joined);
}

class Split final : public PreTokenizer {
 public:
  Split(std::unique_ptr<const Splitter> splitter, SplitBehavior behavior, bool invert)
      : splitter_(std::move(splitter)), behavior_(behavior), invert_(invert) {}

  const Splitter* isolates() const override {
    return behavior_ == SplitBehavior::isolated ? splitter_.get() : nullptr;
  }
  void apply(TextPieces& pieces) const override {
    pieces.next.clear();
    for (const TextPiece& piece : pieces.pieces) {
      std::vector<SplitPart> parts = parts_of(*splitter_, piece.text, invert_);
      if (behavior_ != SplitBehavior::isolated) join_parts(parts, behavior_);
      for (const SplitPart& part : parts) {
        if (part.end == part.begin) continue;
        pieces.next.push_back({piece.text.substr(part.begin, part.end - part.begin),
                               piece.starts && part.begin == 0});
      }
    }
    pieces.pieces.swap(pieces.next);
  }

 private:
  std::unique_ptr<const Splitter> splitter_;
  SplitBehavior behavior_;
  bool invert_;
};

// Prepends a space if there is none.
class SpaceBefore final : public PreTokenizer {
 public:
  void apply(TextPieces& pieces) const override {
    for (TextPiece& piece : pieces.pieces) {
      if (piece.text.starts_with(' ')) continue;
      pieces.texts.push_back(' ' + std::string(piece.text));
      piece.text = pieces.texts.back();
    }
  }
};

enum class PrependScheme { first, never, always };

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme)
      : replacement_(std::move(replacement)), scheme_(scheme) {}
  void apply(TextPieces& pieces) const override {
    for (TextPiece& piece : pieces.pieces) {
      std::string text;
      const bool begins = piece.text.starts_with(' ') || piece.text.starts_with(replacement_);
      if (!begins &&
          (scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && piece.starts))) {
        text = replacement_;
      }
      for (const char byte : piece.text) {
        if (byte == ' ') {
          text += replacement_;
        } else {
          text += byte;
        }
      }
      pieces.texts.push_back(std::move(text));
      piece.text = pieces.texts.back();
    }
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
};

constexpr std::string_view kAsciiPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

SplitBehavior behavior_of(const JsonMembers& members) {
  const std::string name = members.text("behavior", "Isolated");
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  members.refuse("behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

void add_split(const JsonMembers& members, PreTokenizers& all) {
  const JsonMembers pattern = members.member("pattern");
  const bool literal = pattern.has("String");
  if (literal && pattern.text("String").empty()) members.refuse("pattern", "longer");
  all.steps.push_back(std::make_unique<Split>(
      literal ? make_literal_splitter(pattern.text("String"))
              : make_splitter(pattern.text("Regex"), PatternSyntax::oniguruma, members.path()),
      behavior_of(members), members.flag("invert", false)));
}

void add_byte_level(const JsonMembers& members, PreTokenizers& all) {
  if (members.flag("add_prefix_space", true)) all.steps.push_back(std::make_unique<SpaceBefore>());
  if (members.flag("use_regex", true)) {
    all.steps.push_back(std::make_unique<Split>(make_gpt2_splitter(unicode::Version::v16),
                                                SplitBehavior::isolated, false));
  }
  all.byte_level = true;
}

void add_metaspace(const JsonMembers& members, PreTokenizers& all) {
  const std::string replacement = members.text("replacement");
  std::string scheme = members.text("prepend_scheme", "always");
  if (!members.flag("add_prefix_space", true)) scheme = "never";
  if (scheme != "first" && scheme != "never" && scheme != "always") {
    members.refuse("prepend_scheme", "first, never or always");
  }
  if (replacement.empty()) members.refuse("replacement", "a character");
  all.steps.push_back(
      std::make_unique<Metaspace>(replacement, scheme == "first"   ? PrependScheme::first
                                               : scheme == "never" ? PrependScheme::never
                                                                   : PrependScheme::always));
  if (members.flag("split", true)) {
    all.steps.push_back(std::make_unique<Split>(make_literal_splitter(replacement),
                                                SplitBehavior::merged_with_next, false));
  }
}

void add_class(uint8_t classes, std::string_view ascii, SplitBehavior behavior,
               PreTokenizers& all) {
  all.steps.push_back(
      std::make_unique<Split>(std::make_unique<ClassMatcher>(classes, ascii), behavior, false));
}

void add_pre_tokenizer(const nlohmann::json& json, const std::string& path, PreTokenizers& all) {
  if (json.is_null()) return;
  const JsonMembers members(json, path, "pre_tokenizer");
  const std::string type = members.type();
  if (all.byte_level) members.unsupported("of type " + type + " after ByteLevel");
  if (type == "Sequence") {
    for (const nlohmann::json& one : members.array("pretokenizers")) {
      add_pre_tokenizer(one, path, all);
    }
  } else if (type == "ByteLevel") {
    add_byte_level(members, all);
  } else if (type == "Split") {
    add_split(members, all);
  } else if (type == "Metaspace") {
    add_metaspace(members, all);
  } else if (type == "Digits") {
    add_class(unicode::kNumber, "",
              members.flag("individual_digits", false) ? SplitBehavior::isolated
                                                       : SplitBehavior::contiguous,
              all);
  } else if (type == "Punctuation") {
    add_class(unicode::kPunctuation, kAsciiPunctuation, behavior_of(members), all);
  } else if (type == "WhitespaceSplit") {
    add_class(unicode::kSpace, "", SplitBehavior::removed, all);
  } else if (type == "Whitespace") {
    all.steps.push_back(
        std::make_unique<Split>(make_word_splitter(), SplitBehavior::removed, true));
  } else {
    members.unsupported("of type " + type);
  }
}

}  // namespace

PreTokenizers read_pre_tokenizers(const nlohmann::json& json, const std::string& path) {
  PreTokenizers all;
  add_pre_tokenizer(json, path, all);
  return all;
}

}  // namespace ferry
