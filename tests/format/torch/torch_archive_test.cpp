#include "ckpt/format/torch/archive/torch_archive.h"

#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "tests/format/torch/torch_items.h"
#include "tests/format/torch/zip_builder.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using test::ZipBuilder;

class TorchArchiveTest : public testing::Test {
 protected:
  std::shared_ptr<const ReadableFile> file(const std::string& content) {
    memory_->put("/f", content);
    return memory_->open("/f");
  }
  TorchArchive read(const std::string& content) {
    return read_torch_archive(*file(content), 0, content.size());
  }
  ErrorKind error_of(const std::string& content) {
    try {
      read(content);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("/f"));
      return error.kind();
    }
    ADD_FAILURE() << "read an archive of " << content.size() << " bytes";
    return ErrorKind::internal;
  }
  // As torch.save does: "x/data.pkl" of the number 5, "x/data/0" of "abcd".
  static ZipBuilder small() {
    ZipBuilder zip;
    zip.add("x/data.pkl", "K\x05.");
    zip.add("x/data/0", "abcd");
    return zip;
  }

  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
};

TEST_F(TorchArchiveTest, RecordsLieWhereTheDirectorySays) {
  const std::string bytes = small().finish();
  const TorchArchive archive = read(bytes);
  EXPECT_EQ(archive.pickle->root().integer(), 5);
  ASSERT_EQ(archive.records.size(), 2u);
  const auto record = archive.records.at("data/0");
  EXPECT_EQ(bytes.substr(record.offset, record.length), "abcd");
}

TEST_F(TorchArchiveTest, AnItemInsideAFileHasPositionsInTheFile) {
  const std::string item = small().finish();
  const std::string bytes = std::string(1000, '#') + item + item;
  const auto record = read_torch_archive(*file(bytes), 1000, item.size()).records.at("data/0");
  EXPECT_GE(record.offset, 1000u);
  EXPECT_EQ(bytes.substr(record.offset, record.length), "abcd");
  EXPECT_THROW(read_torch_archive(*file(bytes), 1000, 2 * item.size() + 1), Error);
  EXPECT_THROW(read_torch_archive(*file(bytes), UINT64_MAX - 10, 100), Error);
}

