// Pickles made by hand: every opcode, and whatever a hostile file may say.
#include "ckpt/format/pickle/pickle.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tests/format/torch/torch_items.h"

namespace ferry {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

std::shared_ptr<const Document> parse(std::string_view bytes, PickleLimits limits = {}) {
  return parse_pickle(std::as_bytes(std::span(bytes)), "test.pkl", limits);
}

ErrorKind error_of(std::string_view bytes, PickleLimits limits = {}) {
  try {
    parse(bytes, limits);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("test.pkl"));
    return error.kind();
  }
  ADD_FAILURE() << "parsed " << bytes.substr(0, 100);
  return ErrorKind::internal;
}

std::string repeat(std::string_view text, size_t times) {
  std::string result;
  result.reserve(text.size() * times);
  while (times-- > 0) result += text;
  return result;
}

TEST(Pickle, ReportsWhereItEnds) {
  const std::string two = "\x80\x02K\x05.\x80\x02K\x06.";
  uint64_t consumed = 0;
  const auto first = parse_pickle(std::as_bytes(std::span(two)), "two", {}, &consumed);
  EXPECT_EQ(first->root().integer(), 5);
  EXPECT_EQ(consumed, 5u);
}

TEST(Pickle, NamesThatWouldHarmAreOnlyNames) {
  const auto document = parse("cos\nsystem\n(S'touch /tmp/harm'\ntR.");
  EXPECT_EQ(document->root().kind(), ValueKind::object);
  EXPECT_EQ(document->root().text(), "os.system");
  EXPECT_EQ(document->root()[0].string(), "touch /tmp/harm");
}

TEST(Pickle, OpcodesThatPythonSeldomEmits) {
  EXPECT_EQ(to_json(parse("(K\x01K\x02l.")->root()).dump(), "[1,2]");
  EXPECT_EQ(to_json(parse("(U\x01"
                          "aK\x02"
                          "d.")
                        ->root())
                .dump(),
            R"({"a":2})");
  EXPECT_EQ(parse("K\x01K\x02"
                  "0.")
                ->root()
                .integer(),
            1);  // POP
  EXPECT_EQ(parse("K\x01(K\x02"
                  "1.")
                ->root()
                .integer(),
            1);                                       // POP_MARK
  EXPECT_EQ(parse("K\x01(0.")->root().integer(), 1);  // POP of a mark
  EXPECT_EQ(to_json(parse("(K\x07"
                          "2t.")
                        ->root())
                .dump(),
            "[7,7]");                                                            // DUP
  EXPECT_EQ(parse("(K\x05ia\nB\n.")->root().text(), "a.B");                      // INST
  EXPECT_EQ(parse("(ca\nB\nK\x05o.")->root()[0].integer(), 5);                   // OBJ
  EXPECT_EQ(parse("Pkey\n.")->root()[0].string(), "key");                        // PERSID
  EXPECT_EQ(parse("ca\nB\n)}U\x01xK\x05s\x92.")->root().get("x").integer(), 5);  // NEWOBJ_EX
  EXPECT_EQ(parse("I01\n.")->root().boolean(), true);
  EXPECT_EQ(parse("L-12L\n.")->root().integer(), -12);
  EXPECT_EQ(parse("F-2.5e3\n.")->root().real(), -2500.0);
  EXPECT_TRUE(std::isnan(*parse("Fnan\n.")->root().real()));
  EXPECT_EQ(parse("S'a\\x41\\n\\''\n.")->root().string(), "aA\n'");
  EXPECT_EQ(parse("V\\u0041\\U0001f642\xe9\n.")->root().string(), "A\U0001f642é");
  EXPECT_EQ(parse("U\x02\xff\xfe.")->root().kind(), ValueKind::bytes);  // Python 2 str, not text
  EXPECT_EQ(parse("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."s)->root().text(),
            "0xffffffffffffffff");
  EXPECT_EQ(parse("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff.")->root().integer(), -1);
  EXPECT_EQ(parse("\x8a\x00."s)->root().integer(), 0);
  EXPECT_EQ(parse("\x8b\x01\x00\x00\x00\x80."s)->root().integer(), -128);
}

TEST(Pickle, MemoryIsOfTheValuesNotOfTheMemo) {
  EXPECT_EQ(parse("K\x05r\xff\xff\xff\xff"
                  "0j\xff\xff\xff\xff.")
                ->root()
                .integer(),
            5);
  EXPECT_EQ(parse("K\x05p18446744073709551615\n0g18446744073709551615\n.")->root().integer(), 5);
  EXPECT_EQ(error_of("K\x05p18446744073709551616\n."), ErrorKind::corrupt);
  EXPECT_EQ(error_of("j\xff\xff\xff\xff."), ErrorKind::corrupt);
}

