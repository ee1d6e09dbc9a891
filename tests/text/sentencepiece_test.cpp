// SentencePiece models that are made here, piece by piece: what they mean, and damaged ones. What
// trained ones give is in golden_ids_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include "ckpt/base/error.h"
#include "tests/io/memory_file_system.h"
#include "text/tokenizer.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

enum PieceType : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
constexpr int kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4;

std::string number(uint64_t value) {
  std::string text;
  for (; value > 0x7F; value >>= 7) text += static_cast<char>(value | 0x80);
  return text + static_cast<char>(value);
}
std::string number_field(uint64_t field, uint64_t value) {
  return number(field << 3) + number(value);
}
std::string text_field(uint64_t field, const std::string& text) {
  return number(field << 3 | 2) + number(text.size()) + text;
}
std::string piece(const std::string& text, float score, PieceType type = kNormal) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &score, 4);
  return text_field(1, text_field(1, text) + number(2 << 3 | 5) + bytes + number_field(3, type));
}

const std::string kStart = piece("<unk>", 0, kUnknown) + piece("<s>", 0, kControl) +
                           piece("</s>", 0, kControl);  // ids 0 to 2
const std::string kPlain = text_field(3, number_field(3, 0) + number_field(4, 0));

std::string trainer(int kind, const std::string& more = "") {
  return text_field(2, number_field(3, static_cast<uint64_t>(kind)) + more);
}

class SentencePieceModels : public testing::Test {
 protected:
  std::unique_ptr<const TextTokenizer> open(const std::string& bytes) {
    files_.put("a.model", bytes);
    return open_tokenizer(files_, {.type = "SentencePieceTokenizer", .model = "a.model"});
  }
  std::vector<int32_t> ids(const std::string& model, const std::string& text) {
    std::vector<int32_t> ids, again;
    const auto tokenizer = open(model);
    tokenizer->encode(text, ids);
    tokenizer->encode(text, again);  // from caches
    EXPECT_EQ(ids, again);
    return ids;
  }
  std::string problem(const std::string& model) {
    try {
      open(model);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }

  MemoryFileSystem files_;
};

TEST_F(SentencePieceModels, MergeTheHighestScoreFirst) {
  const std::string model = kStart + piece("ab", -2) + piece("bc", -1) + piece("a", -8) +
                            piece("b", -8) + piece("c", -8) + trainer(kBpe) + kPlain;
  EXPECT_THAT(ids(model, "abc"), ElementsAre(5, 4));
  EXPECT_THAT(ids(model, "ab"), ElementsAre(3));
  EXPECT_THAT(ids(model, "xyab"), ElementsAre(0, 3));  // unknown characters are one
}

TEST_F(SentencePieceModels, MergeCharactersThatAreNoPieces) {
  const std::string model = kStart + piece("ab", -2) + piece("abc", -3) + trainer(kBpe) + kPlain;
  EXPECT_THAT(ids(model, "abcab"), ElementsAre(4, 3));
  EXPECT_THAT(ids(model, "a"), ElementsAre(0));
}

TEST_F(SentencePieceModels, DivideWhatIsNotInUseAgain) {
  const std::string model = kStart + piece("ab", -1, kUnused) + piece("abc", -2) + piece("a", -8) +
                            piece("b", -8, kUnused) + piece("c", -8) + trainer(kBpe) + kPlain;
  EXPECT_THAT(ids(model, "abc"), ElementsAre(4));
  EXPECT_THAT(ids(model, "ab"), ElementsAre(5, 0));
  const std::string unigram = kStart + piece("ab", -1, kUnused) + piece("a", -8) + piece("b", -8) +
                              trainer(kUnigram) + kPlain;
  EXPECT_THAT(ids(unigram, "ab"), ElementsAre(4, 5));
}

TEST_F(SentencePieceModels, KeepWhatUsersDefined) {
  for (const int kind : {kUnigram, kBpe, kChar}) {
    const std::string model = kStart + piece("a", -1) + piece("b", -1) + piece("ab", -1) +
                              piece("b<x>", -9, kUserDefined) + trainer(kind) + kPlain;
    EXPECT_THAT(ids(model, "ab<x>a"), ElementsAre(3, 6, 3)) << kind;
  }
}

TEST_F(SentencePieceModels, FindTheLikeliestPath) {
  const std::string model = kStart + piece("a", -3) + piece("b", -3) + piece("ab", -5) +
                            piece("abb", -10) + trainer(kUnigram) + kPlain;
  EXPECT_THAT(ids(model, "ab"), ElementsAre(5));
  EXPECT_THAT(ids(model, "abb"), ElementsAre(5, 4));
  EXPECT_THAT(ids(model, "a??b"), ElementsAre(3, 0, 4));
}

TEST_F(SentencePieceModels, AreOfWordsOrCharacters) {
  const std::string pieces = kStart + piece("\u2581a", -1) + piece("\u2581", -1) + piece("a", -1) +
                             piece("b", -1, kUnused);
  EXPECT_THAT(ids(pieces + trainer(kWord), "a  aa"), ElementsAre(3, 0));
  EXPECT_THAT(ids(pieces + trainer(kChar), "a  ab"), ElementsAre(4, 5, 4, 5, 0));
}

TEST_F(SentencePieceModels, NormalizeSpaces) {
  const std::string pieces = kStart + piece("\u2581", -1) + piece("a", -1) + piece(" ", -1);
  const auto with = [&](bool dummy, bool remove, bool escape, bool suffix) {
    return pieces +
           text_field(3,
                      number_field(3, dummy) + number_field(4, remove) + number_field(5, escape)) +
           trainer(kChar, number_field(24, suffix));
  };
  EXPECT_THAT(ids(with(true, true, true, false), "  a  a "), ElementsAre(3, 4, 3, 4));
  EXPECT_THAT(ids(with(true, true, true, true), "  a  a "), ElementsAre(4, 3, 4, 3));
  EXPECT_THAT(ids(with(false, true, true, false), " a"), ElementsAre(4));
  EXPECT_THAT(ids(with(true, false, true, false), " a "), ElementsAre(3, 3, 4, 3));
  EXPECT_THAT(ids(with(true, true, false, false), " a a"), ElementsAre(5, 4, 5, 4));
  EXPECT_THAT(ids(with(true, true, true, false), "   "), ElementsAre());
  EXPECT_THAT(ids(with(true, false, true, false), ""), ElementsAre());
}

TEST_F(SentencePieceModels, FallBackToBytes) {
  std::string model = kStart;
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    model += piece(text, 0, kByte);
  }
  model += piece("a", -1);
  for (const int kind : {kUnigram, kBpe, kChar}) {
    const std::string whole = model + trainer(kind, number_field(35, 1)) + kPlain;
    EXPECT_THAT(ids(whole, "a\u00e9"), ElementsAre(259, 3 + 0xC3, 3 + 0xA9)) << kind;
    EXPECT_EQ(open(whole)->decode(std::vector<int32_t>{259, 3 + 0xC3, 3 + 0xA9, 3 + 0xC3, 259}),
              "a\u00e9\uFFFDa");
  }
  EXPECT_THAT(problem(model + trainer(kBpe)), HasSubstr("byte_fallback is false"));
  EXPECT_THAT(problem(kStart + piece("<0x41>", 0, kByte) + trainer(kBpe, number_field(35, 1))),
              HasSubstr("the byte 0x00 has no piece"));
}

