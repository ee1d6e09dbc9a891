#include "ckpt/format/pickle/pickle_writer.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "tests/format/torch/torch_items.h"
#include "tests/same_value.h"

namespace ferry {
namespace {

using namespace std::string_literals;
using test::Comparison;

std::shared_ptr<const Document> parse_text(std::string_view bytes) {
  return parse_pickle(std::as_bytes(std::span(bytes)), "test.pkl");
}

// Written and read again, directly and by way of a copy; says where the outcome differs.
std::string round_trip(const Value& value) {
  const auto again = parse_text(write_pickle(value));
  if (auto problem = Comparison::difference(value, again->root()); !problem.empty()) return problem;
  Draft draft;
  const LoadedValue copy = std::move(draft).finish(draft.copy(value));
  if (auto problem = Comparison::difference(value, copy.value); !problem.empty()) {
    return "copied: " + problem;
  }
  const auto copied = parse_text(write_pickle(copy.value));
  return Comparison::difference(value, copied->root());
}

std::string round_trip(std::string_view pickle) {
  const auto document = parse_text(pickle);
  return round_trip(document->root());
}

ErrorKind error_of(const Value& value) {
  try {
    write_pickle(value);
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::internal;
}

std::string repeated(std::string_view text, size_t times) {
  std::string result;
  while (times-- > 0) result += text;
  return result;
}

TEST(PickleWriter, FixturesComeBackEqual) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::fixture("pickle"))) {
    const auto document = test::read_pickle_file(entry.path());
    EXPECT_EQ(round_trip(document->root()), "") << entry.path();
    ++found;
  }
  EXPECT_GE(found, 10);
}

TEST(PickleWriter, MetadataOfThePeersComesBackEqual) {
  for (const std::string& name : test::distributed_fixtures()) {
    const auto document = test::read_pickle_file(test::iteration_folder(name) + "/.metadata");
    EXPECT_EQ(round_trip(document->root()), "") << name;
  }
}

// What CPython's pickler, protocol 2, wrote comes out byte for byte (but for a Counter, whose dict
// is not kept apart).
TEST(PickleWriter, WritesAsPythonDoes) {
  for (const char* name : {"cycle", "ordered_with_state", "slots", "bytes_io"}) {
    const std::string path = test::fixture("pickle/"s + name + ".pkl");
    const std::string bytes = read_file(*posix_file_system(), path, 1 << 20);
    if (bytes[1] != 2) continue;
    EXPECT_EQ(write_pickle(parse_text(bytes)->root()), bytes) << name;
  }
  EXPECT_EQ(write_pickle({}), "\200\002N."s);
  Draft draft;
  const Value list = draft.list({draft.integer(255), draft.integer(256), draft.integer(65536),
                                 draft.integer(-1), draft.integer(int64_t{1} << 31),
                                 draft.integer(INT64_MIN), draft.real(1), draft.boolean(true)});
  EXPECT_EQ(write_pickle(list),
            "\200\002]q\0(K\377M\0\1J\0\0\1\0J\377\377\377\377"
            "\212\5\0\0\0\200\0\212\010\0\0\0\0\0\0\0\200G\077\360\0\0\0\0\0\0\210"
            "e."s);
  const Value args = draft.instance("argparse.Namespace");
  draft.put(args, "a", draft.bytes("\351"));
  EXPECT_EQ(write_pickle(args),
            "\200\002"
            "cargparse\nNamespace\nq\0)\201q\1}q\2X\1\0\0\0aq\3c_codecs\nencode\nq\4X\2\0\0\0"
            "\u00e9q\5X\6\0\0\0latin1q\6\206q\7Rq\010sb."s);
}

TEST(PickleWriter, KeepsEveryWayOfMakingAnObject) {
  const std::string a = "ca\nB\n"s;
  for (const auto& pickle : {
           a + ")\201."s,                            // nothing
           a + ")\201}b."s,                          // an empty state
           a + ")R}U\1xK\1sb."s,                     // a function, a state
           a + "K\1\205\201}U\1xK\1sb}U\1yK\2sb."s,  // two states
           a + ")\201N}U\1xK\1s\206b."s,             // slots
           a + ")\201}U\1wK\0s}U\1xK\1s\206b."s,     // attributes and slots
           a + ")\201K\1K\2\206b."s,                 // another state
           a + ")\201U\1xK\1s."s,                    // a dict
           a + ")\201U\1xK\1s}U\1yK\2sb."s,          // a dict with state
           a + ")\201K\1a(K\2K\3e."s,                // a list
           a + "K\7\205RK\1aU\1xK\1sK\2a}b."s,       // a list, a dict, in turn
           a + "K\7\205}U\1xK\1s\222}U\1yK\2sb."s,   // keywords
           "ccopyreg\n_reconstructor\n("s + a + "c__builtin__\nobject\nNtR}U\1xK\1sb."s,
           "ccopy_reg\n_reconstructor\n("s + a + "c__builtin__\ndict\n}U\1xK\1stR."s,
           "("s + a + "o."s,
           "(ia\nB\n."s,
           "(K\1ia\nB\n."s,
           "cbuiltins\ngetattr\n("s + a + "U\1CtR."s,         // a nested class
           "cbuiltins\ngetattr\n("s + a + ")\201U\1mtR)R."s,  // a method, called
           "\200\4U\1aU\5B.C.D\223."s,
           "Pkey\n."s,
           "K\1\205Q."s,
           "K\1Q."s,
       }) {
    EXPECT_EQ(round_trip(pickle), "") << pickle;
  }
}