TEST(Pickle, LengthsBeyondTheFileAreCorrupt) {
  EXPECT_EQ(error_of("\x8d\0\0\0\0\0\0\0\x10"s), ErrorKind::corrupt);  // BINUNICODE8, 2^60
  EXPECT_EQ(error_of("\x8e\0\0\0\0\0\0\0\x10"s), ErrorKind::corrupt);  // BINBYTES8
  EXPECT_EQ(error_of("\x96\xff\xff\xff\xff\xff\xff\xff\xff"), ErrorKind::corrupt);  // BYTEARRAY8
  EXPECT_EQ(error_of("\x95\0\0\0\0\0\0\0\x10N."s), ErrorKind::corrupt);             // FRAME
  EXPECT_EQ(error_of("X\xff\xff\xff\xff"
                     "a."),
            ErrorKind::corrupt);
  EXPECT_EQ(error_of("\x8b\xff\xff\xff\xff."), ErrorKind::corrupt);  // LONG4, negative
  EXPECT_EQ(error_of("\x8b\xff\xff\xff\x7f."), ErrorKind::corrupt);
}

TEST(Pickle, WrongStacksAreCorrupt) {
  for (const char* bytes :
       {".",     "0.",         "2.",         "N",       "R.",      "NR.",      "N)R",
        "(N",    "t.",         "NNs.",       "}Ns.",    "NNNs.",   "N(Na.",    "e.",
        "(e.",   "(Ne.",       "N(Ne.",      "](Nu.",   "}(Nu.",   "}(NN(u.",  "b.",
        "NNb.",  "]Nb.",       "\x81.",      "\x85.",   "N\x86.",  "NN\x87.",  "(N\x86.",
        "\x93.", "NN\x93.",    "\x94.",      "q",       "Q.",      "1.",       "d.",
        "(Nd.",  "l.",         "(o.",        "\x90.",   "](N\x90", "N)N\x92.", "ca\nB\n)N\x92.",
        "N)R.",  "ca\nB\nNR.", "ca\nB\n]R.", "]((Ne0.", "})\x81.", "(N(\x85.", "\xff."}) {
    EXPECT_EQ(error_of(bytes), ErrorKind::corrupt) << bytes;
  }
}

// It is not in the pickle: what is done to it could not be written again.
TEST(Pickle, WhatIsStoredElsewhereIsNotAddedTo) {
  for (const std::string& id : {"K\1Q"s, "(K\1K\2tQ"s, "Pkey\n"s}) {
    EXPECT_EQ(parse(id + ".")->root().kind(), ValueKind::object);
    for (const std::string& step : {"Na"s, "U\1xNs"s, "(U\1xNu"s, "}b"s, "}U\1xNsb"s, "Nb"s}) {
      EXPECT_EQ(error_of(id + step + "."), ErrorKind::corrupt) << id << step;
    }
  }
}

TEST(Pickle, DamagedTextIsCorrupt) {
  for (const char* bytes : {"I1",
                            "Ia\n.",
                            "I\n.",
                            "L12x\n.",
                            "F1.5x\n.",
                            "F\n.",
                            "S'a\n.",
                            "Sa\n.",
                            "S'\\'\n.",
                            "S'\\x4'\n.",
                            "S'\\q'\n.",
                            "V\\u12\n.",
                            "V\\U00110000\n.",
                            "V\\u12g4\n.",
                            "g-1\n.",
                            "pa\n.",
                            "X\2\0\0\0\xc3\x28.",
                            "\x8c\x01\x80.",
                            "\x8c\x04\xf5\x80\x80\x80.",
                            "cos\nsys"}) {
    const std::string text = bytes[0] == 'X' ? "X\2\0\0\0\xc3\x28."s : std::string(bytes);
    EXPECT_EQ(error_of(text), ErrorKind::corrupt) << bytes;
  }
}

TEST(Pickle, BytesSpelledAsTextMustBeLatin1) {
  const auto encode = [](const std::string& text) {
    return "c_codecs\nencode\n(\x8c" + std::string(1, static_cast<char>(text.size())) + text +
           "\x8c\x06latin1tR.";
  };
  EXPECT_EQ(parse(encode("a\u00e9\u0080"))->root().text(), "a\xe9\x80");
  EXPECT_EQ(error_of(encode("a\u65e5")), ErrorKind::corrupt);
}

TEST(Pickle, LoneSurrogatesOfPythonAreKeptAndPrinted) {
  const auto document = parse(
      "\x8c\x05"
      "a\xed\xb2\x80"
      "b.");
  EXPECT_EQ(document->root().text(),
            "a\xed\xb2\x80"
            "b");
  EXPECT_EQ(to_json(document->root()).dump(), "\"a\uFFFD\uFFFD\uFFFDb\"");
}

