#include "ckpt/io/zstd_stream.h"

#include <gmock/gmock.h>
#include <zstd.h>

#include <vector>

#include "ckpt/base/error.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

std::string compress(const std::string& content) {
  std::string result(ZSTD_compressBound(content.size()), '\0');
  result.resize(ZSTD_compress(result.data(), result.size(), content.data(), content.size(), 3));
  return result;
}

std::string numbers(int count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += std::to_string(i * 7919 % 100'003) + ",";
  return text;
}

class ZstdStreamTest : public testing::Test {
 protected:
  std::unique_ptr<ZstdStream> open(const std::string& compressed) {
    memory_->put("/f", "12345" + compressed + "67");
    return std::make_unique<ZstdStream>(memory_->open("/f"), 5, compressed.size());
  }
  static std::string read(ZstdStream& stream, size_t bytes) {
    std::string content(bytes, '\0');
    stream.read(std::as_writable_bytes(std::span(content)));
    return content;
  }
  static ErrorKind error_of(ZstdStream& stream, size_t bytes) {
    try {
      read(stream, bytes);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("/f at byte 5"));
      return error.kind();
    }
    ADD_FAILURE() << "read " << bytes;
    return ErrorKind::internal;
  }

  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
};

TEST_F(ZstdStreamTest, ReadsAndSkips) {
  const std::string content = numbers(300'000);  // several input and output buffers
  const auto stream = open(compress(content));
  EXPECT_EQ(read(*stream, 10), content.substr(0, 10));
  stream->skip(1'000'000);
  EXPECT_EQ(stream->position(), 1'000'010u);
  EXPECT_EQ(read(*stream, 500'000), content.substr(1'000'010, 500'000));
  EXPECT_EQ(read(*stream, 0), "");
  stream->skip(content.size() - stream->position());
  std::byte none[1];
  EXPECT_EQ(stream->read_some(none), 0u);
  EXPECT_EQ(stream->position(), content.size());
}

TEST_F(ZstdStreamTest, FramesInARowAreOneStream) {
  const std::string content = numbers(1000);
  const auto stream = open(compress(content) + compress("") + compress("end"));
  EXPECT_EQ(read(*stream, content.size() + 3), content + "end");
  EXPECT_EQ(error_of(*stream, 1), ErrorKind::corrupt);
}

TEST_F(ZstdStreamTest, AnEmptyStreamIsEmpty) {
  EXPECT_EQ(read(*open(""), 0), "");
  EXPECT_EQ(error_of(*open(""), 1), ErrorKind::corrupt);
  EXPECT_EQ(error_of(*open(compress("")), 1), ErrorKind::corrupt);
}

TEST_F(ZstdStreamTest, EveryTruncationIsCorrupt) {
  const std::string content = numbers(500), compressed = compress(content);
  for (size_t length = 0; length < compressed.size(); ++length) {
    const auto stream = open(compressed.substr(0, length));
    EXPECT_EQ(error_of(*stream, content.size()), ErrorKind::corrupt) << length;
  }
}

TEST_F(ZstdStreamTest, AStreamReadToItsEndMustBeWhole) {
  const std::string compressed = compress(std::string(1000, 'x'));
  std::vector<std::byte> into(2000);
  EXPECT_EQ(open(compressed)->read_some(into), 1000u);
  EXPECT_THROW(open(compressed.substr(0, compressed.size() - 1))->read_some(into), Error);
}

TEST_F(ZstdStreamTest, OutputThatIsHeldBackIsNotLost) {
  const std::string content = numbers(40'000), compressed = compress(content);
  const auto stream = open(compressed);
  std::string read_back;
  while (read_back.size() < content.size()) read_back += read(*stream, 1);
  EXPECT_EQ(read_back, content);
}

TEST_F(ZstdStreamTest, ExtentsOutsideTheFileAreCorrupt) {
  memory_->put("/f", "12345");
  EXPECT_THROW(ZstdStream(memory_->open("/f"), 6, 0), Error);
  EXPECT_THROW(ZstdStream(memory_->open("/f"), 2, UINT64_MAX), Error);
}

TEST_F(ZstdStreamTest, LargeWindowsAreUnsupported) {
  // A frame of one raw block "a"; the sixth byte is its window's logarithm less 10, times 8.
  const auto frame = [](char window) {
    return std::string("\x28\xb5\x2f\xfd\x00", 5) + window +
           std::string(
               "\x09\x00\x00"
               "a",
               4);
  };
  EXPECT_EQ(read(*open(frame(static_cast<char>(17 * 8))), 1), "a");
  EXPECT_EQ(error_of(*open(frame(static_cast<char>(18 * 8))), 1), ErrorKind::unsupported);
}

}  // namespace
}  // namespace ferry
