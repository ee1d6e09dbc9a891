// Pickles that Python wrote, in every protocol.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "ckpt/format/pickle/pickle.h"
#include "tests/format/torch/torch_items.h"

namespace ferry {
namespace {

using namespace std::string_literals;

// The value that make_torch_fixtures.py pickles, protocol by protocol.
class PickledValue : public testing::TestWithParam<int> {
 protected:
  PickledValue()
      : document_(test::read_pickle_file(
            test::fixture("pickle/value_p" + std::to_string(GetParam()) + ".pkl"))),
        root_(document_->root()) {}

  std::string json(std::string_view key) const { return to_json(root_.get(key)).dump(); }

  std::shared_ptr<const Document> document_;
  Value root_;
};

TEST_P(PickledValue, HasItsScalars) {
  EXPECT_TRUE(root_.has("none"));
  EXPECT_TRUE(root_.get("none").is_none());
  EXPECT_EQ(root_.get("true").boolean(), true);
  EXPECT_EQ(root_.get("false").boolean(), false);
  EXPECT_EQ(json("integers"),
            "[0,1,-1,255,256,65535,65536,-129,2147483647,2147483648,-2147483648,1099511627776,"
            "9223372036854775807,-9223372036854775808]");
  EXPECT_EQ(json("reals"), "[0.0,-1.5,1e+300,0.1]");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(root_.get("big")[i].kind(), ValueKind::big_integer);
    EXPECT_EQ(root_.get("big")[i].integer(), std::nullopt);
  }
  const bool is_decimal = GetParam() < 2;
  EXPECT_EQ(root_.get("big")[0].text(), is_decimal ? "9223372036854775808" : "0x8000000000000000");
  EXPECT_EQ(root_.get("big")[1].text(),
            is_decimal ? "-9223372036854775809" : "-0x8000000000000001");
}

TEST_P(PickledValue, HasItsText) {
  const Value text = root_.get("text");
  ASSERT_EQ(text.size(), 5u);
  EXPECT_EQ(text[0].string(), "");
  EXPECT_EQ(text[1].string(), "ascii");
  EXPECT_EQ(text[2].string(), "naïve \u65e5\u672c \U0001f642");
  EXPECT_EQ(text[3].string(), "quote' and \\ and \n");
  EXPECT_EQ(text[4].string(), std::string(300, 'x'));
}

TEST_P(PickledValue, HasItsBytes) {
  const Value bytes = root_.get("bytes");
  ASSERT_EQ(bytes.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(bytes[i].kind(), ValueKind::bytes) << i;
  EXPECT_EQ(bytes[0].text(), "");
  EXPECT_EQ(bytes[1].string(), std::nullopt);
  EXPECT_EQ(bytes[2].string(), std::string(300, 'y'));
  EXPECT_EQ(bytes[1].text(), "\x00\xff\x80"s);
  EXPECT_EQ(bytes[2].text(), std::string(300, 'y'));
  EXPECT_EQ(root_.get("bytearray").kind(), ValueKind::bytes);
  EXPECT_EQ(root_.get("bytearray").text(), "ab\xe9");
}

TEST_P(PickledValue, HasItsContainers) {
  EXPECT_EQ(json("tuples"), "[[],[1],[1,2],[1,2,3],[1,2,3,4]]");
  EXPECT_EQ(root_.get("tuples")[4].kind(), ValueKind::tuple);
  for (const char* key : {"set", "frozenset", "empty_set"}) {
    EXPECT_EQ(root_.get(key).kind(), ValueKind::set) << key;
  }
  EXPECT_EQ(json("set") + json("frozenset") + json("empty_set"), "[5][6][]");
  const Value many = root_.get("many");
  ASSERT_EQ(many.size(), 1200u);
  for (size_t i = 0; i < many.size(); ++i) ASSERT_EQ(many[i].integer(), static_cast<int64_t>(i));
  const Value keys = root_.get("many_keys");
  ASSERT_EQ(keys.pair_count(), 1100u);
  for (size_t i = 0; i < keys.pair_count(); ++i) {
    ASSERT_EQ(keys.pair_key(i).integer(), static_cast<int64_t>(i));
    ASSERT_EQ(keys.pair_value(i).string(), std::to_string(i));
  }
  EXPECT_EQ(json("shared"), "[[1,2],[1,2]]");
  EXPECT_EQ(root_.get("shared")[0].node(), root_.get("shared")[1].node());
}

TEST_P(PickledValue, HasItsDicts) {
  for (const char* key : {"ordered", "default", "counter"}) {
    EXPECT_EQ(root_.get(key).kind(), ValueKind::dict) << key;
  }
  EXPECT_EQ(root_.get("ordered").pair_key(0).string(), "b");
  EXPECT_EQ(json("ordered"), R"({"a":2,"b":1})");
  EXPECT_EQ(json("default"), R"({"k":[3]})");
  EXPECT_EQ(json("counter"), R"({"a":2,"b":1})");
  EXPECT_EQ(root_.get("long_key").get(std::string(70, 'k')).integer(), 1);
}

TEST_P(PickledValue, HasItsObjects) {
  EXPECT_EQ(root_.get("namespace").text(), "argparse.Namespace");
  EXPECT_EQ(root_.get("namespace").get("lr").real(), 0.5);
  EXPECT_EQ(root_.get("namespace").get("nested").get("x").integer(), 1);
  EXPECT_EQ(root_.get("enum").text(), "__main__.Colour");
  EXPECT_EQ(root_.get("enum").string(), "red");
  EXPECT_EQ(json("path"), R"("/a/b")");
  EXPECT_EQ(root_.get("class").kind(), ValueKind::global);
  EXPECT_EQ(root_.get("class").text(), "collections.OrderedDict");
  EXPECT_EQ(root_.get("complex").size(), 2u);
  EXPECT_EQ(root_.get("complex")[1].real(), 2.0);
}

INSTANTIATE_TEST_SUITE_P(Protocols, PickledValue, testing::Range(0, 6));

TEST(PickleFixture, CyclesAreNodesThatNameThemselves) {
  const auto document = test::read_pickle_file(test::fixture("pickle/cycle.pkl"));
  const Value root = document->root();
  EXPECT_EQ(root.get("list")[0].node(), root.node());
  EXPECT_EQ(to_json(root).dump(), R"({"list":["..."]})");
}

TEST(PickleFixture, ADictKeepsItsOwnState) {
  const auto document = test::read_pickle_file(test::fixture("pickle/ordered_with_state.pkl"));
  const Value root = document->root();
  ASSERT_EQ(root.kind(), ValueKind::dict);
  EXPECT_EQ(root.pair_count(), 1u);
  EXPECT_EQ(root.get("a").integer(), 1);
  ASSERT_EQ(root.size(), 1u);
  EXPECT_EQ(root[0].get("_metadata").get("version").integer(), 2);
}

TEST(PickleFixture, StateOfSlotsAndAttributesIsOne) {
  const auto document = test::read_pickle_file(test::fixture("pickle/slots.pkl"));
  EXPECT_EQ(document->root().get("x").integer(), 7);
  EXPECT_EQ(document->root().get("y").integer(), 8);
}

TEST(PickleFixture, OtherStateIsKeptAsItIs) {
  const auto document = test::read_pickle_file(test::fixture("pickle/bytes_io.pkl"));
  const Value root = document->root();
  EXPECT_EQ(root.text(), "_io.BytesIO");
  ASSERT_EQ(root.get("__state__").size(), 3u);
  EXPECT_EQ(root.get("__state__")[0].text(), "inner");
}

}  // namespace
}  // namespace ferry