TEST(Pickle, WhatNeedsTheWritersProcessIsUnsupported) {
  for (const char* bytes :
       {"\x82\x01.", "\x83\x01\x01.", "\x84\x01\x01\x01\x01.", "\x97.", "N\x98."}) {
    EXPECT_EQ(error_of(bytes), ErrorKind::unsupported) << bytes;
  }
  EXPECT_EQ(error_of("\x80\x06N."), ErrorKind::unsupported);
}

TEST(Pickle, DeepNestingNeedsNoStackOfOurs) {
  constexpr size_t kDepth = 1'000'000;
  const auto lists = parse(repeat("]", kDepth) + repeat("a", kDepth - 1) + ".");
  EXPECT_EQ(to_json(lists->root(), 3).dump(), R"([[["..."]]])");
  const auto tuples = parse("N"s + repeat("\x85", kDepth) + ".");
  EXPECT_EQ(tuples->root().size(), 1u);
  parse(repeat("(", kDepth) + "K\x01"s + repeat("l", kDepth) + ".");
  const auto calls =
      parse("ca\nB\nq\0"s + repeat("h\0"s, kDepth) + "N"s + repeat("\x85R", kDepth) + ".");
  EXPECT_EQ(calls->root().kind(), ValueKind::object);
}

TEST(Pickle, SharedStructureIsNotWrittenOutExponentially) {
  // Forty lists, each holding the one before twice.
  std::string bytes = "]q\0"s;
  for (char i = 1; i < 40; ++i)
    bytes += "]q"s + i + "h" + static_cast<char>(i - 1) + "ah" + static_cast<char>(i - 1) + "a";
  const auto document = parse(bytes + ".");
  EXPECT_LT(document->nodes.size(), 200u);
  EXPECT_LT(to_json(document->root(), 64).dump().size(), 20u << 20);
}

TEST(Pickle, SharedTextIsNotWrittenOutAgainAndAgain) {
  const std::string text = "X\0\0\x10\0"s + std::string(1 << 20, 'x') + "q\0"s;  // 1 MiB
  const auto document = parse("("s + text + repeat("h\0"s, 200) + "l.");
  EXPECT_EQ(document->root().size(), 201u);
  EXPECT_LT(to_json(document->root()).dump().size(), 70u << 20);
}

TEST(Pickle, SharedKeysAreNotWrittenOutAgainAndAgain) {
  const std::string key = "X\0\0\x10\0"s + std::string(1 << 20, 'x') + "q\0"s;  // 1 MiB
  const auto document = parse(key + "0("s + repeat("}h\0Ns"s, 200) + "l.");
  EXPECT_EQ(document->root().size(), 200u);
  EXPECT_LT(to_json(document->root()).dump().size(), 70u << 20);
}

TEST(Pickle, WhatIsTooMuchToWriteEndsInDots) {
  const auto document = parse("("s + repeat("N", 3'000'000) + "l.");
  const nlohmann::json json = to_json(document->root());
  EXPECT_LT(json.size(), 1'200'000u);
  EXPECT_EQ(json.back(), "...");
}

