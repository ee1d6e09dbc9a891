#include "ckpt/megatron/nemo/plain_yaml.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "ckpt/base/error.h"
#include "ckpt/base/utf8.h"
#include "ckpt/format/pickle/values/draft.h"

namespace ferry {
namespace {

// A value that is being read: what it is shows later than where it stands.
struct Node {
  ValueKind kind = ValueKind::none;
  int64_t integer = 0;  // or boolean as 0/1
  double real = 0;
  std::string text;
  std::vector<uint32_t> items;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;

  static Node of_boolean(bool value) { return {ValueKind::boolean, value, 0, {}, {}, {}}; }
  static Node of_integer(int64_t value) { return {ValueKind::integer, value, 0, {}, {}, {}}; }
  static Node of_real(double value) { return {ValueKind::real, 0, value, {}, {}, {}}; }
  static Node of_string(std::string_view value) {
    return {ValueKind::string, 0, 0, std::string(value), {}, {}};
  }
};

constexpr size_t kMaxDepth = 64;

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

// Length of a quoted scalar at the start of `text`, quotes included; npos when it does not end.
size_t quoted_length(std::string_view text) {
  const char quote = text.front();
  for (size_t i = 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '\'' && i + 1 < text.size() && text[i + 1] == quote) {
        ++i;
      } else {
        return i + 1;
      }
    }
  }
  return std::string_view::npos;
}

bool is_quoted(std::string_view text) {
  return !text.empty() && (text.front() == '"' || text.front() == '\'');
}

std::string unquoted(std::string_view text) {
  const char quote = text.front();
  text = text.substr(1, text.size() - 2);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quote == '\'' && text[i] == '\'') {
      ++i;
    } else if (quote == '"' && text[i] == '\\' && i + 1 < text.size()) {
      const char code = text[++i];
      out += code == 'n' ? '\n' : code == 't' ? '\t' : code;
      continue;
    }
    if (i < text.size()) out += text[i];
  }
  return out;
}

// Where the key of "key: value" or "key:" ends; npos when the line is no such pair.
size_t key_length(std::string_view text) {
  if (is_quoted(text)) {
    const size_t end = quoted_length(text);
    const bool is_key = end != std::string_view::npos && end < text.size() && text[end] == ':';
    return is_key ? end : std::string_view::npos;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ':' && (i + 1 == text.size() || text[i + 1] == ' ')) return i;
  }
  return std::string_view::npos;
}

Node scalar(std::string_view text) {
  if (is_quoted(text) && text.size() >= 2 && text.back() == text.front()) {
    return Node::of_string(unquoted(text));
  }
  if (text.empty() || text == "null" || text == "~") return {};
  if (text == "true" || text == "false") return Node::of_boolean(text == "true");
  const char* const end = text.data() + text.size();
  int64_t integer = 0;
  if (const auto r = std::from_chars(text.data(), end, integer);
      r.ec == std::errc() && r.ptr == end) {
    return Node::of_integer(integer);
  }
  const bool looks_real = text.find_first_of("0123456789") != std::string_view::npos &&
                          text.find_first_not_of("+-.0123456789eE") == std::string_view::npos;
  double real = 0;
  if (const auto r = std::from_chars(text.data(), end, real);
      looks_real && r.ec == std::errc() && r.ptr == end) {
    return Node::of_real(real);
  }
  if (text == ".inf") return Node::of_real(HUGE_VAL);
  if (text == "-.inf") return Node::of_real(-HUGE_VAL);
  if (text == ".nan") return Node::of_real(std::numeric_limits<double>::quiet_NaN());
  return Node::of_string(text);
}

class Parser {
 public:
  explicit Parser(std::string_view what) : what_(what) { expect_value(-1, add({})); }

