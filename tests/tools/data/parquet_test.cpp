// Parquet files as other programs write them (tests/interop/text/make_parquet_fixtures.py), and
// damaged ones.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "ckpt/base/error.h"
#include "tests/io/memory_file_system.h"
#include "tests/random_cases.h"
#include "tests/support.h"
#include "tools/data/parquet/parquet_stream.h"
#include "tools/data/parquet/run_lengths.h"
#include "tools/data/parquet/snappy.h"

namespace ferry::tool {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// What a stream gives, in reads of so many bytes.
std::string all_of(ByteStream& stream, size_t piece = 1 << 16) {
  std::string text;
  while (true) {
    const size_t before = text.size();
    text.resize(before + piece);
    const size_t bytes = stream.read_some(std::as_writable_bytes(std::span(text)).subspan(before));
    text.resize(before + bytes);
    if (bytes == 0) return text;
  }
}

std::string parquet_lines(const std::shared_ptr<const ReadableFile>& file,
                          const std::vector<std::string>& columns, size_t piece = 1 << 16) {
  std::atomic<uint64_t> read{0};
  return all_of(*parquet_stream(file, columns, read), piece);
}

std::shared_ptr<const ReadableFile> parquet_file(const std::string& name) {
  return posix_file_system()->open(test::fixture("parquet/" + name + ".parquet"));
}

std::string parquet_refusal(const std::string& name, const std::vector<std::string>& columns) {
  try {
    parquet_lines(parquet_file(name), columns);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

class ParquetFiles : public testing::TestWithParam<const char*> {};

TEST_P(ParquetFiles, HaveTheirRows) {
  const json rows = json::parse(std::ifstream(test::fixture("parquet/rows.json")));
  const json &texts = rows.at("text"), &titles = rows.at("title");
  for (const size_t piece : {size_t{1} << 16, size_t{1}, size_t{97}}) {
    std::istringstream lines(parquet_lines(parquet_file(GetParam()), {"title", "text"}, piece));
    size_t count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      const json row = json::parse(line);
      ASSERT_EQ(row.at("text"), texts.at(count)) << count;
      ASSERT_EQ(row.at("title"), titles.at(count)) << count;
      EXPECT_TRUE(line.starts_with("{\"title\":"));
    }
    EXPECT_EQ(count, texts.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Peers, ParquetFiles,
                         testing::Values("arrow_none", "arrow_snappy", "arrow_gzip", "arrow_zstd",
                                         "arrow_v2", "arrow_plain", "arrow_large", "polars",
                                         "duckdb", "fastparquet"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(Parquet, SaysWhatItCannotRead) {
  EXPECT_EQ(parquet_lines(parquet_file("empty"), {"text"}), "");
  EXPECT_THAT(parquet_refusal("arrow_none", {"txt"}),
              HasSubstr("arrow_none.parquet has no column 'txt'; it has n, text, title; name"));
  EXPECT_THAT(parquet_refusal("arrow_none", {"n"}), HasSubstr("column 'n' is none of texts"));
  EXPECT_THAT(parquet_refusal("nested", {"inner.text"}), HasSubstr("a part of another, or a list"));
  EXPECT_THAT(parquet_refusal("nested", {"text.list.element"}), HasSubstr("or a list"));
  EXPECT_THAT(parquet_refusal("lz4", {"text"}), HasSubstr("is compressed by LZ4"));
  EXPECT_THAT(parquet_refusal("delta", {"text"}), HasSubstr("has the encoding 7"));
}

// A file with some bytes changed, cut off or added gives the rows, other rows or an error.
TEST(Parquet, AnyDamageIsAnErrorOrLines) {
  const std::vector<std::string> names{"arrow_none", "arrow_snappy", "arrow_gzip", "arrow_zstd",
                                       "arrow_v2",   "duckdb",       "polars"};
  std::atomic<int> refused = 0;
  test::for_random_cases(700, [&](uint64_t number) {
    std::mt19937 random(static_cast<uint32_t>(number));
    std::string bytes =
        read_file(*posix_file_system(),
                  test::fixture("parquet/" + names[number % names.size()] + ".parquet"), 1 << 20);
    for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % 2
                            ? random() % bytes.size()
                            : bytes.size() - 1 - random() % std::min<size_t>(900, bytes.size());
      bytes[at] = static_cast<char>(random() % 3 ? random() : bytes[at] ^ (1 << random() % 8));
    }
    if (random() % 8 == 0) bytes.erase(random() % bytes.size(), 1 + random() % 20);
    const auto memory = std::make_shared<MemoryFileSystem>();
    write_file(*memory, "d", bytes);
    try {
      std::atomic<uint64_t> read{0};
      const auto stream = parquet_stream(memory->open("d"), {"text"}, read);
      std::vector<std::byte> piece(1 << 16);
      for (int i = 0; i < 100 && stream->read_some(piece) > 0; ++i) {
      }
    } catch (const Error& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr("d"));
      EXPECT_NE(error.kind(), ErrorKind::internal);
    }
  });
  EXPECT_GT(refused, 0);
}

std::string snappy_text(std::string_view bytes, size_t size) {
  std::string text(size, '\0');
  const bool fits =
      uncompress_snappy(std::as_bytes(std::span(bytes)), std::as_writable_bytes(std::span(text)));
  return fits ? text : "damaged";
}

TEST(Snappy, CopiesWhatCameBefore) {
  EXPECT_EQ(snappy_text(std::string_view("\0", 1), 0), "");
  EXPECT_EQ(snappy_text("\5\x10hello", 5), "hello");
  EXPECT_EQ(snappy_text("\x0A\4ab\x1E\2\0", 10), "damaged");
  EXPECT_EQ(snappy_text(std::string_view("\x0A\4ab\x1E\2\0", 7), 10), "ababababab");  // overlapping
  EXPECT_EQ(snappy_text(std::string_view("\6\4ab\1\2", 6), 6), "ababab");
  EXPECT_EQ(snappy_text("\6\4ab\1\3", 6), "damaged");  // past what there is
  EXPECT_EQ(snappy_text("\5\x10hell", 5), "damaged");
  EXPECT_EQ(snappy_text("\6\x10hello", 6), "damaged");
  EXPECT_EQ(snappy_text("\4\x10hello", 4), "damaged");
  EXPECT_EQ(snappy_text("\xff\xff\xff\xff\xff", 5), "damaged");
}

TEST(RunLengths, AreRunsAndGroups) {
  const auto numbers = [](std::string_view bytes, int bits) {
    RunLengths runs(std::as_bytes(std::span(bytes)), bits);
    std::vector<uint32_t> all;
    for (uint32_t number = 0; all.size() < 100 && runs.next(number);) all.push_back(number);
    return all;
  };
  EXPECT_THAT(numbers("\6\5", 3), testing::ElementsAre(5, 5, 5));
  EXPECT_THAT(numbers("\3\x88\xC6\xFA\2\1", 3), testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 1));
  EXPECT_THAT(numbers("\4\1\2", 12), testing::ElementsAre(0x201, 0x201));
  EXPECT_EQ(numbers(std::string_view("\x7", 1), 0).size(), 24u);
  EXPECT_THAT(numbers("\3\x88", 3), testing::SizeIs(2));
  EXPECT_THAT(numbers("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 1), testing::IsEmpty());
}

}  // namespace
}  // namespace ferry::tool