TEST(Pickle, RepeatedReferencesDoNotMultiplyMemory) {
  const std::string names = "("s + repeat("N", 20'000) + "tq\0ca\nB\nq\1"s;
  // A few objects with the same twenty thousand arguments: shared.
  const auto objects = parse(names + "("s + repeat("h\1h\0R"s, 4) + "l.");
  EXPECT_EQ(objects->root()[3].size(), 20'000u);
  EXPECT_LT(objects->slots.size(), 100'000u);
  // Twenty thousand of them: visiting all arguments would never end.
  EXPECT_EQ(error_of(names + "("s + repeat("h\1h\0R"s, 20'000) + "l."), ErrorKind::exhausted);
  // So with states, sets and persistent ids.
  const std::string state = "("s + repeat("NN", 10'000) + "dq\2ca\nB\nq\1"s;
  EXPECT_EQ(error_of(state + "("s + repeat("h\1)\x81h\2b"s, 20'000) + "l."), ErrorKind::exhausted);
  EXPECT_EQ(error_of(names + "("s + repeat("h\0Q"s, 20'000) + "l."), ErrorKind::exhausted);
  // Each of them appended to: would be four hundred million copies.
  EXPECT_EQ(error_of(names + "("s + repeat("h\1h\0RNa"s, 20'000) + "l."), ErrorKind::exhausted);
  // Names joined from two long strings, again and again.
  std::string joined;
  for (int i = 0; i < 200; ++i) {
    joined += "X\0\x10\0\0"s + std::string(4090, 'x') + std::to_string(100'000 + i) + "r" +
              static_cast<char>(i) + "\1\0\0"s + "0";
  }
  for (int i = 0; i < 200; ++i) {
    for (int k = 0; k < 200; ++k) {
      joined += "j"s + static_cast<char>(i) + "\1\0\0j"s + static_cast<char>(k) +
                "\1\0\0\x93"
                "0"s;
    }
  }
  EXPECT_EQ(error_of(joined + "N."), ErrorKind::exhausted);
}

// What instances were made by is numbered by itself, and so are texts: neither is a place of the
// other, neither where the numbers meet nor where they leave the texts.
TEST(Pickle, AnObjectWhereATextIsExpectedIsNoText) {
  const std::string head =
      "ccopyreg\n_reconstructor\nq\0ca\nB\nq\1c__builtin__\nobject\nq\2"
      "U\7storageq\3ctorch\nFloatStorage\nq\4"s;
  const std::string object = "h\0(h\1h\2NtR"s;
  // ("storage", class, key, location, elements), with the last one of `objects` for a part of it.
  const auto kind_of = [&](size_t objects, const std::string& word, const std::string& type) {
    const std::string storage = "(" + word + type +
                                "U\1"
                                "0U\3cpuK\4tQ";
    const std::string tensor =
        "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + "K\0(K\4t(K\1t\x89NtR"s;
    return parse(head + "(" + repeat(object, objects) + "l" + tensor + ".")->root().kind();
  };
  EXPECT_EQ(kind_of(1, "h\3"s, "h\4"s), ValueKind::tensor);
  for (const size_t objects : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20'000}) {
    EXPECT_EQ(kind_of(objects, object, "h\4"s), ValueKind::object) << objects;
    EXPECT_EQ(kind_of(objects, "h\3"s, object), ValueKind::object) << objects;
  }
  const auto encoded =
      parse(head + "(" + repeat(object, 20'000) + "lc_codecs\nencode\n(U\1a" + object + "tR.");
  EXPECT_EQ(encoded->root().kind(), ValueKind::object);
}

TEST(Pickle, StateGivenTwiceIsMerged) {
  const auto document = parse(
      "ca\nB\n)\x81}U\x01xK\x05s"
      "b}U\x01yK\x06s"
      "b.");
  EXPECT_EQ(document->root().get("x").integer(), 5);
  EXPECT_EQ(document->root().get("y").integer(), 6);
}

TEST(Pickle, AStateThatGrowsLaterIsNotTheObjects) {
  // The dict gets y after it has become the object's state; the object z after that.
  const auto document = parse(
      "(ca\nB\n)\x81q\0}q\1U\x01xK\x05s"
      "bh\1U\x01yK\x06sh\0U\x01zK\x07st."s);
  const Value root = document->root();
  EXPECT_EQ(to_json(root[0]).dump(), R"({"__class__":"a.B","x":5,"z":7})");
  EXPECT_EQ(to_json(root[1]).dump(), R"({"x":5,"y":6})");
}

TEST(Pickle, LimitsHold) {
  const std::string many = "("s + repeat("J\x00\x00\x01\x00"s, 100) + "l.";
  EXPECT_EQ(error_of(many, {.nodes = 50, .bytes = 1000}), ErrorKind::exhausted);
  EXPECT_EQ(parse(many, {.nodes = 150, .bytes = 1000})->root().size(), 100u);
  const std::string shared = "Nq\0"s;
  EXPECT_EQ(error_of(shared + repeat("h\0"s, 100) + ".", {.nodes = 50}), ErrorKind::exhausted);
  EXPECT_EQ(error_of(repeat("(", 100) + "N.", {.nodes = 50}), ErrorKind::exhausted);
  const std::string text = "\x8c\x64"s + std::string(100, 'x') + ".";
  EXPECT_EQ(error_of(text, {.nodes = 50, .bytes = 99}), ErrorKind::exhausted);
  EXPECT_EQ(parse(text, {.nodes = 50, .bytes = 100})->root().text().size(), 100u);
}

TEST(Pickle, EveryTruncationIsCorrupt) {
  for (int protocol = 0; protocol < 6; protocol += 2) {
    const std::string name = "pickle/value_p" + std::to_string(protocol) + ".pkl";
    const std::string bytes = read_file(*posix_file_system(), test::fixture(name), 1 << 20);
    for (size_t length = 0; length + 1 < bytes.size(); length += length < 2000 ? 1 : 97) {
      EXPECT_EQ(error_of(bytes.substr(0, length)), ErrorKind::corrupt) << name << " " << length;
    }
  }
}

TEST(Pickle, EveryFlippedBitParsesOrIsAnError) {
  const std::string good =
      read_file(*posix_file_system(), test::fixture("dcp_zstd/.metadata"), 1 << 20);
  size_t errors = 0;
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    try {
      to_json(parse(bytes)->root());
    } catch (const Error&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 1000u);
}

}  // namespace
}  // namespace ferry
