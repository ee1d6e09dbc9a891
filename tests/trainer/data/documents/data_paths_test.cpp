#include "trainer/data/documents/data_paths.h"

#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "tests/io/memory_file_system.h"
#include "trainer/data/samples/index_cache.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Blend blend(const std::vector<std::string>& words) { return parse_blend(words, "--data-path"); }

template <typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid);
    return error.what();
  }
  return "no error";
}

TEST(DataPaths, WeightsStandBeforePrefixes) {
  EXPECT_THAT(blend({"a"}).prefixes, ElementsAre("a"));
  EXPECT_THAT(blend({" a ", "b"}).prefixes, ElementsAre("a", "b"));
  EXPECT_THAT(blend({"a", "b"}).weights, ElementsAre());
  EXPECT_THAT(blend({"0.3", "a", " 7e1 ", "b"}).prefixes, ElementsAre("a", "b"));
  EXPECT_THAT(blend({"0.3", "a", " 7e1 ", "b"}).weights, ElementsAre(0.3, 70));
  // An odd number of words: all are prefixes.
  EXPECT_THAT(blend({"30", "a", "70"}).prefixes, ElementsAre("30", "a", "70"));
  EXPECT_THAT(message_of([] { blend({}); }), HasSubstr("--data-path does not name a dataset"));
  EXPECT_THAT(message_of([] { blend({"1", "a", "x", "b"}); }), HasSubstr("1 of 2 pairs"));
  for (const char* weight : {"0", "-1", "nan", "inf", "-inf"}) {
    EXPECT_THAT(message_of([weight] { blend({weight, "a"}); }), HasSubstr("is not positive"));
  }
}

// 1, 1/2, 1/3, ...
std::vector<double> harmonic(int count) {
  std::vector<double> weights;
  for (int i = 1; i <= count; ++i) weights.push_back(1.0 / i);
  return weights;
}

// Sums that another size of block, or one sum from the front, would not give.
TEST(DataPaths, WeightsAreAddedInBlocks) {
  EXPECT_EQ(number(normalized(harmonic(152)).front()), "0.17843180400980724");
  EXPECT_EQ(number(normalized(harmonic(153)).front()), "0.17822395550067163");
}

// numpy.array(weights) / numpy.sum(weights) of 0.1, 0.2, ..., by NumPy 2.4.
TEST(DataPaths, WeightsAreAddedPairwise) {
  for (const auto& [count, last] : {std::pair{3, "0.5"},
                                    {9, "0.2"},
                                    {127, "0.015625"},
                                    {200, "0.009950248756218905"},
                                    {1000, "0.001998001998001998"}}) {
    std::vector<double> weights;
    for (int i = 1; i <= count; ++i) weights.push_back(0.1 * i);
    EXPECT_EQ(number(normalized(weights).back()), last) << count;
  }
}

TEST(DataPaths, SplitsAreSharesOfSequences) {
  const SplitShares shares = parse_split("");
  EXPECT_EQ(shares.text, "969, 30, 1");
  EXPECT_THAT(*shares.bounds.train, Pair(0, 0.969));
  EXPECT_EQ(range_of(*shares.bounds.train, 1000).end, 969);
  EXPECT_EQ(range_of(*shares.bounds.valid, 1000).end, 999);
  EXPECT_EQ(range_of(*shares.bounds.test, 1000).end, 1000);
  EXPECT_EQ(range_of({0.0, 0.5}, 5).end, 2);  // half to even
  EXPECT_EQ(range_of({0.0, 0.5}, 7).end, 4);
  const SplitShares all = parse_split("100,0,0");
  EXPECT_FALSE(all.bounds.valid || all.bounds.test);
  EXPECT_EQ(parse_split("1").bounds.train->second, 1);
  EXPECT_EQ(parse_split("0.9, 0.1,0").bounds.train->second, 0.9);
  EXPECT_EQ(parse_split(" 1,.5 ").text, " 1,.5 ");  // as given, in descriptions
  EXPECT_EQ(parse_split("0,0,5").bounds.test->first, 0);
  for (const char* wrong : {"0,0,0", "a", "1,2,3,4", "1.2.3", "-1,5,6", ".", "nan,1", "inf,1",
                            "1e400,1", "1e2,1", "train1,2", "1;2;3", "1 2 3", "1,,2", "1,"}) {
    EXPECT_THAT(message_of([wrong] { parse_split(wrong); }), HasSubstr(wrong));
  }
}

