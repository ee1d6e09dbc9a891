#include "ckpt/format/torch/archive/torch_archive_writer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "ckpt/base/digest.h"
#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/archive/torch_archive.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/format/torch/torch_file.h"
#include "tests/format/torch/torch_items.h"
#include "tests/format/torch/zip_builder.h"
#include "tests/io/memory_file_system.h"
#include "tests/same_value.h"

namespace ferry {
namespace {

using testing::HasSubstr;

template <typename F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return std::string(name(error.kind())) + ": " + error.what();
  }
  return "no error";
}

uint32_t checksum(std::string_view bytes) { return crc32(std::as_bytes(std::span(bytes))); }

// The file that a layout describes, with these payloads.
std::string fill(const TorchArchiveLayout& layout, const std::vector<std::string>& payloads) {
  std::string file(layout.length, '?');
  uint64_t covered = 0;
  for (const auto& literal : layout.literals) {
    file.replace(literal.offset, literal.bytes.size(), literal.bytes);
    covered += literal.bytes.size();
  }
  EXPECT_EQ(payloads.size(), layout.payloads.size());
  for (size_t i = 0; i < payloads.size(); ++i) {
    const auto& payload = layout.payloads[i];
    EXPECT_EQ(payload.length, payloads[i].size());
    file.replace(payload.offset, payload.length, payloads[i]);
    covered += payload.length;
    for (const uint64_t at : payload.crc32_offsets) {
      EXPECT_GE(at, payload.offset + payload.length);
      EXPECT_EQ(file.substr(at, 4), std::string(4, '\0'));
      file.replace(at, 4, test::number(checksum(payloads[i]), 4));
    }
  }
  EXPECT_EQ(covered, layout.length);
  return file;
}

TorchArchive read_back(const std::string& bytes) {
  auto files = std::make_shared<MemoryFileSystem>();
  files->put("a.pt", bytes);
  return read_torch_archive(*files->open("a.pt"), 0, bytes.size());
}

std::string storage_bytes(const TorchArchive& archive, const Value& tensor,
                          const std::string& file) {
  const auto record = archive.storage(*tensor.tensor(), "test");
  return file.substr(record.offset, record.length);
}

// PyTorch's own id of an archive is a hash of its record names in no defined order: it may differ,
// as may its CRC-32, and nothing else.
std::string without_id(std::string bytes) {
  const size_t record = bytes.find(".data/serialization_id");
  EXPECT_NE(record, std::string::npos);
  const size_t content = (record + 22 + 63) / 64 * 64;
  bytes.replace(content, 40, 40, '-');
  EXPECT_EQ(bytes.substr(content + 40, 4), "PK\7\10");
  bytes.replace(content + 44, 4, 4, '-');
  const size_t entry = bytes.rfind(".data/serialization_id");
  const size_t header = bytes.rfind("PK\1\2", entry);
  bytes.replace(header + 16, 4, 4, '-');
  return bytes;
}

std::string fixture_bytes(const std::string& name) {
  return read_file(*posix_file_system(), test::fixture("torch/" + name + ".pt"), 1 << 20);
}

TEST(TorchArchiveWriter, AnItemIsWhatPyTorchWrites) {
  const struct {
    const char* name;
    DType dtype;
    Dims shape;
  } cases[] = {{"f16", DType::f16, {24}},         {"bf16", DType::bf16, {24}},
               {"u16", DType::u16, {24}},         {"f8", DType::f8_e4m3, {24}},
               {"c64", DType::c64, {24}},         {"i8", DType::i8, {24}},
               {"boolean", DType::boolean, {24}}, {"scalar", DType::f64, {}}};
  for (const auto& c : cases) {
    const std::string expected = fixture_bytes(c.name);
    const TorchArchive theirs = read_back(expected);
    const StoredTensor* tensor = theirs.pickle->root().tensor();
    ASSERT_EQ(tensor->dtype, c.dtype) << c.name;
    const std::string payload = storage_bytes(theirs, theirs.pickle->root(), expected);
    const auto layout = lay_out_torch_tensor(c.dtype, tensor->shape, c.name);
    EXPECT_EQ(without_id(fill(layout, {payload})), without_id(expected)) << c.name;
  }
}

TEST(TorchArchiveWriter, AnEmptyTensorIsWhatPyTorchWrites) {
  const auto layout = lay_out_torch_tensor(DType::f32, {0, 3}, "empty");
  EXPECT_TRUE(layout.payloads.empty());
  EXPECT_EQ(without_id(fill(layout, {})), without_id(fixture_bytes("empty")));
}

