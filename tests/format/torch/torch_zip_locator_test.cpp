// Chunks that are archives become chunks that are raw elements, plain and in zstd streams.
#include <gmock/gmock.h>

#include <cstring>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/archive/torch_archive.h"
#include "ckpt/io/zstd_stream.h"
#include "tests/format/torch/torch_items.h"
#include "tests/format/torch/zip_builder.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

class LocatorTest : public testing::Test {
 protected:
  LocatorTest() { catalog_.file_system = memory_; }

  // An entry of one chunk over a whole file.
  void set(const std::string& content, DType dtype, Dims shape) {
    memory_->put("/f", content);
    catalog_.files = {{"/f", content.size()}};
    entry_ = {"layer.weight", dtype, shape, {}, Role::model};
    chunk_ = {{Box::whole(shape)}, {}, {0, 0, content.size(), Encoding::torch_zip, false, 0}};
    locator_ = torch_zip_locator();
  }
  void set_fixture(const std::string& name, DType dtype, Dims shape) {
    set(read_file(*posix_file_system(), test::fixture(name), 1 << 20), dtype, std::move(shape));
  }

  Chunk locate() const { return locator_->locate(catalog_, entry_, chunk_); }

  ErrorKind error_kind() const {
    try {
      locate();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("/f"));
      return error.kind();
    }
    ADD_FAILURE() << "located";
    return ErrorKind::internal;
  }

  // The elements of a located box, in row-major order.
  template <typename T>
  std::vector<T> elements() const {
    const Chunk chunk = locate();
    EXPECT_EQ(chunk.extent.encoding, Encoding::raw);
    const Dims& sizes = chunk.box.size;
    const Dims strides = chunk.strides.empty() ? row_major_strides(sizes) : chunk.strides;
    const auto file = catalog_.file_system->open(catalog_.files.at(0).path);
    const int64_t count = chunk.is_run() ? chunk.run_count : element_count(sizes, "test");
    std::vector<T> result;
    for (int64_t i = 0; i < count; ++i) {
      int64_t position = i;
      if (!chunk.is_run()) {
        position = 0;
        for (int64_t axis = static_cast<int64_t>(sizes.size()) - 1, rest = i; axis >= 0; --axis) {
          position += rest % sizes[axis] * strides[axis];
          rest /= sizes[axis];
        }
      }
      T value;
      const auto bytes = std::as_writable_bytes(std::span(&value, 1));
      const uint64_t at = position * sizeof(T);
      if (chunk.extent.zstd) {
        ZstdStream stream(file, chunk.extent.offset, chunk.extent.length);
        stream.skip(chunk.extent.payload_offset + at);
        stream.read(bytes);
      } else {
        EXPECT_EQ(chunk.extent.payload_offset, 0u);
        EXPECT_LE(at + sizeof(T), chunk.extent.length);
        file->read(chunk.extent.offset + at, bytes);
      }
      result.push_back(value);
    }
    return result;
  }

  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
  Catalog catalog_;
  Entry entry_;
  Chunk chunk_;
  std::shared_ptr<const ChunkLocator> locator_;
};

std::vector<float> floats(int count) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
  return values;
}

TEST_F(LocatorTest, ContiguousTensors) {
  for (const char* name : {"contiguous", "parameter"}) {
    set_fixture("torch/" + std::string(name) + ".pt", DType::f32, {4, 6});
    EXPECT_EQ(elements<float>(), floats(24)) << name;
    EXPECT_TRUE(locate().strides.empty());
    EXPECT_EQ(locate().extent.length, 96u);
  }
  set_fixture("torch/tagged.pt", DType::f32, {3});
  EXPECT_EQ(elements<float>(), floats(3));
}

