// The safetensors header: what the format allows is read, all that it forbids is refused.
#include "ckpt/format/hugging_face/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "ckpt/base/error.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::HasSubstr;

std::string container(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, '\1');
}

SafetensorsHeader read(const std::string& bytes) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->put("a.safetensors", bytes);
  return read_safetensors_header(*memory->open("a.safetensors"), 7);
}

// The error's message; fails the test when there is none or it is of another kind.
std::string refusal(const std::string& bytes, ErrorKind kind = ErrorKind::corrupt) {
  try {
    read(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("a.safetensors"));
    return error.what();
  }
  ADD_FAILURE() << "was read: " << bytes.substr(8, 300);
  return "";
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", dtype, shape, offsets);
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const auto header = read(container(
      R"({"__metadata__":{"format":"pt"},"b":)" + tensor("BF16", "2,3", "4,16") + R"(,"a":)" +
          tensor("F32", "", "0,4") + R"(,"none":)" + tensor("I64", "5,0", "16,16") + "}   ",
      16));
  EXPECT_EQ(header.metadata.at("format"), "pt");
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[0].shape, Dims{});
  EXPECT_EQ(header.entries[1].name, "b");
  EXPECT_EQ(header.entries[1].dtype, DType::bf16);
  EXPECT_EQ(header.entries[1].shape, (Dims{2, 3}));
  ASSERT_EQ(header.entries[1].chunks.size(), 1u);
  const Extent extent = header.entries[1].chunks[0].extent;
  EXPECT_EQ(extent.file, 7u);
  EXPECT_EQ(extent.offset, header.data_offset + 4);
  EXPECT_EQ(extent.length, 12u);
  EXPECT_EQ(header.entries[2].shape, (Dims{5, 0}));
}

TEST(Safetensors, ReadsAnEmptyHeaderAndFieldsOfLaterVersions) {
  EXPECT_TRUE(read(container("{}", 0)).entries.empty());
  EXPECT_TRUE(read(container(R"({"__metadata__":null})", 0)).metadata.empty());
  const auto header = read(container(
      R"({"a":{"later":[{"x":[null,1.5,-1,true]}],"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
      1));
  EXPECT_EQ(header.entries.at(0).name, "a");
}

TEST(Safetensors, HalvesTheLastAxisOfPackedFloats) {
  const auto header = read(container(R"({"a":)" + tensor("F4", "3,8", "0,12") + "}", 12));
  EXPECT_EQ(header.entries.at(0).dtype, DType::f4x2);
  EXPECT_EQ(header.entries.at(0).shape, (Dims{3, 4}));
  EXPECT_THAT(refusal(container(R"({"a":)" + tensor("F4", "2,3", "0,3") + "}", 3)),
              HasSubstr("even"));
  refusal(container(R"({"a":)" + tensor("F4", "", "0,1") + "}", 1));
}

TEST(Safetensors, RefusesBadLengths) {
  refusal("");
  refusal("1234567");
  EXPECT_THAT(refusal(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)),
              HasSubstr("2 can be"));
  refusal(std::string("\3\0\0\0\0\0\0\0{}", 10));  // one byte short
  EXPECT_THAT(refusal(container("", 0)), HasSubstr("byte 8"));
  EXPECT_THAT(refusal(container(" {}", 0)), HasSubstr("byte 8"));
}