// Parsed archives of every form of tensor, with the bytes of their storages, come out as they were.
TEST(TorchArchiveWriter, RewritesWhatPyTorchWrote) {
  for (const char* name : {"view", "strided", "transposed", "expanded", "parameter", "tagged",
                           "state", "contiguous", "u64"}) {
    Catalog catalog;
    catalog.file_system = posix_file_system();
    const std::string path = test::fixture(std::string("torch/") + name + ".pt");
    const std::string expected = fixture_bytes(name);
    catalog.add_file(path, expected.size());
    const Object whole{name, {0, 0, expected.size()}, {}};
    const LoadedValue loaded = read_object_with_storages(catalog, whole);
    EXPECT_EQ(without_id(write_torch_archive(loaded.value, name)), without_id(expected)) << name;
  }
}

TEST(TorchArchiveWriter, FilesOfTheOldFormGiveTheirStoragesToo) {
  Catalog catalog;
  catalog.file_system = posix_file_system();
  const std::string path = test::fixture("torch/state_legacy.pt");
  catalog.add_file(path, 1 << 30);
  uint64_t pickles = 0;
  read_torch_file(*catalog.file_system->open(path), &pickles);
  const LoadedValue loaded = read_object_with_storages(catalog, {"all", {0, 0, pickles}, {}});
  const std::string written = write_torch_archive(loaded.value);
  EXPECT_EQ(test::Comparison::difference(loaded.value, read_back(written).pickle->root()), "");
  EXPECT_FALSE(loaded.document->storages.empty());
}

TEST(TorchArchiveWriter, ObjectsOfThePeersKeepTheirTensors) {
  for (const std::string& name : test::distributed_fixtures()) {
    const std::string folder = test::iteration_folder(name);
    Catalog catalog;
    catalog.file_system = posix_file_system();
    for (const test::Item& item : test::read_items(folder)) {
      if (item.is_tensor) continue;
      const uint32_t file = catalog.add_file(item.path, 1 << 30);
      const Object object{item.key, {file, item.offset, item.length}, {}};
      const LoadedValue loaded = read_object_with_storages(catalog, object);
      const std::string written = write_torch_archive(loaded.value);
      const TorchArchive archive = read_back(written);
      EXPECT_EQ(test::Comparison::difference(loaded.value, archive.pickle->root()), "") << item.key;
      EXPECT_EQ(written.size(), item.length) << name << " " << item.key;
    }
  }
}

TEST(TorchArchiveWriter, HoldsSeveralTensorsAndSharedStorages) {
  Draft draft;
  const std::string shared = draft.storage_of(24), held = draft.storage("held bytes..");
  const Value dict = draft.dict();
  draft.put(dict, "b", draft.tensor_of(held, DType::u8, {12}));
  draft.put(dict, "a", draft.tensor_of(shared, DType::f32, {2, 3}));
  draft.put(dict, "c", draft.tensor_of(shared, DType::f32, {3}, 3));
  draft.put(dict, "later", draft.tensor_of(draft.storage_of(8), DType::i64, {1}));
  draft.put(dict, "empty", draft.tensor(DType::f32, {0}, std::string()));
  const LoadedValue value = std::move(draft).finish(dict);
  const auto layout = lay_out_torch_archive(value.value, "model_optim_rng");
  ASSERT_EQ(layout.payloads.size(), 2u);
  EXPECT_EQ(layout.payloads[0].storage, shared);
  EXPECT_EQ(layout.payloads[0].offset % 64, 0u);
  EXPECT_EQ(layout.payloads[1].offset % 64, 0u);
  const std::string file = fill(layout, {std::string(24, 'x'), "longlong"});
  const TorchArchive archive = read_back(file);
  const Value root = archive.pickle->root();
  EXPECT_EQ(test::Comparison::difference(value.value, root), "");
  EXPECT_EQ(root.get("b").tensor()->storage_key, "0");  // in the order of the pickle
  EXPECT_EQ(storage_bytes(archive, root.get("b"), file), "held bytes..");
  EXPECT_EQ(storage_bytes(archive, root.get("c"), file), std::string(24, 'x'));
  EXPECT_EQ(storage_bytes(archive, root.get("later"), file), "longlong");
  for (const auto& [name, record] : archive.records) {
    EXPECT_EQ(record.crc32, checksum(file.substr(record.offset, record.length))) << name;
  }
}

