#include "ckpt/format/torch/torch_stream.h"

#include <gmock/gmock.h>
#include <zstd.h>

#include "ckpt/base/error.h"
#include "tests/format/torch/zip_builder.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using test::ZipBuilder;

class TorchStreamTest : public testing::Test {
 protected:
  static StreamedTensor find(const std::string& decoded) {
    std::string compressed(ZSTD_compressBound(decoded.size()), '\0');
    compressed.resize(
        ZSTD_compress(compressed.data(), compressed.size(), decoded.data(), decoded.size(), 1));
    MemoryFileSystem memory;
    memory.put("/f", compressed);
    ZstdStream stream(memory.open("/f"), 0, compressed.size());
    return find_streamed_tensor(stream, "tensor t");
  }
  static ErrorKind error_of(const std::string& decoded) {
    try {
      find(decoded);
    } catch (const Error& error) {
      return error.kind();
    }
    ADD_FAILURE() << "found";
    return ErrorKind::internal;
  }

  const std::string pickle_ = test::tensor_pickle("FloatStorage", 4, 1, {3}, {1});
};

TEST_F(TorchStreamTest, TheStorageIsFound) {
  const std::string archive = test::tensor_archive(pickle_, "elements of it!!");
  const StreamedTensor found = find(archive);
  EXPECT_EQ(archive.substr(found.storage_position, 8), "elements");
  EXPECT_EQ(found.tensor.storage_offset, 1);
}

TEST_F(TorchStreamTest, HeadersMayHoldLengths) {
  ZipBuilder zip;
  for (const char* name : {"x/data.pkl", "x/byteorder", "x/data/0"}) {
    ZipBuilder::Record record{name, name == std::string("x/data.pkl") ? pickle_ : "elements"};
    record.flags = 0;
    zip.add(record);
  }
  EXPECT_EQ(zip.bytes.substr(find(zip.bytes).storage_position, 8), "elements");
}

TEST_F(TorchStreamTest, ContentThatLooksLikeAnEndIsNone) {
  ZipBuilder zip;
  zip.add("x/data.pkl", pickle_);
  // A descriptor of another length, and a local header where none is.
  zip.add("x/note", "PK\7\10" + std::string(12, '\1') + "PK\3\4" + "PK\3\4 and so on");
  zip.add("x/other", "PK\7\10" + test::number(0, 8) + test::number(1, 4) + "PK\3\4 of one length");
  zip.add("x/data/0", "elements");
  EXPECT_EQ(zip.bytes.substr(find(zip.bytes).storage_position, 8), "elements");
}

TEST_F(TorchStreamTest, OtherArchivesAreErrors) {
  ZipBuilder storage_first;
  storage_first.add("x/data/0", "elements");
  storage_first.add("x/data.pkl", pickle_);
  EXPECT_EQ(error_of(storage_first.finish()), ErrorKind::corrupt);
  ZipBuilder other_storage;
  other_storage.add("x/data.pkl", pickle_);
  other_storage.add("x/data/1", "elements");
  EXPECT_EQ(error_of(other_storage.finish()), ErrorKind::corrupt);
  ZipBuilder big_endian;
  big_endian.add("x/data.pkl", pickle_);
  big_endian.add("x/byteorder", "big");
  big_endian.add("x/data/0", "elements");
  EXPECT_EQ(error_of(big_endian.finish()), ErrorKind::unsupported);
  EXPECT_EQ(error_of(test::tensor_archive("N.", "elements")), ErrorKind::corrupt);
  const std::string outside = test::tensor_pickle("FloatStorage", 4, 2, {3}, {1});
  EXPECT_EQ(error_of(test::tensor_archive(outside, "elements of it!!")), ErrorKind::corrupt);
  EXPECT_EQ(error_of("no archive at all, but long enough for a header"), ErrorKind::corrupt);
}

TEST_F(TorchStreamTest, WhatPrecedesTheStorageIsBounded) {
  ZipBuilder zip;
  zip.add("x/data.pkl", pickle_);
  zip.add("x/large", std::string(2 << 20, 'y'));
  zip.add("x/data/0", "elements");
  EXPECT_EQ(error_of(zip.finish()), ErrorKind::corrupt);
  ZipBuilder many;
  for (int i = 0; i < 40'000; ++i) many.add("x/" + std::to_string(i), "");
  many.add("x/data.pkl", pickle_);
  many.add("x/data/0", "elements");
  EXPECT_EQ(error_of(many.finish()), ErrorKind::corrupt);
}

TEST_F(TorchStreamTest, EveryTruncationIsCorrupt) {
  const std::string archive = test::tensor_archive(pickle_, "elements of it!!");
  const size_t needed = find(archive).storage_position;
  for (size_t length = 0; length < needed; ++length) {
    EXPECT_EQ(error_of(archive.substr(0, length)), ErrorKind::corrupt) << length;
  }
}

}  // namespace
}  // namespace ferry