TEST_F(SentencePieceModels, GiveTextBack) {
  const std::string model = kStart + piece("\u2581a", -1) + piece("\u2581", -1) + piece("b", -1);
  const std::vector<int32_t> tokens{1, 3, 4, 5, 3, 0, 2, -1, 99};
  EXPECT_EQ(open(model)->decode(tokens), "a b a \u2047 ");
  EXPECT_EQ(open(model + kPlain)->decode(tokens), " a b a \u2047 ");
}

TEST_F(SentencePieceModels, NameWhatEndsDocuments) {
  EXPECT_EQ(open(kStart)->end_of_document(), 2);
  EXPECT_EQ(open(kStart)->vocab_size(), 3);
  EXPECT_EQ(open(kStart + trainer(kBpe, text_field(47, "<s>")))->end_of_document(), 1);
  EXPECT_EQ(open(kStart + trainer(kBpe, text_field(47, "<x>")))->end_of_document(), std::nullopt);
}

// Sums in float are as large as texts are long: what a cache has of a word must not decide
// otherwise than they do.
TEST_F(SentencePieceModels, AddUpInFloat) {
  const std::string model = kStart + piece("\u2581x", -8) + piece("\u2581ab", -4.0001F) +
                            piece("\u2581a", -2) + piece("b", -2) + trainer(kUnigram);
  std::string text;
  for (int i = 0; i < 8000; ++i) text += " x";
  std::vector<int32_t> before, after;
  const auto tokenizer = open(model);
  tokenizer->encode("ab", before);
  EXPECT_THAT(before, ElementsAre(5, 6));
  tokenizer->encode(text + " ab", after);  // -64004.0001 is -64004, which came first
  EXPECT_EQ(after.back(), 4);
}

TEST_F(SentencePieceModels, ThatAreDamagedAreReported) {
  EXPECT_THAT(problem(""), HasSubstr("not a SentencePiece model"));
  EXPECT_THAT(problem("\x0a\x7f"), HasSubstr("goes past the end"));
  EXPECT_THAT(problem("\x0f"), HasSubstr("wire type 7"));
  EXPECT_THAT(problem(std::string(11, '\xff')), HasSubstr("longer than ten bytes"));
  EXPECT_THAT(problem(piece("a", 0)), HasSubstr("there is no piece of type unknown"));
  EXPECT_THAT(problem(kStart + piece("a", 0) + piece("a", 0)), HasSubstr("same as piece 3"));
  EXPECT_THAT(problem(kStart + piece("", 0)), HasSubstr("is empty"));
  EXPECT_THAT(problem(kStart + piece("\xff", 0)), HasSubstr("not UTF-8"));
  EXPECT_THAT(problem(kStart + piece(std::string(1, '\0'), 0)), HasSubstr("zero byte"));
  EXPECT_THAT(problem(kStart + piece("a", std::nanf(""))), HasSubstr("finite"));
  EXPECT_THAT(problem(kStart + piece("b", 0, kUnknown)), HasSubstr("both"));
  EXPECT_THAT(problem(kStart + trainer(5)), HasSubstr("type 5"));
  EXPECT_THAT(problem(kStart + piece(std::string(8000, 'a'), 0)), HasSubstr("8000 bytes"));
  for (const std::string& map : {std::string("abc"), std::string("\x04\0\0\0abcdefg", 11)}) {
    EXPECT_THAT(problem(kStart + text_field(3, text_field(2, map))), HasSubstr("character map"));
  }
}

}  // namespace
}  // namespace ferry
