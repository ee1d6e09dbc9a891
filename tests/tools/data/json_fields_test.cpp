// One line of JSON, as Python's json.loads takes or refuses it.
#include "tools/data/tokenize/json_fields.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace ferry::tool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> texts_of(const FieldTexts& field) {
  return {field.texts.begin(), field.texts.end()};
}

// The texts of "text".
std::vector<std::string> texts(const std::string& line) {
  JsonFields fields({"text"});
  const std::string problem = fields.read(line);
  EXPECT_EQ(problem, "") << line;
  return texts_of(fields.fields()[0]);
}

std::string problem(const std::string& line) { return JsonFields({"text"}).read(line); }

TEST(JsonFields, TakesStringsAndListsOfThem) {
  EXPECT_THAT(texts(R"({"text": "a b"})"), ElementsAre("a b"));
  EXPECT_THAT(texts(" \t{ \"a\" : [ 1 , {\"text\":\"no\"} ] , \"text\" : \"yes\" } \r\n"),
              ElementsAre("yes"));
  EXPECT_THAT(texts(R"({"text": ["a", "", "c"]})"), ElementsAre("a", "", "c"));
  EXPECT_THAT(texts(R"({"text": []})"), IsEmpty());
  EXPECT_THAT(texts(R"({"text": ""})"), ElementsAre(""));
  JsonFields fields({"a", "b"});
  EXPECT_EQ(fields.read(R"({"b": ["x"], "c": null, "a": "y"})"), "");
  EXPECT_THAT(texts_of(fields.fields()[0]), ElementsAre("y"));
  EXPECT_FALSE(fields.fields()[0].is_list);
  EXPECT_TRUE(fields.fields()[1].is_list);
  EXPECT_EQ(fields.read(R"({"b": "next", "a": "line"})"), "");
  EXPECT_THAT(texts_of(fields.fields()[1]), ElementsAre("next"));
}

TEST(JsonFields, TheLastOfTwoMembersCounts) {
  EXPECT_THAT(texts(R"({"text": ["a", "b"], "text": "c"})"), ElementsAre("c"));
  EXPECT_THAT(texts(R"({"text": "c", "text": ["a", "b"]})"), ElementsAre("a", "b"));
}

TEST(JsonFields, Escapes) {
  EXPECT_THAT(texts(R"({"text": "\"\\\/\b\f\n\r\t"})"), ElementsAre("\"\\/\b\f\n\r\t"));
  EXPECT_THAT(texts(R"({"text": "x\u0041\u00e9\u65E5\ud83d\ude42y"})"),
              ElementsAre("xA\u00e9\u65e5\U0001f642y"));
  EXPECT_THAT(texts(R"({"\u0074ext": "name"})"), ElementsAre("name"));
  EXPECT_THAT(texts(R"({"text": "a\u0000b"})"), ElementsAre(std::string("a\0b", 3)));
  // Several escaped texts of a line stay where they are.
  const std::string many =
      R"({"text": ["\na", "plain text, longer than a word", "b\t", "\\\\\\"]})";
  EXPECT_THAT(texts(many), ElementsAre("\na", "plain text, longer than a word", "b\t", "\\\\\\"));
}

TEST(JsonFields, OtherMembersMayBeAnything) {
  for (const char* value :
       {"0", "-0", "1.5e-7", "1E+3", "NaN", "-Infinity", "Infinity", "true", "false", "null", "[]",
        "{}", "[[[]],{}]", R"({"a":{"b":[1,"]}",{}]}})", R"("\ud800")", R"(["\udfff"])"}) {
    EXPECT_THAT(texts("{\"x\":" + std::string(value) + ",\"text\":\"t\"}"), ElementsAre("t"));
  }
}

TEST(JsonFields, NamesWhatIsBroken) {
  EXPECT_THAT(problem(R"({"text": "a)"), HasSubstr("a string does not end in column 12"));
  EXPECT_THAT(problem(R"({"text": "a")"), HasSubstr("a ',' or '}' is missing"));
  EXPECT_THAT(problem(R"({"text" "a"})"), HasSubstr("a ':' is missing"));
  EXPECT_THAT(problem(R"({"text": "a"} x)"),
              HasSubstr("something follows the object in column 15"));
  EXPECT_THAT(problem("{\"text\": \"a\tb\"}"), HasSubstr("a control character"));
  EXPECT_THAT(problem(R"({"text": "\x41"})"), HasSubstr("a backslash begins no escape"));
  EXPECT_THAT(problem(R"({"text": "\u12g4"})"), HasSubstr("four hexadecimal digits"));
  EXPECT_THAT(problem(R"(["text"])"), HasSubstr("it is not an object"));
  EXPECT_THAT(problem("   "), HasSubstr("white space"));
  EXPECT_THAT(problem(R"(["text"])"), HasSubstr("jq -c '.[]'"));
  EXPECT_THAT(problem("plain, text"), HasSubstr("--input-format text"));
  EXPECT_THAT(problem("\xff\xfe{"), HasSubstr("iconv -f UTF-16 -t UTF-8"));
  EXPECT_EQ(problem(R"({"txt": "a", "m": {"text": [1, "b"]}})"),
            "it has no key \"text\", but \"txt\", \"m\"; --json-keys names those to take");
  EXPECT_EQ(problem("{}"), "it has no key \"text\", and no other");
  EXPECT_THAT(problem("{\"text\": \"\xff\"}"), HasSubstr("byte 0xff in column 11 is not UTF-8"));
  EXPECT_THAT(problem("{\"text\": \"\xed\xa0\x80\"}"), HasSubstr("is not UTF-8"));
  for (const char* value : {"12", "null", "{}", "[1]", "[[\"a\"]]", "[\"a\", null]"}) {
    EXPECT_THAT(problem("{\"text\":" + std::string(value) + "}"),
                HasSubstr("neither a string nor a list of strings"))
        << value;
  }
  EXPECT_THAT(problem(R"({"text": "a\ud800"})"), HasSubstr("surrogate"));
  EXPECT_THAT(problem(R"({"text": "\udc00\ud800"})"), HasSubstr("surrogate"));
  for (const char* value : {"01", "1.", ".5", "+1", "1e", "-", "tru", "nan", "'a'", ""}) {
    EXPECT_NE(problem("{\"x\":" + std::string(value) + ",\"text\":\"t\"}"), "") << value;
  }
  for (const char* line :
       {"{", "}", "{,}", R"({"text":"a",})", R"({"x":[1,],"text":"a"})",
        R"({"x":{"a":1,},"text":"a"})", R"({text:"a"})", R"({"x":{1:2},"text":"a"})"}) {
    EXPECT_NE(problem(line), "") << line;
  }
}

TEST(JsonFields, DepthIsBounded) {
  const auto nested = [](int depth) {
    return "{\"x\":" + std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']') + ",\"text\":\"t\"}";
  };
  EXPECT_THAT(texts(nested(kDeepestJson)), ElementsAre("t"));
  EXPECT_THAT(problem(nested(kDeepestJson + 1)), HasSubstr("more than 990"));
  EXPECT_NE(problem("{\"x\":" + std::string(1 << 20, '[')), "");
}

}  // namespace
}  // namespace ferry::tool
