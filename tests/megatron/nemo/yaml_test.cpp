#include "ckpt/megatron/config/yaml.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

using nlohmann::json;

json parsed(std::string_view text) { return to_json(parse_yaml(text, "x.yaml")->root()); }

TEST(Yaml, Scalars) {
  EXPECT_EQ(parsed("a: 1\nb: -2.5e-05\nc: true\nd: null\ne:\nf: 'text with: colon'\ng: ''\n"),
            json::parse(R"({"a": 1, "b": -2.5e-5, "c": true, "d": null, "e": null,
                            "f": "text with: colon", "g": ""})"));
  EXPECT_EQ(parsed("'quoted '' key': \"a\\n\\\"b\\\"\"\n"),
            json::parse(R"({"quoted ' key": "a\n\"b\""})"));
  EXPECT_EQ(parsed("a: 99999999999999999999\n")["a"], 1e20);
  EXPECT_EQ(parsed("a: 1-2\nb: e\nc: .5.5\n"), json::parse(R"({"a":"1-2","b":"e","c":".5.5"})"));
  EXPECT_TRUE(std::isinf(*parse_yaml("a: .inf\n", "")->root().get("a").real()));
}

TEST(Yaml, NestsByIndentation) {
  EXPECT_EQ(parsed("a:\n  b:\n    c: 1\n  d: 2\ne: 3\n"),
            json::parse(R"({"a": {"b": {"c": 1}, "d": 2}, "e": 3})"));
  EXPECT_EQ(parsed("a:\n- 1\n- x: 2\n  y: 3\n- - 4\n  - 5\n-\nb: 6\n"),
            json::parse(R"({"a": [1, {"x": 2, "y": 3}, [4, 5], null], "b": 6})"));
  EXPECT_EQ(parsed("a:\n  - 1\n  - 2\nb: [1, two, 3.5]\nc: []\nd: {}\n"),
            json::parse(R"({"a": [1, 2], "b": [1, "two", 3.5], "c": [], "d": {}})"));
  EXPECT_EQ(parsed("- 1\n- 2\n"), json::parse("[1, 2]"));
  EXPECT_EQ(parsed(""), json());
  EXPECT_EQ(parsed("# note\n---\na: 1\n...\n"), json::parse(R"({"a": 1})"));
}

TEST(Yaml, FoldedScalars) {
  EXPECT_EQ(parsed("a: 'one two\n  three: four\n\n  five'\nb: 1\n"),
            json::parse(R"({"a": "one two three: four\nfive", "b": 1})"));
}

TEST(Yaml, AnchorsAndAliases) {
  EXPECT_EQ(parsed("a: &id001\n  x: 1\nb: *id001\nc:\n- *id001\nd: &id002 7\ne: *id002\n"),
            json::parse(R"({"a": {"x": 1}, "b": {"x": 1}, "c": [{"x": 1}], "d": 7, "e": 7})"));
}

TEST(Yaml, RefusesWhatItCannotPlace) {
  for (const char* text : {"a: 1\n   b: 2\nc\n", "a: 1\n- 2\n", "a: *nowhere\n", "  a: 1\n b: 2\n",
                           "a: {}\n  b: 1\n"}) {
    EXPECT_THROW(parse_yaml(text, "x.yaml"), Error) << text;
  }
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  EXPECT_THROW(parse_yaml(deep, "x.yaml"), Error);
  std::string dashes;
  for (int i = 0; i < 100; ++i) dashes += "- ";
  EXPECT_THROW(parse_yaml(dashes + "1", "x.yaml"), Error);
}

TEST(Yaml, RefusesAKeyThatIsThereTwice) {
  const auto problem = [](std::string_view text) -> std::string {
    try {
      parse_yaml(text, "x.yaml");
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  const std::string said =
      "x.yaml, line 3: the key 'a' is on line 1 already; remove one of the two";
  EXPECT_THAT(problem("a: 1\nb: 2\na: 1\n"), testing::HasSubstr(said));
  EXPECT_THAT(problem("a:\n  b: 2\n'a': 3\n"), testing::HasSubstr(said));
  EXPECT_THAT(problem("- {x: 1, x: 2}\n"), testing::HasSubstr("'x' is on line 1 already"));
  EXPECT_EQ(problem("a: {a: 1}\nb: {a: 1}\n"), "none");
}

TEST(Yaml, LongFoldsTakeLinearTime) {
  std::string text = "a: x\n";
  for (int i = 0; i < 300000; ++i) text += "  y\n";
  EXPECT_EQ(parse_yaml(text, "x.yaml")->root().get("a").string()->size(), 600001u);
}

}  // namespace
}  // namespace ferry