TEST_F(LocatorTest, ViewsAndStrides) {
  set_fixture("torch/view.pt", DType::f32, {10});
  EXPECT_THAT(elements<float>(), testing::ElementsAre(10, 11, 12, 13, 14, 15, 16, 17, 18, 19));
  EXPECT_EQ(locate().extent.length, 40u);
  set_fixture("torch/transposed.pt", DType::f32, {6, 4});
  EXPECT_THAT(locate().strides, testing::ElementsAre(1, 6));
  const std::vector<float> transposed = elements<float>();
  for (int i = 0; i < 24; ++i) EXPECT_EQ(transposed[i], i / 4 + i % 4 * 6);
  set_fixture("torch/strided.pt", DType::f32, {4, 3});
  EXPECT_THAT(elements<float>(), testing::ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22));
  set_fixture("torch/expanded.pt", DType::f32, {4});
  EXPECT_THAT(elements<float>(), testing::ElementsAre(3, 3, 3, 3));
}

TEST_F(LocatorTest, StridesGoToTheAxesOfTheBox) {
  set_fixture("torch/transposed.pt", DType::f32, {1, 6, 1, 4});
  const std::vector<float> transposed = elements<float>();
  for (int i = 0; i < 24; ++i) EXPECT_EQ(transposed[i], i / 4 + i % 4 * 6);
  set_fixture("torch/transposed.pt", DType::f32, {4, 6});
  EXPECT_EQ(error_kind(), ErrorKind::corrupt);
}

TEST_F(LocatorTest, ScalarsAndEmptyTensors) {
  set_fixture("torch/scalar.pt", DType::f64, {});
  EXPECT_THAT(elements<double>(), testing::ElementsAre(2.5));
  set_fixture("torch/empty.pt", DType::f32, {0, 3});
  EXPECT_EQ(locate().extent.length, 0u);
}

TEST_F(LocatorTest, EveryTypeIsKnown) {
  const std::pair<const char*, DType> types[] = {
      {"bf16", DType::bf16}, {"f16", DType::f16}, {"boolean", DType::boolean}, {"i8", DType::i8},
      {"u16", DType::u16},   {"u64", DType::u64}, {"f8", DType::f8_e4m3},      {"c64", DType::c64}};
  for (const auto& [name, dtype] : types) {
    set_fixture("torch/" + std::string(name) + ".pt", dtype, {24});
    EXPECT_EQ(locate().extent.length, 24u * size_bytes(dtype)) << name;
    entry_.dtype = DType::f64;
    EXPECT_EQ(error_kind(), ErrorKind::corrupt) << name;
  }
  set_fixture("torch/u16.pt", DType::u16, {24});
  EXPECT_EQ(elements<uint16_t>()[23], 23);
}

TEST_F(LocatorTest, RunsStartAtTheirPayload) {
  set_fixture("torch/contiguous.pt", DType::f32, {4, 6});
  chunk_.run_begin = 7;
  chunk_.run_count = 5;
  chunk_.extent.payload_offset = 28;
  EXPECT_THAT(elements<float>(), testing::ElementsAre(7, 8, 9, 10, 11));
  EXPECT_EQ(locate().extent.length, 96u - 28);
  chunk_.run_count = 18;
  EXPECT_EQ(error_kind(), ErrorKind::corrupt);
  chunk_.run_count = 1;
  chunk_.extent.payload_offset = 100;
  EXPECT_EQ(error_kind(), ErrorKind::corrupt);
  chunk_.extent.payload_offset = 27;
  EXPECT_EQ(error_kind(), ErrorKind::corrupt);
  set_fixture("torch/transposed.pt", DType::f32, {4, 6});
  chunk_.run_count = 5;
  EXPECT_EQ(error_kind(), ErrorKind::unsupported);
}

TEST_F(LocatorTest, BoxesOfAFlatItemStartAtTheirPayload) {
  set_fixture("torch/contiguous.pt", DType::f32, {2, 3});
  chunk_.extent.payload_offset = 8;
  EXPECT_THAT(elements<float>(), testing::ElementsAre(2, 3, 4, 5, 6, 7));
}

