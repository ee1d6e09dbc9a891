#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <mutex>
#include <vector>

#include "ckpt/base/error.h"
#include "text/split/splitters.h"

namespace ferry {
namespace {

constexpr uint32_t kMostSteps = 50'000'000;  // of one match
constexpr size_t kStackBytes = 32 << 10, kLargestStackBytes = 64 << 20;

std::string message_of(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};

// Per-thread state for matching.
struct Matching {
  explicit Matching(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kStackBytes, kLargestStackBytes, nullptr)) {
    pcre2_set_match_limit(context.get(), kMostSteps);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
  std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>> data;
  std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>> context;
  std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>> stack;
};

class RegexSplitter final : public Splitter {
 public:
  RegexSplitter(const std::string& pattern, const std::string& what)
      : pattern_(pattern), what_(what) {
    int code = 0;
    PCRE2_SIZE at = 0;
    compiled_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at,
                                  nullptr));
    if (compiled_ == nullptr) {
      fail(ErrorKind::unsupported, "{}: the regular expression '{}' cannot be compiled: {} at {}",
           what, pattern.substr(0, 200), message_of(code), at);
    }
    // Optional: only affects speed.
    static_cast<void>(pcre2_jit_compile(compiled_.get(), PCRE2_JIT_COMPLETE));
  }

  Match find(std::string_view text, size_t from) const override {
    if (from > text.size()) return {text.size(), text.size()};
    std::unique_ptr<Matching> matching = take();
    const int code =
        pcre2_match(compiled_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                    PCRE2_NO_UTF_CHECK, matching->data.get(), matching->context.get());
    if (code < 0 && code != PCRE2_ERROR_NOMATCH) {
      fail(ErrorKind::exhausted,
           "{}: the regular expression '{}' takes too long at byte {} of a text of {} bytes ({})",
           what_, pattern_.substr(0, 200), from, text.size(), message_of(code));
    }
    Match match{text.size(), text.size()};
    if (code >= 0) {
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(matching->data.get());
      match = {ends[0], ends[1]};
    }
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(matching));
    return match;
  }

 private:
  std::unique_ptr<Matching> take() const {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto matching = std::move(free_.back());
        free_.pop_back();
        return matching;
      }
    }
    auto matching = std::make_unique<Matching>(compiled_.get());
    if (!matching->data || !matching->context) {
      fail(ErrorKind::exhausted, "{}: out of memory matching a regular expression", what_);
    }
    return matching;
  }

  std::string pattern_, what_;
  std::unique_ptr<pcre2_code, Freed<pcre2_code_free>> compiled_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Matching>> free_;
};

}  // namespace

std::unique_ptr<const Splitter> make_regex_splitter(const std::string& pattern,
                                                    const std::string& what) {
  return std::make_unique<RegexSplitter>(pattern, what);
}

}  // namespace ferry