TEST(PickleWriter, KeepsTheClassesOfContainers) {
  for (const auto& pickle : {
           "ctorch\nSize\nK\1K\2\206\205R."s,
           "ctorch\nSize\n)R."s,
           "ccollections\nOrderedDict\n)RU\1xK\1s."s,
           "ccollections\nOrderedDict\n)R}U\1xK\1sb."s,
           "ccollections\ndefaultdict\nc__builtin__\nlist\n\205RU\1xK\1s."s,
           "ccollections\ndefaultdict\nN\205R."s,
           "ccollections\nCounter\n}U\1xK\1s\205R."s,
           "c__builtin__\nset\n](K\1K\2e\205R."s,
           "c__builtin__\nfrozenset\n]K\1a\205R."s,
           "\200\4\217(K\1\220."s,
           "\200\4(K\1\221."s,
           "\200\4C\2a\377."s,
           "C\0."s,
           "\226\2\0\0\0\0\0\0\0a\377."s,
           "\226\0\0\0\0\0\0\0\0."s,
           "}."s,
           "]."s,
           ")."s,
           "X\0\0\0\0."s,
       }) {
    EXPECT_EQ(round_trip(pickle), "") << pickle;
  }
  EXPECT_EQ(
      parse_text(write_pickle(parse_text("\226\1\0\0\0\0\0\0\0a."s)->root()))->nodes.back().number,
      1);
}

TEST(PickleWriter, CyclesThroughTuplesComeBackAsOneThing) {
  // t = ([t, t],), and an object that holds a tuple that holds it.
  EXPECT_EQ(round_trip("]q\0\205q\1h\0(h\1h\1e0h\1."s), "");
  EXPECT_EQ(round_trip("]q\0(h\0NNNtq\1h\0h\1a0h\1."s), "");
  EXPECT_EQ(round_trip("ca\nB\n)\201q\0h\0K\1\206h\0}U\1xh\0h\0\206sb."s), "");
  EXPECT_EQ(round_trip("ca\nB\n]q\0\205Rq\1h\0h\1a0h\1."s), "");  // in its own arguments
}

// What is made while its own arguments are written is met again when those are done: what is done
// to it afterwards has been done.
TEST(PickleWriter, CyclesThroughArgumentsAreFinishedOnce) {
  const std::string object = "]q\0ca\nB\nh\0\205Rq\1"s;  // a.B(list)
  for (const std::string& steps : {""s, "}b"s, "}U\1xK\1sb"s, "K\1a"s, "U\1xK\1s"s, "Nb"s}) {
    EXPECT_EQ(round_trip(object + steps + "0h\0h\1a0h\1."s), "") << steps;
    EXPECT_EQ(round_trip(object + steps + "0h\0h\1a."s), "") << steps;
  }
  const std::string dict = "]q\0ccollections\ndefaultdict\nca\nB\nh\0\205R\205Rq\1"s;
  for (const std::string& steps : {""s, "U\1xK\1s"s, "}U\1xK\1sb"s, "U\1xK\1s}b"s}) {
    EXPECT_EQ(round_trip(dict + steps + "0h\0h\1a0h\1."s), "") << steps;
  }
}