TEST(Safetensors, RefusesHeadersThatAreNotJsonOfTheirShape) {
  const std::string good = tensor("U8", "1", "0,1");
  for (const std::string& header : std::vector<std::string>{
           "{",
           "{]",
           "{}x",
           "{\"a\":" + good + "}" + std::string("\0garbage", 8),
           "{\"\xff\":1}",
           R"({"a":)" + good + R"(,"b":3})",
           R"({"a":[]})",
           R"({"a":null})",
           R"({"__metadata__":{"k":1}})",
           R"({"__metadata__":[]})",
           R"({"__metadata__":{"k":"1","k":"2"}})",
           R"({"__metadata__":{},"__metadata__":{}})",
           R"({"a":{"dtype":"U8","shape":[1]}})",
           R"({"a":{"dtype":"U8","data_offsets":[0,1]}})",
           R"({"a":{"shape":[1],"data_offsets":[0,1]}})",
           R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})",
           R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
           R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})",
           "{\"a\":" + good + ",}",
           R"({"a":)" + tensor("U8", "-1", "0,1") + "}",
           R"({"a":)" + tensor("U8", "1.0", "0,1") + "}",
           R"({"a":)" + tensor("U8", "\"1\"", "0,1") + "}",
           R"({"a":)" + tensor("U8", "18446744073709551616", "0,1") + "}",
           R"({"a":)" + tensor("U8", "9223372036854775808", "0,1") + "}",
           R"({"a":)" + tensor("U8", "1", "0") + "}",
           R"({"a":)" + tensor("U8", "1", "0,1,1") + "}",
           R"({"a":)" + tensor("U8", "1", "-1,0") + "}"}) {
    refusal(container(header, 1));
  }
}

TEST(Safetensors, RefusesDeepNesting) {
  const std::string deep(1'000'000, '[');
  refusal(container(R"({"a":)" + deep, 1));
  refusal(container(R"({"a":{"later":)" + deep, 1));
}

TEST(Safetensors, RefusesNamesThatStandTwice) {
  const std::string first = tensor("U8", "1", "0,1"), second = tensor("U8", "1", "1,2");
  EXPECT_THAT(refusal(container(R"({"a":)" + first + R"(,"a":)" + second + "}", 2)),
              HasSubstr("tensor a is in the header twice"));
  // Not neighbours, and spelled otherwise.
  EXPECT_THAT(refusal(container(R"({"a":)" + first + R"(,"b":)" + second + R"(,"\u0061":)" +
                                    tensor("U8", "1", "2,3") + "}",
                                3)),
              HasSubstr("tensor a is in the header twice"));
}

TEST(Safetensors, RefusesDtypes) {
  EXPECT_THAT(refusal(container(R"({"a":)" + tensor("X8", "1", "0,1") + "}", 1)), HasSubstr("X8"));
  refusal(container(R"({"a":)" + tensor("C128", "1", "0,16") + "}", 16));
  refusal(container(R"({"a":)" + tensor("bf16", "1", "0,2") + "}", 2));
  refusal(container(R"({"a":)" + tensor("F6_E2M3", "4", "0,3") + "}", 3), ErrorKind::unsupported);
}

TEST(Safetensors, RefusesRangesThatDoNotFillTheData) {
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":)" + tensor("U8", "2", a) + R"(,"b":)" + tensor("U8", "2", b) + "}";
  };
  EXPECT_EQ(read(container(two("2,4", "0,2"), 4)).entries.size(), 2u);
  EXPECT_THAT(refusal(container(two("0,2", "3,5"), 5)), HasSubstr("hole"));
  EXPECT_THAT(refusal(container(two("0,2", "1,3"), 3)), HasSubstr("overlap"));
  refusal(container(two("0,2", "0,2"), 2));
  refusal(container(two("1,3", "3,5"), 5));
  refusal(container(two("0,2", "4,2"), 4));
  EXPECT_THAT(refusal(container(two("0,2", "2,4"), 3)), HasSubstr("truncated"));
  EXPECT_THAT(refusal(container(two("0,2", "2,4"), 5)), HasSubstr("too long"));
  refusal(container("{}", 1));
  EXPECT_THAT(refusal(container(R"({"a":)" + tensor("U8", "2", "0,3") + "}", 3)),
              HasSubstr("takes 2"));
}

TEST(Safetensors, RefusesSizesThatOverflow) {
  const std::string big = "4611686018427387904";
  refusal(container(R"({"a":)" + tensor("U8", big + "," + big, "0,0") + "}", 0));
  refusal(container(R"({"a":)" + tensor("F32", big + ",1", "0,0") + "}", 0));
  refusal(container(R"({"a":)" + tensor("F32", "1,0", "18446744073709551615,0") + "}", 0));
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  refusal(container(R"({"a":)" + tensor("U8", ones, "0,1") + "}", 1), ErrorKind::unsupported);
}

