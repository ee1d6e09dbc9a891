#include "ckpt/megatron/config/yaml.h"

#include <fmt/format.h>
#include <yaml.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"

namespace ferry {
namespace {

constexpr size_t kMostDepth = 64;
constexpr size_t kMostKeyBytesShown = 80;

Value plain_scalar(Draft& draft, std::string_view text, YamlNumbers numbers) {
  if (text.empty() || text == "null" || text == "~") return draft.none();
  if (text == "true" || text == "false") return draft.boolean(text == "true");
  if (numbers == YamlNumbers::text) return draft.string(text);
  if (text == ".inf") return draft.real(HUGE_VAL);
  if (text == "-.inf") return draft.real(-HUGE_VAL);
  if (text == ".nan") return draft.real(std::numeric_limits<double>::quiet_NaN());
  const char* const end = text.data() + text.size();
  int64_t integer = 0;
  if (const auto r = std::from_chars(text.data(), end, integer);
      r.ec == std::errc() && r.ptr == end) {
    return draft.integer(integer);
  }
  const bool looks_real = text.find_first_of("0123456789") != std::string_view::npos &&
                          text.find_first_not_of("+-.0123456789eE") == std::string_view::npos;
  double real = 0;
  if (const auto r = std::from_chars(text.data(), end, real);
      looks_real && r.ec == std::errc() && r.ptr == end) {
    return draft.real(real);
  }
  return draft.string(text);
}

std::string_view text_of(const yaml_char_t* text) {
  return text == nullptr ? std::string_view() : reinterpret_cast<const char*>(text);
}

class YamlParser {
 public:
  YamlParser(std::string_view text, std::string_view what, YamlNumbers numbers)
      : what_(what), numbers_(numbers) {
    if (!yaml_parser_initialize(&parser_)) {
      fail(ErrorKind::exhausted, "{}: out of memory", what);
    }
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    yaml_parser_set_input_string(&parser_, bytes, text.size());
  }
  ~YamlParser() { yaml_parser_delete(&parser_); }
  YamlParser(const YamlParser&) = delete;
  YamlParser& operator=(const YamlParser&) = delete;

  std::shared_ptr<const Document> parse() {
    while (take_event()) {
    }
    return std::move(draft_).finish(root_.value_or(Value())).document;
  }

 private:
  // A container that is not complete.
  struct Level {
    Value container;
    std::optional<Value> key;                          // of a dict: whose value comes next
    std::map<std::string, size_t, std::less<>> lines;  // of a dict's keys, from 1
  };

  // False at the end.
  bool take_event() {
    yaml_event_t event;
    if (!yaml_parser_parse(&parser_, &event)) {
      fail_at(parser_.problem_mark, parser_.problem ? parser_.problem : "cannot be read");
    }
    struct Delete {
      yaml_event_t* event;
      ~Delete() { yaml_event_delete(event); }
    } const at_end{&event};
    switch (event.type) {
      case YAML_STREAM_END_EVENT:
        return false;
      case YAML_DOCUMENT_START_EVENT:
        if (root_) fail_at(event.start_mark, "a second document begins");
        break;
      case YAML_SCALAR_EVENT:
        put(scalar(event), text_of(event.data.scalar.anchor), event);
        break;
      case YAML_ALIAS_EVENT: {
        const auto found = anchors_.find(text_of(event.data.alias.anchor));
        if (found == anchors_.end()) fail_at(event.start_mark, "alias of an unknown anchor");
        put(found->second, {}, event);
        break;
      }
      case YAML_SEQUENCE_START_EVENT:
        enter(draft_.list(), text_of(event.data.sequence_start.anchor), event);
        break;
      case YAML_MAPPING_START_EVENT:
        enter(draft_.dict(), text_of(event.data.mapping_start.anchor), event);
        break;
      case YAML_SEQUENCE_END_EVENT:
      case YAML_MAPPING_END_EVENT:
        levels_.pop_back();
        break;
      default:
        break;
    }
    return true;
  }

  bool expects_key() const {
    return !levels_.empty() && levels_.back().container.kind() == ValueKind::dict &&
           !levels_.back().key;
  }

  Value scalar(const yaml_event_t& event) {
    const std::string_view text(reinterpret_cast<const char*>(event.data.scalar.value),
                                event.data.scalar.length);
    const bool is_plain = event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    return is_plain && !expects_key() ? plain_scalar(draft_, text, numbers_) : draft_.string(text);
  }

  void put(const Value& value, std::string_view anchor, const yaml_event_t& event) {
    if (!anchor.empty()) anchors_.insert_or_assign(std::string(anchor), value);
    if (levels_.empty()) {
      root_ = value;
    } else if (levels_.back().container.kind() == ValueKind::list) {
      draft_.append(levels_.back().container, value);
    } else if (Level& level = levels_.back(); level.key) {
      draft_.add(level.container, *level.key, value);
      level.key.reset();
    } else if (value.kind() == ValueKind::string) {
      note_key(level, std::string(value.string().value_or("")), event.start_mark);
      level.key = value;
    } else {
      fail_at(event.start_mark, "a key that is not text");
    }
  }

  // YAML forbids a key twice: one of the two values would be lost without a word.
  void note_key(Level& level, const std::string& key, const yaml_mark_t& mark) const {
    const auto [first, is_new] = level.lines.emplace(key, mark.line + 1);
    if (is_new) return;
    fail_at(mark, fmt::format("the key '{}' is on line {} already; remove one of the two",
                              key.substr(0, kMostKeyBytesShown), first->second));
  }

  void enter(const Value& container, std::string_view anchor, const yaml_event_t& event) {
    put(container, anchor, event);
    levels_.push_back({container, {}, {}});
    if (levels_.size() <= kMostDepth) return;
    fail(ErrorKind::exhausted, "{}, line {}: nested deeper than {}", what_,
         event.start_mark.line + 1, kMostDepth);
  }

  [[noreturn]] void fail_at(const yaml_mark_t& mark, std::string_view problem) const {
    fail(ErrorKind::corrupt, "{}, line {}: {}", what_, mark.line + 1, problem);
  }

  std::string_view what_;
  YamlNumbers numbers_;
  yaml_parser_t parser_;
  Draft draft_;
  std::optional<Value> root_;
  std::vector<Level> levels_;
  std::map<std::string, Value, std::less<>> anchors_;
};

}  // namespace

std::shared_ptr<const Document> parse_yaml(std::string_view text, std::string_view what,
                                           YamlNumbers numbers) {
  return YamlParser(text, what, numbers).parse();
}

}  // namespace ferry