TEST(PickleWriter, LargeContainersAreWrittenInBatches) {
  Draft draft;
  const Value dict = draft.dict(), list = draft.list();
  for (int i = 0; i < 70'000; ++i) {
    draft.add(dict, draft.integer(i), draft.string(std::to_string(i)));
    if (i < 1001) draft.append(list, draft.integer(i));
  }
  const Value both = draft.tuple({dict, list, draft.list({draft.none()}), draft.dict()});
  const std::string pickle = write_pickle(both);
  EXPECT_EQ(Comparison::difference(both, parse_text(pickle)->root()), "");
  EXPECT_LT(pickle.size(), 70'000 * 25u);
}

TEST(PickleWriter, DeepNestingNeedsNoStack) {
  constexpr size_t kDepth = 50'000;
  EXPECT_EQ(round_trip(repeated("]", kDepth) + repeated("a", kDepth - 1) + "."), "");
  EXPECT_EQ(round_trip("N"s + repeated("\205", kDepth) + "."), "");
  EXPECT_EQ(
      round_trip("ca\nB\nq\0"s + repeated("h\0"s, kDepth) + "N" + repeated("\205R", kDepth) + "."),
      "");
  EXPECT_EQ(round_trip(repeated("}U\1x", kDepth) + "N" + repeated("s", kDepth) + "."), "");
}

TEST(PickleWriter, BigIntegersKeepTheirValue) {
  const auto hex = [](const std::string& digits) {
    Draft draft;
    return std::string(parse_text(write_pickle(draft.big_integer(digits)))->root().text());
  };
  EXPECT_EQ(hex("9223372036854775808"), "0x8000000000000000");
  EXPECT_EQ(hex("-9223372036854775809"), "-0x8000000000000001");
  EXPECT_EQ(hex("0x123456789abcdef0123"), "0x123456789abcdef0123");
  EXPECT_EQ(hex("-0xff00000000000000000000"), "-0xff00000000000000000000");
  EXPECT_EQ(hex("-0x80000000000000000000"), "-0x80000000000000000000");
  EXPECT_EQ(hex("0xFF00000000000000000000"), "0xff00000000000000000000");
  EXPECT_EQ(hex("340282366920938463463374607431768211456"), "0x1" + std::string(32, '0'));
  const std::string nines(5000, '9'), huge = "0x" + std::string(1'000'000, 'f');
  EXPECT_EQ(hex("-" + nines), "-" + nines);
  EXPECT_EQ(hex(huge), huge);
}

TEST(PickleWriter, WritesTensorsAsPyTorchDoes) {
  Draft draft;
  const std::string shared = draft.storage_of(24);
  const Value list = draft.list({draft.tensor_of(shared, DType::f32, {2, 3}),
                                 draft.tensor_of(shared, DType::f32, {}, 5),
                                 draft.tensor(DType::f8_e4m3, {2}, "ab")});
  std::vector<std::string> named;
  const std::string pickle = write_pickle(list, [&](std::string_view key, uint64_t bytes) {
    named.push_back(std::string(key) + ":" + std::to_string(bytes));
    return "s" + std::string(key);
  });
  EXPECT_THAT(named, testing::ElementsAre("0:24", "0:24", "1:2"));
  const auto again = parse_text(pickle);
  EXPECT_EQ(Comparison::difference(list, again->root()), "");
  EXPECT_EQ(again->root()[1].tensor()->storage_key, "s0");
  EXPECT_EQ(again->root()[2].tensor()->dtype, DType::f8_e4m3);
  // What was parsed names its storages anew, too.
  const std::string twice = write_pickle(
      again->root(), [](std::string_view key, uint64_t) { return std::string(key.substr(1)); });
  EXPECT_EQ(parse_text(twice)->root()[2].tensor()->storage_key, "1");
  EXPECT_EQ(write_pickle(parse_text(twice)->root()), twice);
}

TEST(PickleWriter, SharedRangesDoNotMultiply) {
  // Two thousand sets of the same twenty thousand elements. No parser gives such a document.
  constexpr uint32_t kSets = 2'000, kElements = 20'000;
  Document document;
  document.nodes.emplace_back();  // None
  document.slots.assign(kElements, 0);
  for (uint32_t i = 0; i < kSets; ++i) {
    document.nodes.push_back({.kind = ValueKind::set, .items = {0, kElements}});
    document.slots.push_back(i + 1);
  }
  document.nodes.push_back({.kind = ValueKind::list, .items = {kElements, kSets}});
  document.root_node = kSets + 1;
  EXPECT_EQ(error_of(document.root()), ErrorKind::exhausted);
}

TEST(PickleWriter, WhatNeverEndsIsRefused) {
  Draft draft;
  const Value set = draft.set({draft.none()}), tuple = draft.tuple({draft.none()});
  draft.replace(set, 0, set);
  draft.replace(tuple, 0, tuple);
  EXPECT_EQ(error_of(set), ErrorKind::exhausted);
  EXPECT_EQ(error_of(tuple), ErrorKind::exhausted);
  EXPECT_EQ(error_of(draft.global("a\nb", "c")), ErrorKind::unsupported);
}

TEST(PickleWriter, ChangedArgumentsAreWrittenAndTheRestAsItWas) {
  const auto document = parse_text(
      "cargparse\nNamespace\n)\201}(X\1\0\0\0aK\1X\1\0\0\0bcm.enums\nKind\nK\5\205RX\1\0\0\0cNub."s);
  Draft draft;
  const Value args = draft.copy(document->root());
  draft.put(args, "a", draft.integer(2));
  draft.put(args, "d", draft.list());
  EXPECT_TRUE(draft.remove(args, "c"));
  const auto again = parse_text(write_pickle(args));
  EXPECT_EQ(to_json(again->root()).dump(),
            R"({"__class__":"argparse.Namespace","a":2,"b":5,"d":[]})");
  EXPECT_EQ(again->root().get("b").text(), "m.enums.Kind");
  EXPECT_EQ(Comparison::difference(args, again->root()), "");
}

}  // namespace
}  // namespace ferry