TEST(Safetensors, RefusesEveryCutAndSurvivesEveryFlip) {
  const std::string good = container(
      R"({"__metadata__":{"format":"pt"},"b":)" + tensor("BF16", "2,3", "0,12") + "}", 12);
  ASSERT_EQ(read(good).entries.size(), 1u);
  for (size_t length = 0; length < good.size(); ++length) refusal(good.substr(0, length));
  for (size_t bit = 0; bit < (good.size() - 12) * 8; ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    try {
      read(flipped);
    } catch (const Error&) {
    }
  }
}

Entry entry(std::string name, DType dtype, Dims shape) {
  Entry made;
  made.name = std::move(name);
  made.dtype = dtype;
  made.shape = std::move(shape);
  return made;
}

TEST(Safetensors, WritesWhatItReads) {
  std::vector<Entry> entries{entry("z \"quoted\" \n\u00e4", DType::bf16, {3, 5}),
                             entry("a", DType::u8, {}), entry("p", DType::f4x2, {2, 3}),
                             entry("e", DType::f64, {0, 4})};
  std::vector<Entry*> order;
  for (Entry& one : entries) order.push_back(&one);
  uint64_t file_bytes = 0;
  const std::string header =
      write_safetensors_header(order, {{"format", "pt"}, {"k", "\"v\""}}, 7, &file_bytes);
  EXPECT_EQ(header.size() % 8, 0u);
  EXPECT_EQ(file_bytes, header.size() + 30 + 1 + 6);
  const auto again = read(header + std::string(file_bytes - header.size(), 'x'));
  EXPECT_EQ(again.metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"k", "\"v\""}}));
  ASSERT_EQ(again.entries.size(), entries.size());
  for (const Entry& written : entries) {
    const auto at = std::find_if(again.entries.begin(), again.entries.end(),
                                 [&](const Entry& one) { return one.name == written.name; });
    ASSERT_NE(at, again.entries.end()) << written.name;
    EXPECT_EQ(at->dtype, written.dtype);
    EXPECT_EQ(at->shape, written.shape);
    EXPECT_EQ(at->chunks.at(0).extent.offset, written.chunks.at(0).extent.offset);
    EXPECT_EQ(at->chunks.at(0).extent.length, written.chunks.at(0).extent.length);
    EXPECT_EQ(written.chunks.at(0).extent.file, 7u);
  }
}

TEST(Safetensors, WritesNothingThatTheFormatCannotHold) {
  uint64_t bytes = 0;
  const auto kind = [&](std::vector<Entry> entries) {
    std::vector<Entry*> order;
    for (Entry& one : entries) order.push_back(&one);
    try {
      write_safetensors_header(order, {}, 0, &bytes);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::internal;
  };
  EXPECT_EQ(kind({entry("__metadata__", DType::u8, {1})}), ErrorKind::unsupported);
  EXPECT_EQ(kind({entry("a", DType::c128, {1})}), ErrorKind::unsupported);
  EXPECT_EQ(kind({entry("a", DType::f4x2, {})}), ErrorKind::unsupported);
  EXPECT_EQ(kind({entry("\xff", DType::u8, {1})}), ErrorKind::invalid);
  EXPECT_EQ(
      kind({entry("a", DType::u8, {1}), entry("b", DType::u8, {1}), entry("a", DType::u8, {1})}),
      ErrorKind::invalid);
}

TEST(Safetensors, ReadsAHundredThousandTensorsInAMoment) {
  std::vector<Entry> entries;
  for (int i = 0; i < 100'000; ++i) {
    entries.push_back(
        entry(fmt::format("model.layers.{}.mlp.experts.{}.down_proj.weight", i / 500, i % 500),
              DType::bf16, {64, 2}));
  }
  std::vector<Entry*> order;
  for (Entry& one : entries) order.push_back(&one);
  uint64_t file_bytes = 0;
  std::string file = write_safetensors_header(order, {}, 0, &file_bytes);
  file.resize(file_bytes);
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->put("a.safetensors", std::move(file));
  const auto opened = memory->open("a.safetensors");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(read_safetensors_header(*opened, 0).entries.size(), entries.size());
  // A tenth of a second or so; the bound only catches a quadratic reader.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace ferry