TEST(DataPaths, DescriptionsArePythons) {
  EXPECT_EQ(
      split_matrix(parse_split("99,1,0")),
      "[\n    [\n        0,\n        0.99\n    ],\n    [\n        0.99,\n        1.0\n    ],\n"
      "    null\n]");
  EXPECT_EQ(number(1), "1.0");
  EXPECT_EQ(number(1e-5), "1e-05");
  EXPECT_EQ(number(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(number(1e16), "1e+16");
  EXPECT_EQ(number(123456789012345680.0), "1.2345678901234568e+17");
  EXPECT_EQ(quoted("a\"\\\n\x7f\u00e9\U0001F642/"), R"("a\"\\\n\u007f\u00e9\ud83d\ude42/")");
  EXPECT_EQ(json_of_tokenizer(R"({"z": [], "a": {"b": null}})"),
            "{\n    \"z\": [],\n    \"a\": {\n        \"b\": null\n    }\n}");
  EXPECT_THROW(json_of_tokenizer("[]"), Error);
  EXPECT_THROW(json_of_tokenizer("{"), Error);
}

struct Paths : testing::Test {
  DataPaths parse() const { return parse_data_paths(memory, options); }
  MemoryFileSystem memory;
  DataOptions options;
};

TEST_F(Paths, OneWayOfNamingThem) {
  EXPECT_THAT(message_of([this] { parse(); }), HasSubstr("0 of --data-path"));
  options.data_path = {"a"};
  EXPECT_THAT(parse().all->prefixes, ElementsAre("a"));
  options.mock_data = true;
  EXPECT_THAT(message_of([this] { parse(); }), HasSubstr("2 of --data-path"));
  options.data_path.clear();
  EXPECT_FALSE(parse().all);
}

TEST_F(Paths, FromAFile) {
  memory.put("args", " 0.5 a\n0.5\tb \n");
  options.data_args_path = "args";
  EXPECT_THAT(parse().all->prefixes, ElementsAre("a", "b"));
  EXPECT_THAT(parse().all->weights, ElementsAre(0.5, 0.5));
  memory.put("args", "");
  EXPECT_THAT(message_of([this] { parse(); }), HasSubstr("args does not name a dataset"));
}

TEST_F(Paths, EachSplitsOwn) {
  options.split_data_path.valid = {"1", "b"};
  EXPECT_FALSE(parse().each.train);
  EXPECT_THAT(parse().each.valid->weights, ElementsAre(1));
  options.split = "1,1,1";
  EXPECT_THAT(message_of([this] { parse(); }), HasSubstr("--split 1,1,1 has no effect"));
}

TEST_F(Paths, EachSplitsOwnFromAFile) {
  memory.put("each", R"({"train": "0.5 a 0.5 b", "valid": [3, "c", "1", "d"], "test": null})");
  options.per_split_data_args_path = "each";
  EXPECT_THAT(parse().each.train->prefixes, ElementsAre("a", "b"));
  EXPECT_THAT(parse().each.valid->weights, ElementsAre(3, 1));
  EXPECT_FALSE(parse().each.test);
  memory.put("each", R"({"train": 3})");
  EXPECT_THAT(message_of([this] { parse(); }), HasSubstr("'train' of each is neither"));
  memory.put("each", R"({"train": ["a", {}]})");
  EXPECT_THAT(message_of([this] { parse(); }), HasSubstr("'train' of each is neither"));
  memory.put("each", R"({"validation": ["a"]})");
  EXPECT_THAT(message_of([this] { parse(); }), HasSubstr("names a split 'validation'"));
  memory.put("each", "[]");
  EXPECT_THAT(message_of([this] { parse(); }), HasSubstr("each is not a JSON object"));
}

}  // namespace
}  // namespace ferry
