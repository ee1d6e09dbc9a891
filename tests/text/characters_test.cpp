// What characters are, as tokenizers 0.23.3 has them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "text/hugging_face/normalizer.h"
#include "text/unicode/classes.h"

namespace ferry {
namespace {

TEST(Words, HaveLettersDigitsMarksConnectorsAndJoiners) {
  for (const char32_t part : {U'a', U'7', U'_', U'\u00aa', U'\u0301', U'\u0663', U'\u203f',
                              U'\u2167', U'\u24b6', U'\u200d', U'\U0001f173', U'\U00031ddf'}) {
    EXPECT_TRUE(unicode::is_word(part)) << std::hex << static_cast<uint32_t>(part);
  }
  for (const char32_t other : {U' ', U'-', U'\u00bd', U'\u0b74', U'\u137c', U'\u24f8', U'\u2777',
                               U'\u180e', U'\U0001f642', U'\U0010ffff'}) {
    EXPECT_FALSE(unicode::is_word(other)) << std::hex << static_cast<uint32_t>(other);
  }
}

TEST(NormalForms, KeepAVowelAfterAHangulSyllable) {
  const std::string text = "\uc5b4\u11a7\u0301\uc5b4\u11a8\u1100\u1161\u11a7";
  for (const char* const form : {"NFC", "NFKC"}) {
    const auto normalizer = read_normalizer({{"type", form}}, "tokenizer.json");
    std::string formed = text;
    bool starts = true;
    normalizer->apply(formed, starts);
    EXPECT_EQ(formed, "\uc5b4\u11a7\u0301\uc5b5\uac00\u11a7") << form;
  }
}

// Characters newer than what tokenizers knows: a library that knows them would make one of each
// pair.
TEST(NormalForms, LeavePairsThatTheirUnicodeDoesNotKnow) {
  const std::string text = "a\U00011935\U00011930e\u0301\U000105d2\u0307\U0001611e\U0001611e";
  for (const char* const form : {"NFC", "NFKC"}) {
    std::string formed = text;
    bool starts = true;
    read_normalizer({{"type", form}}, "tokenizer.json")->apply(formed, starts);
    EXPECT_EQ(formed, "a\U00011935\U00011930\u00e9\U000105d2\u0307\U0001611e\U0001611e") << form;
  }
}

// Joiners and soft hyphens have no class and no form: what follows them is formed by itself.
// U+A7F1 is of Unicode 17, where its compatibility form is an S.
TEST(NormalForms, LeaveFormatsAndNewerCharactersAlone) {
  const std::string text = "e\u0301\u200de\u00ad\u0301\u0323\ua7f1e\u0301";
  for (const char* const form : {"NFC", "NFKC"}) {
    std::string formed = text;
    bool starts = true;
    read_normalizer({{"type", form}}, "tokenizer.json")->apply(formed, starts);
    EXPECT_EQ(formed, "\u00e9\u200de\u00ad\u0323\u0301\ua7f1\u00e9") << form;
  }
}

}  // namespace
}  // namespace ferry