  std::shared_ptr<const Document> parse(std::string_view text) {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      ++line_number_;
      line(text.substr(begin, end - begin));
      begin = end + 1;
    }
    end_scalar();
    return make_document();
  }

 private:
  struct Level {
    int indent;
    uint32_t node;
  };

  uint32_t add(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  Node& at(uint32_t node) { return nodes_[node]; }

  [[noreturn]] void fail_line(std::string_view problem) const {
    fail(ErrorKind::corrupt, "{}, line {}: {}", what_, line_number_, problem);
  }

  void line(std::string_view raw) {
    const size_t first = raw.find_first_not_of(' ');
    const std::string_view text = trim(raw);
    const bool skipped = text.empty() || text[0] == '#' || text == "---" || text == "...";
    if (skipped || first == std::string_view::npos) return;
    const auto indent = static_cast<int>(std::min<size_t>(first, 100000));
    // Long scalars are folded at 80 columns, the rest indented deeper than their key.
    if (pending_ && is_scalar_ && indent > pending_->indent) {
      folded_.append(" ").append(text);
    } else {
      end_scalar();
      content(indent, text);
    }
  }

  void content(int indent, std::string_view text) {
    while (text == "-" || text.starts_with("- ")) {
      enter(indent, ValueKind::list);
      const uint32_t item = add({});
      at(levels_.back().node).items.push_back(item);
      expect_value(indent, item);
      const size_t next = text.find_first_not_of(' ', 1);
      if (next == std::string_view::npos) return;
      text.remove_prefix(next);
      indent += static_cast<int>(next);
    }
    const size_t key = key_length(text);
    if (key != std::string_view::npos) {
      enter(indent, ValueKind::dict);
      const std::string_view name = text.substr(0, key);
      const uint32_t name_node =
          add(Node::of_string(is_quoted(name) ? unquoted(name) : std::string(name)));
      const uint32_t item = add({});
      at(levels_.back().node).pairs.emplace_back(name_node, item);
      expect_value(indent, item);
      text = trim(text.substr(key + 1));
    }
    if (!text.empty()) value(text);
  }

  void expect_value(int indent, uint32_t node) { pending_ = {indent, node}; }

  void end_scalar() {
    if (!is_scalar_) return;
    at(pending_->node) = scalar(folded_);
    is_scalar_ = false;
    pending_.reset();
  }

  // Makes the innermost level the container of kind `kind` at this indentation.
  void enter(int indent, ValueKind kind) {
    if (pending_ && fits_below(indent, kind)) {
      if (levels_.size() >= kMaxDepth) {
        fail(ErrorKind::exhausted, "{}, line {}: nested deeper than {}", what_, line_number_,
             kMaxDepth);
      }
      at(pending_->node).kind = kind;
      levels_.push_back({indent, pending_->node});
      pending_.reset();
      return;
    }
    pending_.reset();
    while (!levels_.empty() &&
           (levels_.back().indent > indent ||
            (levels_.back().indent == indent && at(levels_.back().node).kind != kind))) {
      levels_.pop_back();
    }
    if (levels_.empty() || levels_.back().indent != indent) fail_line("unexpected indentation");
  }

  // PyYAML writes a sequence below a key at the key's own indentation.
  bool fits_below(int indent, ValueKind kind) {
    const bool key_above = !levels_.empty() && at(levels_.back().node).kind == ValueKind::dict;
    return indent > pending_->indent ||
           (indent == pending_->indent && kind == ValueKind::list && key_above);
  }

  void value(std::string_view text) {
    if (!pending_) fail_line("neither a key, an item nor a value");
    if (text[0] == '&' || text[0] == '*') {
      const size_t end = std::min(text.find(' '), text.size());
      const std::string name(text.substr(1, end - 1));
      if (text[0] == '*') return alias(name);
      anchors_[name] = pending_->node;
      text = trim(text.substr(end));
      if (text.empty()) return;
    }
    if (text[0] == '[' || text[0] == '{') return flow(text);
    folded_ = text;
    is_scalar_ = true;
  }

  void alias(const std::string& name) {
    const auto found = anchors_.find(name);
    if (found == anchors_.end() || levels_.empty()) fail_line("alias of an unknown anchor");
    Node& parent = at(levels_.back().node);
    if (parent.kind == ValueKind::dict) {
      parent.pairs.back().second = found->second;
    } else {
      parent.items.back() = found->second;
    }
    pending_.reset();
  }

  // "[a, b]" or an empty "{}"; anything deeper stays text.
  void flow(std::string_view text) {
    const uint32_t target = pending_->node;
    pending_.reset();
    const std::string_view inside = trim(text.substr(1, text.size() > 1 ? text.size() - 2 : 0));
    if (text == "{}") {
      at(target).kind = ValueKind::dict;
      return;
    }
    if (text.back() != ']' || inside.find_first_of("[]{}") != std::string_view::npos) {
      at(target).kind = ValueKind::string;
      at(target).text = text;
      return;
    }
    at(target).kind = ValueKind::list;
    for (size_t begin = 0; begin < inside.size();) {
      const size_t end = std::min(inside.find(',', begin), inside.size());
      const uint32_t item = add(scalar(trim(inside.substr(begin, end - begin))));
      at(target).items.push_back(item);
      begin = end + 1;
    }
  }

  // Aliases may refer to what stands around them: first all values, then what they hold.
  std::shared_ptr<const Document> make_document() const {
    Draft draft;
    std::vector<Value> values;
    values.reserve(nodes_.size());
    for (const Node& node : nodes_) values.push_back(make_value(draft, node));
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (const uint32_t item : nodes_[i].items) draft.append(values[i], values[item]);
      for (const auto& [key, item] : nodes_[i].pairs)
        draft.add(values[i], values[key], values[item]);
    }
    return std::move(draft).finish(values[0]).document;
  }

  static Value make_value(Draft& draft, const Node& node) {
    switch (node.kind) {
      case ValueKind::boolean:
        return draft.boolean(node.integer != 0);
      case ValueKind::integer:
        return draft.integer(node.integer);
      case ValueKind::real:
        return draft.real(node.real);
      case ValueKind::string:
        return draft.string(to_utf8(node.text));
      case ValueKind::list:
        return draft.list();
      case ValueKind::dict:
        return draft.dict();
      default:
        return draft.none();
    }
  }

  std::string_view what_;
  std::vector<Node> nodes_;
  int line_number_ = 0;
  std::vector<Level> levels_;
  std::optional<Level> pending_;  // a value that has not begun: the node and its key's indentation
  bool is_scalar_ = false;        // the pending node is the scalar `folded_`, which may go on
  std::string folded_;
  std::map<std::string, uint32_t> anchors_;
};

}  // namespace

std::shared_ptr<const Document> parse_plain_yaml(std::string_view text, std::string_view what) {
  return Parser(what).parse(text);
}

}  // namespace ferry
