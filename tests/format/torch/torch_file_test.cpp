// Lone files of torch.save, in both of its forms, against what PyTorch holds.
#include "ckpt/format/torch/torch_file.h"

#include <gmock/gmock.h>
#include <xxhash.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/torch/objects.h"
#include "tests/format/torch/zip_builder.h"
#include "tests/io/memory_file_system.h"
#include "tests/support.h"

namespace ferry {
namespace {

const std::string kTorchFiles = std::string(FERRY_FIXTURES) + "/torch_file/";

class TorchFile : public testing::TestWithParam<std::string> {};

TEST_P(TorchFile, NamesAndReadsEveryTensor) {
  const Catalog catalog = open_torch_file(posix_file_system(), kTorchFiles + GetParam());
  const auto truth = nlohmann::json::parse(std::ifstream(kTorchFiles + "truth.json"));
  EXPECT_EQ(catalog.entries.size(), truth.size());
  for (const Entry& entry : catalog.entries) {
    ASSERT_TRUE(truth.contains(entry.name)) << entry.name;
    const auto& expected = truth[entry.name];
    // PyTorch calls the dtype "bool".
    if (expected["dtype"] != "bool") {
      EXPECT_EQ(torch_name(entry.dtype), expected["dtype"].get<std::string>()) << entry.name;
    }
    EXPECT_EQ(entry.shape, expected["shape"].get<Dims>()) << entry.name;
    EXPECT_NO_THROW(check_chunks(catalog, entry));
    EXPECT_EQ(test::hash_of(read_tensor(catalog, entry, 1 << 20)),
              expected["xxh3_128"].get<std::string>())
        << entry.name;
  }
  EXPECT_NE(catalog.find("optimizer.state.1.exp_avg"), nullptr);
  EXPECT_NE(catalog.find("flat.(torch.bfloat16, torch.float32).param"), nullptr);
}

TEST_P(TorchFile, EverythingElseIsAnObject) {
  const Catalog catalog = open_torch_file(posix_file_system(), kTorchFiles + GetParam());
  const Object* args = catalog.find_object("args");
  ASSERT_NE(args, nullptr);
  EXPECT_EQ(read_object(catalog, *args).value.get("num_layers").integer(), 2);
  const Object* step = catalog.find_object("optimizer.state.0.step");
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(read_object(catalog, *step).value.integer(), 5);
  const Object* groups = catalog.find_object("optimizer.param_groups");
  ASSERT_NE(groups, nullptr);
  EXPECT_EQ(read_object(catalog, *groups).value[0].get("lr").real(), 0.1);
  EXPECT_NE(catalog.find_object("tuple.1"), nullptr);
  EXPECT_EQ(catalog.find_object("model"), nullptr);
}

TEST_P(TorchFile, EveryTruncationIsAnError) {
  const std::string whole = read_file(*posix_file_system(), kTorchFiles + GetParam(), 1 << 20);
  const auto files = std::make_shared<MemoryFileSystem>();
  for (size_t length = 0; length < whole.size(); ++length) {
    files->put("f.pt", whole.substr(0, length));
    EXPECT_THROW(open_torch_file(files, "f.pt"), Error) << length;
  }
}

std::string le(int64_t number) {
  std::string text(8, '\0');
  std::memcpy(text.data(), &number, sizeof number);
  return text;
}

// "x/data.pkl" with a float tensor of this shape in a storage of one element, and what follows it.
std::string archive_of(const std::string& before, const Dims& shape, const std::string& after) {
  std::string sizes, strides;
  for (int64_t size : shape) sizes += "\x8a\x08" + le(size), strides += "K" + std::string(1, '\0');
  test::ZipBuilder zip;
  zip.add("x/data.pkl", "\x80\x02" + before +
                            "ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\n"
                            "FloatStorage\nU\x01"
                            "0U\x03"
                            "cpuK\x01tQK" +
                            std::string(1, '\0') + "(" + sizes + "t(" + strides +
                            "t\x89"
                            "ccollections\nOrderedDict\n)RtR" +
                            after + ".");
  zip.add("x/data/0", "abcd");
  return zip.finish();
}

void expect_refused(const std::string& bytes, ErrorKind kind, const std::string& text) {
  const auto files = std::make_shared<MemoryFileSystem>();
  files->put("f.pt", bytes);
  try {
    open_torch_file(files, "f.pt");
    ADD_FAILURE() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr(text));
  }
}

TEST(TorchFileLimits, AFewBytesDoNotBecomeTerabytes) {
  const auto files = std::make_shared<MemoryFileSystem>();
  files->put("f.pt", archive_of("", {1 << 10, 1 << 10}, ""));
  EXPECT_EQ(open_torch_file(files, "f.pt").entries[0].elements(), 1 << 20);
  expect_refused(archive_of("", {int64_t{1} << 40}, ""), ErrorKind::unsupported, "contiguous()");
  expect_refused(archive_of("", {1 << 20, 1 << 20, 1 << 19}, ""), ErrorKind::unsupported,
                 "repeats the 1 elements");
}

TEST(TorchFileLimits, NamesOfSharedPartsDoNotFillTheMemory) {
  // Sixty dicts inside one another, a list of a million Nones (and a tensor) in the innermost.
  std::string before, after;
  for (int i = 0; i < 60; ++i) {
    before += "}U\x28" + std::string(40, 'k');
    after += "s";
  }
  std::string nones(1'000'000, 'N');
  expect_refused(archive_of(before + "(", {1}, nones + "l" + after), ErrorKind::exhausted,
                 "its names take");
}

INSTANTIATE_TEST_SUITE_P(Forms, TorchFile, testing::Values("zip.pt", "legacy.pt"),
                         [](const auto& param) {
                           return param.param.substr(0, param.param.find('.'));
                         });

}  // namespace
}  // namespace ferry