TEST_F(LocatorTest, WrongCountsAndOtherValuesAreCorrupt) {
  set_fixture("torch/contiguous.pt", DType::f32, {4, 5});
  EXPECT_EQ(error_kind(), ErrorKind::corrupt);
  set_fixture("torch/contiguous.pt", DType::f32, {5, 6});
  EXPECT_EQ(error_kind(), ErrorKind::corrupt);
  set_fixture("torch/state.pt", DType::f32, {4});
  EXPECT_EQ(error_kind(), ErrorKind::corrupt);
}

TEST_F(LocatorTest, RawChunksStayAsTheyAre) {
  set("abcd", DType::f32, {1});
  chunk_.extent.encoding = Encoding::raw;
  EXPECT_EQ(locate().extent.length, 4u);
}

// dcp_zstd: a checkpoint that PyTorch wrote through its zstd extension.
class ZstdLocatorTest : public LocatorTest {
 protected:
  void set_item(const std::string& key, DType dtype, Dims shape) {
    for (const test::Item& item : test::read_items(test::fixture("dcp_zstd"))) {
      if (item.key != key) continue;
      const std::string file = read_file(*posix_file_system(), item.path, 1 << 20);
      set(file, dtype, std::move(shape));
      chunk_.extent.offset = item.offset;
      chunk_.extent.length = item.length;
      chunk_.extent.zstd = true;
      return;
    }
    FAIL() << key;
  }
};

TEST_F(ZstdLocatorTest, TensorsOfACompressedCheckpoint) {
  set_item("weight", DType::f32, {24, 16});
  EXPECT_EQ(elements<float>(), floats(384));
  EXPECT_TRUE(locate().extent.zstd);
  EXPECT_EQ(locate().extent.length, chunk_.extent.length);
  set_item("view", DType::i64, {10});
  EXPECT_THAT(elements<int64_t>(), testing::ElementsAre(10, 11, 12, 13, 14, 15, 16, 17, 18, 19));
  set_item("scalar", DType::f64, {});
  EXPECT_THAT(elements<double>(), testing::ElementsAre(2.5));
  set_item("empty", DType::f32, {0, 4});
  EXPECT_TRUE(elements<float>().empty());
  set_item("transposed", DType::bf16, {4, 3});
  std::vector<uint16_t> expected;  // 0 4 8 1 5 9 ... as bf16
  for (float value : {0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    expected.push_back(static_cast<uint16_t>(bits >> 16));
  }
  EXPECT_EQ(elements<uint16_t>(), expected);
}

TEST_F(ZstdLocatorTest, RunsStartAtTheirPayload) {
  set_item("weight", DType::f32, {24, 16});
  chunk_.run_begin = 100;
  chunk_.run_count = 3;
  chunk_.extent.payload_offset = 400;
  EXPECT_THAT(elements<float>(), testing::ElementsAre(100, 101, 102));
}

TEST_F(ZstdLocatorTest, OtherItemsAreCorrupt) {
  set_item("weight", DType::f32, {24, 15});
  EXPECT_EQ(error_kind(), ErrorKind::corrupt);
  set_item("step.n", DType::f32, {1});
  EXPECT_EQ(error_kind(), ErrorKind::corrupt);
  set_item("weight", DType::f32, {24, 16});
  chunk_.extent.length = 100;
  EXPECT_EQ(error_kind(), ErrorKind::corrupt);
  chunk_.extent.offset += 1;
  EXPECT_EQ(error_kind(), ErrorKind::corrupt);
}

TEST_F(ZstdLocatorTest, FlippedBitsNeverCrash) {
  set_item("view", DType::i64, {10});
  const Extent extent = chunk_.extent;
  const std::string good = read_file(*memory_, "/f", 1 << 20).substr(extent.offset, extent.length);
  size_t errors = 0;
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    set(bytes, DType::i64, {10});
    chunk_.extent.zstd = true;
    try {
      elements<int64_t>();
    } catch (const Error&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 100u);
}

}  // namespace
}  // namespace ferry
