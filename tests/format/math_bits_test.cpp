// Views that PyTorch saved before it had conjugated or negated them: read as what they stand for.
#include <gmock/gmock.h>
#include <zstd.h>

#include <cmath>
#include <cstring>

#include "ckpt/base/error.h"
#include "ckpt/core/plan.h"
#include "ckpt/core/recipe.h"
#include "ckpt/engine/run.h"
#include "ckpt/format/pickle/pickle_writer.h"
#include "ckpt/format/pickle/values/plain_value.h"
#include "ckpt/format/torch/archive/torch_archive.h"
#include "ckpt/format/torch/torch_file.h"
#include "tests/format/torch/torch_items.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::HasSubstr;

Catalog open(const std::string& name) {
  return open_torch_file(posix_file_system(), test::fixture("torch/" + name + ".pt"));
}

// PyTorch wrote both files: the views, and what it makes of them.
TEST(MathBits, ViewsAreReadAsPyTorchResolvesThem) {
  const Catalog views = open("math_bits"), resolved = open("math_bits_resolved");
  ASSERT_EQ(views.entries.size(), 8u);
  size_t marked = 0;
  for (const Entry& view : views.entries) {
    const Entry* expected = resolved.find(view.name);
    ASSERT_NE(expected, nullptr) << view.name;
    EXPECT_EQ(view.dtype, expected->dtype);
    EXPECT_EQ(view.shape, expected->shape);
    EXPECT_EQ(read_tensor(views, view, 1 << 20), read_tensor(resolved, *expected, 1 << 20))
        << view.name;
    std::string scanned, plain;
    const auto add_to = [](std::string& text) {
      return [&text](std::span<const std::byte> bytes) {
        text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      };
    };
    scan(views, view, 1 << 20, add_to(scanned));
    scan(resolved, *expected, 1 << 20, add_to(plain));
    EXPECT_EQ(scanned, plain) << view.name;
    marked += view.chunks[0].math.any() ? 1 : 0;
  }
  EXPECT_EQ(marked, 7u);
}

// In another dtype, and in runs of any length.
TEST(MathBits, HoldWhereElementsAreConverted) {
  const Catalog views = open("math_bits"), resolved = open("math_bits_resolved");
  const auto as_bf16 = [](const Catalog& catalog, const std::string& name) {
    const Entry* entry = catalog.find(name);
    Plan plan;
    plan.source = SharedCatalog::borrow(catalog);
    const auto bytes = static_cast<uint64_t>(entry->elements()) * 2;
    plan.target.add_file("out", bytes);
    Extent extent;
    extent.length = bytes;
    plan.target.entries.push_back(
        {name, DType::bf16, entry->shape, {{{Box::whole(entry->shape)}, {}, extent}}, Role::model});
    const auto position = static_cast<uint32_t>(entry - catalog.entries.data());
    plan.recipes.push_back({{position}, {copy_all(entry->shape)}, {}});
    drop_unused(plan, Role::model);
    check(plan);
    MemoryFileSystem files;
    files.create_folder("f");
    run(plan, files, "f", {});
    return files.get("f/out");
  };
  for (const char* name : {"imaginary", "negated", "bf16"}) {
    EXPECT_EQ(as_bf16(views, name), as_bf16(resolved, name)) << name;
  }
}

TEST(MathBits, ElementsWithoutASignBitAreRefused) {
  try {
    open("negated_integers");
    ADD_FAILURE() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("negated_integers.pt"));
    EXPECT_THAT(error.what(), HasSubstr("int32"));
    EXPECT_THAT(error.what(), HasSubstr("resolve_neg()"));
  }
  EXPECT_THROW(check_math_bits({false, true}, DType::f8_e4m3fnuz, "x"), Error);
  EXPECT_NO_THROW(check_math_bits({true, false}, DType::i32, "x"));  // its own conjugate
}

// As items of a distributed checkpoint, which are looked into when they are asked for.
TEST(MathBits, ItemsOfDistributedCheckpointsAreReadSo) {
  std::string item = read_file(*posix_file_system(), test::fixture("torch/negated.pt"), 1 << 20);
  for (const bool zstd : {false, true}) {
    if (zstd) {
      std::string compressed(ZSTD_compressBound(item.size()), '\0');
      compressed.resize(
          ZSTD_compress(compressed.data(), compressed.size(), item.data(), item.size(), 3));
      item = compressed;
    }
    const auto files = std::make_shared<MemoryFileSystem>();
    files->put("__0_0.distcp", item);
    Catalog catalog;
    catalog.file_system = files;
    catalog.locator = torch_zip_locator();
    catalog.add_file("__0_0.distcp", item.size());
    const Extent extent{0, 0, item.size(), Encoding::torch_zip, zstd, 0};
    catalog.entries.push_back(
        {"w", DType::f32, {5}, {{{Box::whole({5})}, {}, extent}}, Role::model});
    const auto values_of = [](const std::string& bytes) {
      std::vector<float> values(bytes.size() / sizeof(float));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    };
    const std::vector<float> expected = {-0.0F, -1, -2, -3, -4};
    EXPECT_EQ(values_of(read_tensor(catalog, catalog.entries[0], 1 << 10)), expected) << zstd;
    std::string scanned;
    scan(catalog, catalog.entries[0], 1 << 20, [&](std::span<const std::byte> bytes) {
      scanned.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
    EXPECT_EQ(values_of(scanned), expected) << zstd;
    EXPECT_TRUE(std::signbit(values_of(scanned)[0]));
  }
}

// What is copied as a value keeps its mark.
TEST(MathBits, ValuesKeepThem) {
  const auto file = posix_file_system()->open(test::fixture("torch/math_bits.pt"));
  const TorchArchive archive = read_torch_archive(*file, 0, file->size());
  auto document = std::make_shared<Document>(*archive.pickle);
  for (const StoredTensor& tensor : archive.pickle->tensors) {
    const auto bytes = static_cast<size_t>(tensor.storage_elements * size_bytes(tensor.dtype));
    document->storages[tensor.storage_key] = std::string(bytes, 'x');
  }
  const LoadedValue plain = plain_value(document->root());
  const Value negated = plain.value.get("negated");
  ASSERT_NE(negated.tensor(), nullptr);
  EXPECT_TRUE(negated.tensor()->math.negated);
  EXPECT_THAT(write_pickle(plain.value), HasSubstr("conj"));
}

}  // namespace
}  // namespace ferry
