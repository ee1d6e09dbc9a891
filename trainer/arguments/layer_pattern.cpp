#include "trainer/arguments/layer_pattern.h"

#include <algorithm>
#include <charconv>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr size_t kMostElements = 1 << 16;
constexpr int kMostDepth = 16;

class PatternParser {
 public:
  PatternParser(std::string_view flag, std::string_view text)
      : flag_(flag), text_(text), left_(text) {}

  std::vector<int64_t> run() {
    std::vector<int64_t> list = sum(0);
    if (!left_.empty()) refuse();
    return list;
  }

 private:
  std::vector<int64_t> sum(int depth) {
    std::vector<int64_t> list = product(depth);
    while (take('+')) {
      const std::vector<int64_t> more = product(depth);
      list.insert(list.end(), more.begin(), more.end());
      bound(list.size());
    }
    return list;
  }

  std::vector<int64_t> product(int depth) {
    std::vector<int64_t> list;
    if (take('(')) {
      if (depth == kMostDepth) refuse();
      list = sum(depth + 1);
      if (!take(')')) refuse();
    } else {
      list = elements();
    }
    while (take('*')) {
      const int64_t times = std::max<int64_t>(number(), 0);
      if (times > static_cast<int64_t>(kMostElements)) bound(kMostElements + 1);
      bound(list.size() * static_cast<size_t>(times));
      const std::vector<int64_t> once = std::move(list);
      list.clear();
      for (int64_t i = 0; i < times; ++i) list.insert(list.end(), once.begin(), once.end());
    }
    return list;
  }

  std::vector<int64_t> elements() {
    std::vector<int64_t> list;
    if (!take('[')) refuse();
    if (take(']')) return list;
    do {
      list.push_back(number());
      bound(list.size());
    } while (take(','));
    if (!take(']')) refuse();
    return list;
  }

  int64_t number() {
    skip_blanks();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), value);
    if (error != std::errc()) refuse();
    left_.remove_prefix(static_cast<size_t>(end - left_.data()));
    skip_blanks();
    return value;
  }

  bool take(char expected) {
    skip_blanks();
    if (!left_.starts_with(expected)) return false;
    left_.remove_prefix(1);
    skip_blanks();
    return true;
  }

  void skip_blanks() {
    while (left_.starts_with(' ')) left_.remove_prefix(1);
  }

  void bound(size_t elements) const {
    if (elements <= kMostElements) return;
    fail(ErrorKind::invalid, "{}: '{}' has more than {} elements", flag_, text_, kMostElements);
  }

  [[noreturn]] void refuse() const {
    fail(ErrorKind::invalid,
         "{}: '{}' is neither a number nor a list as in [0]*3+[1]*29 (a problem at '{}')", flag_,
         text_, left_);
  }

  std::string_view flag_, text_, left_;
};

}  // namespace

std::vector<int64_t> parse_layer_pattern(std::string_view flag, std::string_view text) {
  return PatternParser(flag, text).run();
}

}  // namespace ferry