TEST(TorchArchiveWriter, LargeRecordsAndFarOnesHaveZip64Fields) {
  Draft draft;
  const uint64_t four_gib = uint64_t{1} << 32;
  const Value list = draft.list();
  for (const uint64_t bytes : {5 * four_gib, uint64_t{12}, four_gib - 1, four_gib - 2}) {
    draft.append(
        list, draft.tensor_of(draft.storage_of(bytes), DType::u8, {static_cast<int64_t>(bytes)}));
  }
  const LoadedValue value = std::move(draft).finish(list);
  const auto layout = lay_out_torch_archive(value.value, "big");
  ASSERT_EQ(layout.payloads.size(), 4u);
  EXPECT_GT(layout.length, 7 * four_gib);
  // Without the payloads in between, headers say what the directory says, field by field.
  const auto header_of = [&](size_t payload) {  // of the literal that ends where it begins
    const std::string& bytes = layout.literals[payload].bytes;
    return bytes.substr(bytes.rfind("PK\3\4"));
  };
  const std::string both = test::number(1, 2) + test::number(16, 2);
  EXPECT_THAT(header_of(0), HasSubstr(both + test::number(5 * four_gib, 8) + test::number(0, 8)));
  const std::string far = test::number(1, 2) + test::number(8, 2);
  EXPECT_THAT(header_of(1), HasSubstr(far));
  const std::string all = test::number(1, 2) + test::number(24, 2);
  EXPECT_THAT(header_of(2), HasSubstr(all + test::number(four_gib - 1, 8) + test::number(0, 8)));
  EXPECT_THAT(header_of(3), HasSubstr(far));
  for (const auto& payload : layout.payloads) EXPECT_EQ(payload.offset % 64, 0u);
  EXPECT_EQ(layout.literals[1].bytes.substr(0, 24), "PK\7\10" + test::number(0, 4) +
                                                        test::number(5 * four_gib, 8) +
                                                        test::number(5 * four_gib, 8));
}

// The archive, with holes for payloads.
class SparseFile final : public ReadableFile {
 public:
  explicit SparseFile(const TorchArchiveLayout& layout) : layout_(layout) {}
  const std::string& path() const noexcept override { return path_; }
  uint64_t size() const noexcept override { return layout_.length; }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    std::fill(into.begin(), into.end(), std::byte{0});
    for (const auto& literal : layout_.literals) {
      const uint64_t begin = std::max(offset, literal.offset);
      const uint64_t end = std::min(offset + into.size(), literal.offset + literal.bytes.size());
      if (begin >= end) continue;
      std::memcpy(into.data() + (begin - offset), literal.bytes.data() + (begin - literal.offset),
                  end - begin);
    }
  }

 private:
  const TorchArchiveLayout& layout_;
  std::string path_ = "sparse.pt";
};

TEST(TorchArchiveWriter, LargeArchivesAreReadBack) {
  Draft draft;
  const int64_t elements = int64_t{3} << 30;
  const Value list =
      draft.list({draft.tensor_of(draft.storage_of(2 * elements), DType::bf16, {elements}),
                  draft.tensor(DType::u8, {3}, "abc")});
  const LoadedValue value = std::move(draft).finish(list);
  const auto layout = lay_out_torch_archive(value.value);
  const SparseFile file(layout);
  const TorchArchive archive = read_torch_archive(file, 0, layout.length);
  EXPECT_EQ(archive.storage(*archive.pickle->root()[0].tensor(), "big").offset,
            layout.payloads[0].offset);
  const auto small = archive.storage(*archive.pickle->root()[1].tensor(), "small");
  std::string bytes(3, '?');
  file.read(small.offset, std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(bytes, "abc");
}

TEST(TorchArchiveWriter, ManyRecordsAreReadBack) {
  Draft draft;
  const Value list = draft.list();
  for (int i = 0; i < 66'000; ++i) draft.append(list, draft.tensor(DType::u8, {1}, "x"));
  const LoadedValue value = std::move(draft).finish(list);
  const TorchArchive archive = read_back(write_torch_archive(value.value));
  EXPECT_EQ(archive.records.size(), 66'000u + 6);
}

TEST(TorchArchiveWriter, RefusesWhatIsNoArchive) {
  Draft draft;
  const std::string storage = draft.storage_of(8);
  const Value later = draft.tensor_of(storage, DType::u8, {8});
  EXPECT_THAT(error_of([&] { write_torch_archive(later); }), HasSubstr("invalid: "));
  EXPECT_THAT(error_of([&] { lay_out_torch_tensor(DType::f64, {INT64_MAX / 2}); }),
              HasSubstr("corrupt: "));
  for (const char* folder : {"", "a/b"}) {
    EXPECT_THAT(error_of([&] { lay_out_torch_tensor(DType::u8, {1}, folder); }),
                HasSubstr("invalid: "));
  }
}

TEST(TorchArchiveWriter, TensorsThatDisagreeOnAStorageAreRefused) {
  const auto document = [] {
    Draft draft;
    const std::string storage = draft.storage_of(8);
    const Value both = draft.list(
        {draft.tensor_of(storage, DType::u8, {8}), draft.tensor_of(storage, DType::u8, {8})});
    return std::make_shared<Document>(*std::move(draft).finish(both).document);
  }();
  document->tensors[1].storage_elements = 9;
  EXPECT_THAT(error_of([&] { lay_out_torch_archive(document->root()); }), HasSubstr("mismatch: "));
}

}  // namespace
}  // namespace ferry