TEST_F(TorchArchiveTest, Zip64AndCommentsAndLargeArchivesAreRead) {
  ZipBuilder zip = small();
  zip.records[1].zip64 = true;
  EXPECT_EQ(read(zip.finish(true)).records.at("data/0").length, 4u);
  EXPECT_EQ(read(small().finish(false, std::string(60'000, 'c'))).records.size(), 2u);
  EXPECT_EQ(read(small().finish(false, "PK\5\6 is in this comment too")).records.size(), 2u);
  zip = small();
  zip.add("x/data/1", std::string(1'000'000, 'd'));
  zip.add({.name = "x/data/2", .content = "end", .flags = 0, .local_name = {}});
  const std::string bytes = zip.finish();
  const auto record = read(bytes).records.at("data/2");
  EXPECT_EQ(bytes.substr(record.offset, record.length), "end");
}

TEST_F(TorchArchiveTest, ManyRecordsAreRead) {
  ZipBuilder zip = small();
  for (int i = 1; i < 3000; ++i) zip.add("x/data/" + std::to_string(i), std::to_string(i));
  const std::string bytes = zip.finish();
  const TorchArchive archive = read(bytes);
  for (int i = 1; i < 3000; ++i) {
    const auto record = archive.records.at("data/" + std::to_string(i));
    ASSERT_EQ(bytes.substr(record.offset, record.length), std::to_string(i));
  }
}

TEST_F(TorchArchiveTest, WhatIsNotAnArchiveIsCorrupt) {
  EXPECT_EQ(error_of(""), ErrorKind::corrupt);
  EXPECT_EQ(error_of("PK"), ErrorKind::corrupt);
  EXPECT_EQ(error_of(std::string(100'000, 'x')), ErrorKind::corrupt);
  EXPECT_EQ(error_of(ZipBuilder().finish()), ErrorKind::corrupt);  // no data.pkl
  ZipBuilder zip;
  zip.add("x/other", "");
  EXPECT_EQ(error_of(zip.finish()), ErrorKind::corrupt);
}

TEST_F(TorchArchiveTest, NamesMustBeThoseOfOneArchive) {
  for (const char* name : {"data.pkl", "/data.pkl", "y/data/1", "x/", "x/data/0", ""}) {
    ZipBuilder zip = small();
    zip.add(name, "z");
    EXPECT_EQ(error_of(zip.finish()), ErrorKind::corrupt) << name;
  }
}

TEST_F(TorchArchiveTest, CompressedAndEncryptedRecordsAreUnsupported) {
  for (const auto& [flags, method] : {std::pair{0x0808, 8}, std::pair{0x0809, 0}}) {
    ZipBuilder zip = small();
    ZipBuilder::Record record{"x/data/1", "abc"};
    record.flags = static_cast<uint16_t>(flags);
    record.method = static_cast<uint16_t>(method);
    zip.add(record);
    EXPECT_EQ(error_of(zip.finish()), ErrorKind::unsupported);
  }
}

TEST_F(TorchArchiveTest, RecordsThatContradictTheirHeadersAreCorrupt) {
  ZipBuilder zip = small();
  zip.records[1].stored = 3;
  EXPECT_EQ(error_of(zip.finish()), ErrorKind::corrupt) << "stored and true length";
  zip = small();
  zip.records[1].name = "x/data/9";
  EXPECT_EQ(error_of(zip.finish()), ErrorKind::corrupt) << "name";
  zip = small();
  zip.records[1].header += 1;
  EXPECT_EQ(error_of(zip.finish()), ErrorKind::corrupt) << "position";
  zip = small();
  zip.records[1].header = 1 << 30;
  EXPECT_EQ(error_of(zip.finish()), ErrorKind::corrupt) << "position outside";
  zip = small();
  zip.records[1].content = std::string(1000, 'x');
  EXPECT_EQ(error_of(zip.finish()), ErrorKind::corrupt) << "length outside";
  zip = small();
  zip.records[0].content += std::string(40, 'x');
  EXPECT_EQ(error_of(zip.finish()), ErrorKind::corrupt) << "overlap of the next";
  zip = small();
  zip.records[1].content = std::string(24, 'x');
  EXPECT_EQ(error_of(zip.finish()), ErrorKind::corrupt) << "overlap of the directory";
  zip = small();
  zip.add({.name = "x/data/1", .content = "abc", .flags = 0, .local_name = {}});
  zip.records.back().content = "ab";
  EXPECT_EQ(error_of(zip.finish()), ErrorKind::corrupt) << "length in the local header";
}

TEST_F(TorchArchiveTest, TwoNamesForTheSameBytesAreCorrupt) {
  // The classic bomb: many directory entries over one run of bytes.
  ZipBuilder zip = small();
  ZipBuilder::Record again = zip.records[1];
  zip.records.push_back(again);
  EXPECT_EQ(error_of(zip.finish()), ErrorKind::corrupt);
}

TEST_F(TorchArchiveTest, EndRecordsThatLieAreCorrupt) {
  const std::string good = small().finish(), good64 = small().finish(true);
  const auto tamper = [](std::string bytes, size_t from_end, uint64_t value, int n) {
    return bytes.replace(bytes.size() - from_end, n, test::number(value, n));
  };
  EXPECT_EQ(error_of(tamper(good, 14, 0x00030003, 4)), ErrorKind::corrupt);  // records
  EXPECT_EQ(error_of(tamper(good, 10, 1 << 30, 4)), ErrorKind::corrupt);     // directory length
  EXPECT_EQ(error_of(tamper(good, 6, 1 << 30, 4)), ErrorKind::corrupt);      // directory offset
  EXPECT_EQ(error_of(tamper(good, 18, 1, 2)), ErrorKind::unsupported);       // disks
  const size_t locator = 22 + 20, end64 = locator + 56;
  EXPECT_EQ(error_of(tamper(good64, locator - 8, ~0ull, 8)), ErrorKind::corrupt);
  EXPECT_EQ(error_of(tamper(good64, locator - 8, 0, 8)), ErrorKind::corrupt);
  EXPECT_EQ(error_of(tamper(good64, end64 - 32, ~0ull, 8)), ErrorKind::corrupt);  // records
  EXPECT_EQ(error_of(tamper(good64, end64 - 40, uint64_t{1} << 62, 8)), ErrorKind::corrupt);
  EXPECT_EQ(error_of(tamper(good64, end64 - 48, ~0ull - 4, 8)), ErrorKind::corrupt);  // offset
}

TEST_F(TorchArchiveTest, EveryTruncationIsAnErrorAndEveryFlippedBitNoCrash) {
  const std::string good = test::tensor_archive(
      test::tensor_pickle("FloatStorage", 4, 0, {2, 2}, {2, 1}), std::string(16, 'e'));
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_EQ(error_of(good.substr(0, length)), ErrorKind::corrupt) << length;
  }
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    try {
      const TorchArchive archive = read(bytes);
      const StoredTensor* tensor = archive.pickle->root().tensor();
      if (!tensor) continue;
      const auto storage = archive.storage(*tensor, "t");
      EXPECT_LE(storage.offset + storage.length, bytes.size());
    } catch (const Error&) {
    }
  }
}

TEST_F(TorchArchiveTest, StoragesMustHoldTheirViews) {
  const auto storage_error = [&](const std::string& pickle, size_t bytes) {
    const TorchArchive archive = read(test::tensor_archive(pickle, std::string(bytes, 'e')));
    try {
      archive.storage(*archive.pickle->root().tensor(), "tensor t");
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("tensor t"));
      return error.kind();
    }
    return ErrorKind::internal;  // none
  };
  using test::tensor_pickle;
  constexpr int64_t kHuge = int64_t{1} << 61;
  EXPECT_EQ(storage_error(tensor_pickle("FloatStorage", 6, 0, {2, 3}, {3, 1}), 24),
            ErrorKind::internal);
  EXPECT_EQ(storage_error(tensor_pickle("FloatStorage", 6, 0, {2, 0}, {3, 1}), 24),
            ErrorKind::internal);
  EXPECT_EQ(storage_error(tensor_pickle("FloatStorage", 6, 0, {2, 3}, {3, 1}), 23),
            ErrorKind::corrupt);
  EXPECT_EQ(storage_error(tensor_pickle("FloatStorage", 6, 1, {2, 3}, {3, 1}), 24),
            ErrorKind::corrupt);
  EXPECT_EQ(storage_error(tensor_pickle("FloatStorage", 6, 7, {0}, {1}), 24), ErrorKind::corrupt);
  EXPECT_EQ(storage_error(tensor_pickle("FloatStorage", 6, 0, {2, 3}, {4, 1}), 24),
            ErrorKind::corrupt);
  EXPECT_EQ(storage_error(tensor_pickle("FloatStorage", 6, 0, {kHuge, 4}, {1, kHuge}), 24),
            ErrorKind::corrupt);
}

TEST_F(TorchArchiveTest, MalformedTensorsAreCorrupt) {
  using test::tensor_pickle;
  const auto archive = [&](const std::string& pickle) {
    return test::tensor_archive(pickle, std::string(24, 'e'));
  };
  EXPECT_EQ(error_of(archive(tensor_pickle("FloatStorage", 6, -1, {2}, {1}))), ErrorKind::corrupt);
  EXPECT_EQ(error_of(archive(tensor_pickle("FloatStorage", 6, 0, {-2}, {1}))), ErrorKind::corrupt);
  EXPECT_EQ(error_of(archive(tensor_pickle("FloatStorage", 6, 0, {2}, {-1}))), ErrorKind::corrupt);
  EXPECT_EQ(error_of(archive(tensor_pickle("FloatStorage", 6, 0, {2}, {1, 1}))),
            ErrorKind::corrupt);
  EXPECT_EQ(error_of(archive(tensor_pickle("FloatStorage", int64_t{1} << 61, 0, {2}, {1}))),
            ErrorKind::corrupt);
  EXPECT_EQ(error_of(archive(tensor_pickle("FloatStorage", -6, 0, {2}, {1}))), ErrorKind::corrupt);
  EXPECT_EQ(error_of(archive(tensor_pickle("FloatStorage", 6, 0, std::vector<int64_t>(65, 1),
                                           std::vector<int64_t>(65, 1)))),
            ErrorKind::corrupt);
  // A type that has no name here is kept as an object: only who asks for it fails.
  EXPECT_EQ(read(archive(tensor_pickle("QInt8Storage", 6, 0, {2}, {1}))).pickle->root().kind(),
            ValueKind::object);
}

TEST_F(TorchArchiveTest, BigEndianStoragesAreUnsupported) {
  ZipBuilder zip;
  zip.add("x/data.pkl", test::tensor_pickle("FloatStorage", 1, 0, {1}, {1}));
  zip.add("x/byteorder", "big");
  zip.add("x/data/0", "abcd");
  const TorchArchive archive = read(zip.finish());
  EXPECT_TRUE(archive.big_endian);
  EXPECT_THROW(archive.storage(*archive.pickle->root().tensor(), "t"), Error);
}

// The file of make_torch_fixtures.py, in both forms.
class SavedState : public TorchArchiveTest, public testing::WithParamInterface<const char*> {};

TEST_P(SavedState, HasItsTensorsAndArguments) {
  const std::string bytes = read_file(*posix_file_system(), test::fixture(GetParam()), 1 << 20);
  const TorchArchive archive = read(bytes);
  const Value root = archive.pickle->root();
  EXPECT_EQ(root.get("args").get("lr").real(), 0.5);
  const auto elements = [&](const char* key) {
    const StoredTensor& tensor = *root.get(key).tensor();
    const auto storage = archive.storage(tensor, key);
    const int64_t bytes_each = size_bytes(tensor.dtype);
    return bytes.substr(storage.offset + tensor.storage_offset * bytes_each,
                        tensor.shape[0] * bytes_each);
  };
  EXPECT_EQ(elements("low"), std::string("\0\0\1\0\2\0\3\0", 8));
  EXPECT_EQ(elements("high"), std::string("\4\0\5\0\6\0\7\0", 8));
  EXPECT_EQ(elements("other"), std::string("\0\0\x80\x3f\0\x40", 6));
}

TEST_P(SavedState, TruncatedAnywhereIsAnError) {
  const std::string bytes = read_file(*posix_file_system(), test::fixture(GetParam()), 1 << 20);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(error_of(bytes.substr(0, length)), ErrorKind::corrupt) << length;
  }
}

TEST_P(SavedState, FlippedBitsNeverCrash) {
  const std::string good = read_file(*posix_file_system(), test::fixture(GetParam()), 1 << 20);
  size_t errors = 0;
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    try {
      const TorchArchive archive = read(bytes);
      if (const StoredTensor* tensor = archive.pickle->root().get("high").tensor()) {
        archive.storage(*tensor, "high");
      }
    } catch (const Error&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 500u);
}

TEST_F(TorchArchiveTest, AnOldFileMustAgreeWithItsPickle) {
  const std::string path = test::fixture("torch/state_legacy.pt");
  std::string bytes = read_file(*posix_file_system(), path, 1 << 20);
  char& elements = bytes.at(bytes.size() - 6 - 8);  // of the last storage: three bf16
  ASSERT_EQ(elements, 3);
  elements = 2;
  EXPECT_EQ(error_of(bytes), ErrorKind::corrupt);
}

INSTANTIATE_TEST_SUITE_P(BothForms, SavedState,
                         testing::Values("torch/state.pt", "torch/state_legacy.pt"));

}  // namespace
}  // namespace ferry
