#include "ckpt/format/pickle/values/draft.h"

#include <gmock/gmock.h>

#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tests/same_value.h"

namespace ferry {
namespace {

using test::Comparison;

std::string json(const Value& value) { return to_json(value).dump(); }

template <typename F>
ErrorKind kind_thrown_by(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::internal;
}

TEST(Draft, MakesEveryKind) {
  Draft draft;
  const Value all = draft.list(
      {draft.none(), draft.boolean(true), draft.integer(-5),
       draft.big_integer("9223372036854775808"), draft.real(1.5), draft.string("a"),
       draft.bytes("\xff"), draft.list({draft.integer(1)}), draft.tuple({draft.integer(2)}),
       draft.set({draft.integer(3)}), draft.dict(), draft.ordered_dict(),
       draft.global("torch.float32"), draft.instance("argparse.Namespace"),
       draft.call(draft.global("signal.Signals"), {draft.integer(15)}), draft.size({2, 3}),
       draft.dtype(DType::bf16), draft.tensor(DType::u8, {2}, std::string("xy"))});
  const LoadedValue made = std::move(draft).finish(all);
  EXPECT_EQ(json(made.value),
            R"([null,true,-5,"9223372036854775808",1.5,"a",{"bytes":1},[1],[2],[3],{},{},)"
            R"("torch.float32",{"__class__":"argparse.Namespace"},15,[2,3],"torch.bfloat16",)"
            R"({"dtype":"U8","shape":[2]}])");
  EXPECT_EQ(made.value[3].kind(), ValueKind::big_integer);
  EXPECT_EQ(made.value[9].text(), "builtins.set");
  EXPECT_EQ(made.value[11].text(), "collections.OrderedDict");
  EXPECT_EQ(made.value[15].text(), "torch.Size");
  EXPECT_EQ(made.document->storages.at(made.value[17].tensor()->storage_key), "xy");
}

TEST(Draft, SmallIntegersAreNoBigOnes) {
  Draft draft;
  EXPECT_EQ(draft.big_integer("-9223372036854775808").integer(), INT64_MIN);
  EXPECT_EQ(draft.big_integer("0x10").integer(), 16);
  EXPECT_EQ(draft.big_integer("-0x10").integer(), -16);
  EXPECT_EQ(draft.big_integer("0x8000000000000000").kind(), ValueKind::big_integer);
  for (const char* wrong : {"", "-", "0x", "1a", "--1", "0xg", "+1"}) {
    EXPECT_EQ(kind_thrown_by([&] { draft.big_integer(wrong); }), ErrorKind::invalid) << wrong;
  }
}

TEST(Draft, ChangesADictAndAnObject) {
  Draft draft;
  const Value dict = draft.dict(), args = draft.instance("argparse.Namespace");
  for (const Value& container : {dict, args}) {
    draft.put(container, "a", draft.integer(1));
    draft.put(container, "b", draft.integer(2));
    draft.put(container, "c", draft.integer(3));
    draft.put(container, "b", draft.string("two"));
    EXPECT_TRUE(draft.remove(container, "a"));
    EXPECT_FALSE(draft.remove(container, "a"));
    draft.put(container, "d", draft.integer(4));
  }
  draft.put(dict, draft.integer(5), draft.integer(6));
  draft.put(dict, draft.integer(5), draft.integer(7));
  EXPECT_EQ(json(dict), R"({"5":7,"b":"two","c":3,"d":4})");
  EXPECT_EQ(dict.pair_key(0).string(), "b");  // in its old place
  EXPECT_EQ(json(args), R"({"__class__":"argparse.Namespace","b":"two","c":3,"d":4})");
}

// Each put() looks for its key: among very many that must not take as long as there are keys.
TEST(Draft, ManyKeysTakeNoLongerThanFew) {
  constexpr int64_t kKeys = 300'000;
  Draft draft;
  const Value dict = draft.dict(), args = draft.instance("argparse.Namespace");
  const std::clock_t start = std::clock();
  for (int round = 0; round < 2; ++round) {
    for (int64_t i = 0; i < kKeys; ++i) {
      draft.put(dict, draft.integer(i), draft.integer(i + round));
      draft.put(args, std::to_string(i), draft.integer(i + round));
    }
  }
  EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, 20);
  for (const Value& container : {dict, args}) {
    EXPECT_EQ(container.pair_count(), static_cast<size_t>(kKeys));
    EXPECT_EQ(container.pair_value(kKeys - 1).integer(), kKeys);
  }
  EXPECT_TRUE(draft.remove(args, "5"));
  draft.put(args, "7", draft.none());
  draft.put(args, "5", draft.string("back"));
  EXPECT_EQ(args.pair_count(), static_cast<size_t>(kKeys));
  EXPECT_EQ(args.pair_key(kKeys - 1).string(), "5");
  EXPECT_TRUE(args.get("7").is_none());
}

TEST(Draft, KeysAreFoundByTheirValue) {
  for (const int64_t others : {0, 100}) {
    Draft draft;
    const Value dict = draft.dict(), tuple = draft.tuple({draft.integer(1)});
    for (int64_t i = 0; i < others; ++i) draft.put(dict, draft.integer(i + 1000), draft.none());
    const auto put = [&](const Value& key) { draft.put(dict, key, draft.none()); };
    for (int round = 0; round < 2; ++round) {
      put(draft.none());
      put(draft.integer(1));
      put(draft.boolean(true));
      put(draft.string("1"));
      put(draft.bytes("1"));
      put(draft.real(0.0));
      put(draft.real(-0.0));
      put(draft.global("a.b"));
      put(draft.big_integer("99999999999999999999"));
      put(tuple);
    }
    EXPECT_EQ(dict.pair_count(), static_cast<size_t>(others) + 9);
    put(draft.real(std::nan("")));
    put(draft.real(std::nan("")));
    put(draft.tuple({draft.integer(1)}));
    EXPECT_EQ(dict.pair_count(), static_cast<size_t>(others) + 12);
  }
}

TEST(Draft, ChangesListsAndArguments) {
  Draft draft;
  const Value list = draft.list({draft.integer(1)});
  draft.append(list, draft.integer(2));
  draft.replace(list, 0, draft.string("one"));
  EXPECT_EQ(json(list), R"(["one",2])");
  const Value call = draft.call(draft.global("a.B"), {draft.integer(1)});
  draft.replace(call, 0, draft.integer(9));
  EXPECT_EQ(call.integer(), 9);
  EXPECT_EQ(kind_thrown_by([&] { draft.replace(list, 2, draft.none()); }), ErrorKind::invalid);
  EXPECT_EQ(kind_thrown_by([&] { draft.append(draft.tuple(), draft.none()); }), ErrorKind::invalid);
  EXPECT_EQ(kind_thrown_by([&] { draft.put(list, "a", draft.none()); }), ErrorKind::invalid);
  Draft other;
  EXPECT_EQ(kind_thrown_by([&] { other.append(list, other.none()); }), ErrorKind::invalid);
}

TEST(Draft, WhatIsPutInTwoPlacesIsOneThing) {
  Draft draft;
  const Value inner = draft.list(), outer = draft.list({inner, inner});
  draft.append(inner, draft.integer(1));
  EXPECT_EQ(json(outer), "[[1],[1]]");
}

TEST(Draft, CopiesKeepSharingAndCyclesAndLeaveTheOriginalAsItWas) {
  Draft source;
  const Value shared = source.list(), root = source.list({shared, shared});
  source.append(shared, root);
  source.append(shared, source.ordered_dict());
  source.append(shared, source.size({4}));
  const LoadedValue original = std::move(source).finish(root);
  Draft draft;
  const Value copy = draft.copy(original.value);
  EXPECT_EQ(Comparison::difference(original.value, copy), "");
  EXPECT_EQ(copy[0].node(), copy[1].node());
  EXPECT_EQ(draft.copy(original.value[0]).node(), copy[0].node());  // over several calls
  draft.append(copy[0], draft.integer(1));
  EXPECT_EQ(original.value[0].size(), 3u);
  EXPECT_EQ(copy[1].size(), 4u);
}

TEST(Draft, TakesValuesOfOtherDocumentsAnywhere) {
  Draft source;
  const Value value = source.list({source.string("x")});
  const LoadedValue original = std::move(source).finish(value);
  Draft draft;
  const Value dict = draft.dict();
  draft.put(dict, "a", original.value);
  draft.add(dict, original.value[0], Value());
  EXPECT_EQ(json(dict), R"({"a":["x"],"x":null})");
}

TEST(Draft, StoragesOfCopiesDoNotMixUp) {
  const auto make = [](const std::string& bytes) {
    Draft draft;
    const Value tensor = draft.tensor(DType::u8, {1}, std::string(bytes));
    return std::move(draft).finish(tensor);
  };
  const LoadedValue a = make("a"), b = make("b");
  Draft draft;
  const Value all = draft.list({a.value, b.value, draft.tensor(DType::u8, {1}, "c"), a.value});
  const LoadedValue made = std::move(draft).finish(all);
  std::string found;
  for (size_t i = 0; i < 4; ++i) {
    found += made.document->storages.at(made.value[i].tensor()->storage_key);
  }
  EXPECT_EQ(found, "abca");
  EXPECT_EQ(made.document->storages.size(), 3u);
}

TEST(Draft, RefusesWrongTensors) {
  Draft draft;
  EXPECT_EQ(kind_thrown_by([&] { draft.tensor(DType::f32, {2}, std::string(7, 'x')); }),
            ErrorKind::invalid);
  EXPECT_EQ(kind_thrown_by([&] { draft.tensor_of("0", DType::f32, {2}); }), ErrorKind::invalid);
  const std::string storage = draft.storage_of(8);
  EXPECT_EQ(draft.tensor_of(storage, DType::f32, {1}, 1).tensor()->storage_offset, 1);
  EXPECT_EQ(kind_thrown_by([&] { draft.tensor_of(storage, DType::f32, {2}, 1); }),
            ErrorKind::invalid);
  EXPECT_EQ(kind_thrown_by([&] { draft.string("\xff"); }), ErrorKind::invalid);
  EXPECT_EQ(kind_thrown_by([&] { draft.global("nodots"); }), ErrorKind::invalid);
}

TEST(Draft, DeepNestingNeedsNoStack) {
  Draft source;
  Value value = source.list();
  for (int i = 0; i < 200'000; ++i) value = source.list({value});
  const LoadedValue original = std::move(source).finish(value);
  Draft draft;
  const LoadedValue copy = std::move(draft).finish(draft.copy(original.value));
  EXPECT_EQ(Comparison::difference(original.value, copy.value), "");
}

TEST(Draft, LargeDictsAreLinear) {
  Draft draft;
  const Value dict = draft.dict();
  for (int i = 0; i < 100'000; ++i) draft.add(dict, std::to_string(i), draft.integer(i));
  EXPECT_EQ(dict.pair_count(), 100'000u);
  EXPECT_EQ(dict.get("99999").integer(), 99'999);
}

TEST(Draft, CopiesOfSharedRangesAreBounded) {
  // Many sets that share one list's elements, as a pickle of a few kilobytes can hold.
  Document hostile;
  hostile.nodes.resize(1);
  hostile.slots.assign(20'000, 0);
  ValueNode outer{.kind = ValueKind::list};
  for (int i = 0; i < 20'000; ++i) {
    ValueNode set{.kind = ValueKind::set};
    set.items = {0, 20'000};
    hostile.nodes.push_back(set);
    hostile.slots.push_back(static_cast<uint32_t>(hostile.nodes.size() - 1));
  }
  outer.items = {20'000, 20'000};
  hostile.nodes.push_back(outer);
  const Value root = hostile.root_at(static_cast<uint32_t>(hostile.nodes.size() - 1));
  Draft draft;
  EXPECT_EQ(kind_thrown_by([&] { draft.copy(root); }), ErrorKind::exhausted);
}

}  // namespace
}  // namespace ferry
