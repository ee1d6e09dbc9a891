// Where the regular expressions of tokenizers part texts: as tokenizers 0.23.3 (Oniguruma) and
// tiktoken 0.14.0 (Rust) do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ckpt/base/error.h"
#include "text/split/splitter.h"
#include "text/split/splitters.h"

namespace ferry {
namespace {

std::vector<std::string> matches(const std::string& pattern, PatternSyntax syntax,
                                 const std::string& text) {
  const auto splitter = make_splitter(pattern, syntax, "a test");
  std::vector<std::string> all;
  for (size_t at = 0; at < text.size();) {
    const Match match = splitter->find(text, at);
    if (match.begin == text.size()) break;
    all.push_back(text.substr(match.begin, match.end - match.begin));
    at = match.end > match.begin ? match.end : match.end + 1;
  }
  return all;
}

struct Case {
  const char* pattern;
  const char* text;
  std::vector<std::string> oniguruma, rust;
};

class Patterns : public testing::TestWithParam<Case> {};

TEST_P(Patterns, PartAsThePeersDo) {
  const auto& [pattern, text, oniguruma, rust] = GetParam();
  EXPECT_EQ(matches(pattern, PatternSyntax::oniguruma, text), oniguruma) << pattern;
  EXPECT_EQ(matches(pattern, PatternSyntax::rust, text), rust) << pattern;
}

INSTANTIATE_TEST_SUITE_P(
    Classes, Patterns,
    testing::Values(
        Case{"[a-z&&[^c]]+", "abcd", {"ab", "d"}, {"ab", "d"}},
        Case{"[a-c&&b-d&&c]+", "abcd", {"c"}, {"c"}}, Case{"[^a&&b]+", "abc", {"abc"}, {"abc"}},
        Case{"[a[bc]]+", "abcd", {"abc"}, {"abc"}}, Case{"[]a]+", "]ab", {"]a"}, {"]a"}},
        Case{"[a-]+", "a-b", {"a-"}, {"a-"}}, Case{"[\\d-a]+", "1-ab", {"1-a"}, {"1-a"}},
        Case{"[^\\S]+", "a b", {" "}, {" "}}, Case{"[\\W]+", "a, b", {", "}, {", "}},
        Case{"\\s", "\u180e\u2003", {"\u2003"}, {"\u2003"}},
        Case{"\\h+", "abcg ", {"abc"}, {"abc"}},
        Case{"\\w+", "a\u00bd\u200db", {"a\u00bd", "b"}, {"a", "\u200db"}},
        Case{"[\\w]+", "a\u00bdb", {"a", "b"}, {"a", "b"}},
        Case{"[[:^alpha:]]+", "a1b", {"1"}, {"1"}},
        Case{"[[:punct:]]+", "\u20ac+", {"\u20ac+"}, {"+"}},
        Case{"[\\p{Han}]+", "\u4e00\u3001\u4e00", {"\u4e00", "\u4e00"}, {"\u4e00", "\u4e00"}},
        Case{"\\p{Greek}+", "\u0345\u03b1", {"\u03b1"}, {"\u03b1"}},
        Case{"\\p{^L}+", "a1b", {"1"}, {"1"}},
        Case{"\\p{Yi}+", "\ua000\u3001\ua000", {"\ua000", "\ua000"}, {"\ua000", "\ua000"}},
        Case{"[\\v]+", "\n\v", {"\v"}, {"\v"}}, Case{"[--a]+", "-a,b", {"-a"}, {"-a"}},
        Case{"[a-z-\\d]+", "a1-,", {"a1-"}, {"a1-"}},
        Case{"\\p{L}+", "\U00031ddfa", {"\U00031ddfa"}, {"\U00031ddfa"}},
        Case{"\\p{Han}+", "\U00031ddfa", {"\U00031ddf"}, {"\U00031ddf"}}));

INSTANTIATE_TEST_SUITE_P(
    Signs, Patterns,
    testing::Values(
        Case{"\\p{N}{1,3}+", "12345", {"12345"}, {"123", "45"}},
        Case{"(?:a|[0-9]b){2}+c", "a1ba1bc", {"a1ba1bc"}, {"a1bc"}},
        Case{"a{,2}", "aaa", {"aa", "a"}, {"aa", "a"}}, Case{"a$", "a\nba\n", {"a", "a"}, {}},
        Case{"^a", "a\na", {"a", "a"}, {"a"}}, Case{"(?m:^a)", "b\na", {"a"}, {"a"}},
        Case{"(?m:.)+", "a\nb", {"a\nb"}, {"a", "b"}},
        Case{"\\w\\b", "ab c", {"b", "c"}, {"b", "c"}}, Case{"\\w\\B", "ab c", {"a"}, {"a"}},
        Case{"\\u0041\\x42\\x{43}", "ABC", {"ABC"}, {"ABC"}},
        Case{"(?i:[k])", "\u212a", {"\u212a"}, {"\u212a"}},
        Case{"a{2}?b", "aab b", {"aab", "b"}, {"aab"}},
        Case{"a{1,2,3}", "aa{1,2,3}", {"a{1,2,3}"}, {"a{1,2,3}"}},
        Case{"(?m:^a)b$", "b\nab\n", {"ab"}, {}},
        Case{"(?:(?m)b$)|c$", "b\nc\n", {"b", "c"}, {"b"}},
        Case{"a(?#\\b[)+", "aab", {"aa"}, {"aa"}}, Case{"\\v", "\n\v", {"\v"}, {"\v"}},
        Case{"(?<!a)b(?=c)|\\.\xc3\xa9", "abc bc.\u00e9", {"b", ".\u00e9"}, {"b", ".\u00e9"}}));

TEST(PatternSyntaxes, WhatIsNotKnownIsNamed) {
  for (const char* const pattern :
       {"[a~~b]", "[[:nothing:]]", "[a", "\\", "[a&&", "\\p{L", "\\u1",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[", "[a\\", "\\Qa", "a\\Eb", "[\\Q]", "\\V", "(*UTF)a",
        "(?x)[a b]", "(?#", "\\b{start}", "\\N{U+41}", "\\g1"}) {
    try {
      (void)make_splitter(pattern, PatternSyntax::rust, "a.tiktoken");
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported) << pattern;
      EXPECT_THAT(error.what(), testing::HasSubstr("a.tiktoken")) << pattern;
    }
  }
}

TEST(PatternSyntaxes, DifferencesAreRustsAlone) {
  EXPECT_THAT(matches("[\\d--5]+", PatternSyntax::rust, "3456"), testing::ElementsAre("34", "6"));
}

// Each of these parts becomes a kilobyte; all of them would take minutes to compile. PCRE2 itself
// refuses some of them from 10.45 on.
TEST(PatternSyntaxes, WhatIsTooLongIsNotTried) {
  for (const std::string part : {"\\w", "[\\W]", "a"}) {
    std::string pattern;
    while (pattern.size() < (part == "a" ? 20000 : 16000)) pattern += part;
    for (const std::string& all : {pattern, "[" + pattern + "]"}) {
      try {
        (void)make_splitter(all, PatternSyntax::oniguruma, "tokenizer.json");
        ADD_FAILURE() << part;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::unsupported) << error.what();
        EXPECT_THAT(error.what(),
                    testing::ContainsRegex("bytes; the maximum is|cannot be compiled"))
            << part;
        EXPECT_LT(std::string(error.what()).size(), 400u);
      }
    }
  }
}

}  // namespace
}  // namespace ferry
