// What the DCP writer lays out, read back by the DCP reader.
#include "ckpt/format/dcp/dcp_writer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "ckpt/base/error.h"
#include "ckpt/engine/run.h"
#include "ckpt/format/dcp/dcp.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"
#include "ckpt/format/torch/objects.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::ElementsAre;

struct DcpWriter : testing::Test {
  std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();
  Catalog source;

  void SetUp() override {
    source.file_system = files;
    files->create_folder("out");
  }

  // A source tensor of 32-bit integers 1000 i, 1000 i + 1, ...
  uint32_t add_source(const std::string& name, const Dims& shape) {
    const auto number = static_cast<uint32_t>(source.entries.size());
    std::vector<int32_t> values(element_count(shape, name));
    std::iota(values.begin(), values.end(), static_cast<int32_t>(number) * 1000);
    const auto bytes = std::as_bytes(std::span(values));
    files->put(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    const uint32_t file = source.add_file(name, bytes.size());
    Extent extent{file, 0, bytes.size(), Encoding::raw, false, 0};
    source.entries.push_back(
        {name, DType::i32, shape, {{{Box::whole(shape)}, {}, extent}}, Role::model});
    return number;
  }

  PlacedTensor placed(uint32_t input, std::vector<Shard> pieces) const {
    const Entry& entry = source.entries[input];
    return {{entry.name, entry.dtype, entry.shape, {{input}, {copy_all(entry.shape)}, {}}},
            std::move(pieces)};
  }

  PlannedOutput lay_out(std::vector<PlacedTensor> tensors, std::vector<PlacedObject> objects,
                        int files_per_rank = 1) const {
    return lay_out_dcp(SharedCatalog::borrow(source), {std::move(tensors), std::move(objects)},
                       {files_per_rank, {}});
  }

  Catalog write(const PlannedOutput& output) {
    check(output.plan);
    run(output.plan, *files, "out", {});
    for (const auto& [name, content] : output.small_files) files->put("out/" + name, content);
    return open_dcp(files, "out").catalog;
  }

  void expect_equal(const Catalog& read) const {
    for (const Entry& entry : source.entries) {
      const Entry* found = read.find(entry.name);
      ASSERT_NE(found, nullptr) << entry.name;
      EXPECT_EQ(found->shape, entry.shape);
      EXPECT_EQ(read_tensor(read, *found, 1 << 20), read_tensor(source, entry, 1 << 20));
    }
  }
};

std::string archive_of(const std::string& text) {
  Draft draft;
  const Value value = draft.string(text);
  return write_torch_archive(std::move(draft).finish(value).value);
}

TEST_F(DcpWriter, GivesEveryRankAFileWithItsObjectsAndPieces) {
  const uint32_t a = add_source("a", {4, 6}), b = add_source("b", {3});
  const PlannedOutput output =
      lay_out({placed(a, {{{{0, 0}, {2, 6}}, 0}, {{{2, 0}, {2, 3}}, 1}, {{{2, 3}, {2, 3}}, 5}}),
               placed(b, {{{{0}, {3}}, 0}})},
              {{"note/shard_0_1", archive_of("hello"), 1}});
  const auto& written = output.plan.target.files;
  ASSERT_EQ(written.size(), 3);
  EXPECT_EQ(written[0].path, "__0_0.distcp");
  EXPECT_EQ(written[1].path, "__1_0.distcp");
  EXPECT_EQ(written[2].path, "__5_0.distcp");  // whoever has nothing to write has no file
  const Catalog read = write(output);
  expect_equal(read);
  EXPECT_EQ(read.find("a")->chunks.size(), 3);
  ASSERT_EQ(read.objects.size(), 1);
  EXPECT_EQ(read.objects[0].extent.offset, 0);  // before the rank's tensors
  EXPECT_EQ(read_object(read, read.objects[0]).value.string(), "hello");
}

TEST_F(DcpWriter, SharesARanksItemsOutOverItsFilesBySize) {
  const uint32_t a = add_source("a", {200, 50}), b = add_source("b", {100, 50}),
                 c = add_source("c", {100, 50});
  const PlannedOutput output =
      lay_out({placed(b, {{Box::whole({100, 50}), 0}}), placed(a, {{Box::whole({200, 50}), 0}}),
               placed(c, {{Box::whole({100, 50}), 0}})},
              {}, 2);
  ASSERT_EQ(output.plan.target.files.size(), 2);
  EXPECT_EQ(output.plan.target.entries[1].chunks[0].extent.file, 0);
  EXPECT_EQ(output.plan.target.entries[0].chunks[0].extent.file, 1);
  EXPECT_EQ(output.plan.target.entries[2].chunks[0].extent.file, 1);
  expect_equal(write(output));
}

TEST_F(DcpWriter, WritesScalarsAndTensorsWithoutElements) {
  const uint32_t scalar = add_source("scalar", {}), empty = add_source("empty", {0, 4});
  const Catalog read = write(lay_out({placed(scalar, {{{{}, {}}, 0}}), placed(empty, {})}, {}));
  expect_equal(read);
}

TEST_F(DcpWriter, PutsEachPayloadAtAMultipleOf64FromItsItem) {
  const uint32_t a = add_source("a", {5, 7});
  const PlannedOutput output =
      lay_out({placed(a, {{{{0, 0}, {2, 7}}, 0}, {{{2, 0}, {3, 7}}, 0}})}, {});
  ASSERT_EQ(output.plan.items.size(), 2);
  for (const Item& item : output.plan.items) {
    ASSERT_EQ(item.payloads.size(), 1);
    EXPECT_EQ((item.payloads[0].offset - item.offset) % 64, 0);
    EXPECT_EQ(item.payloads[0].crc32_offsets.size(), 2);
  }
  EXPECT_EQ(output.plan.items[1].offset, output.plan.items[0].length);
}

TEST_F(DcpWriter, GivesTheSameBytesForTheSameContent) {
  const uint32_t a = add_source("a", {2, 2});
  const auto metadata = [&](Dims split) {
    return lay_out({placed(a, {{{{0, 0}, split}, 0}})}, {}).small_files.front();
  };
  EXPECT_EQ(metadata({2, 2}).first, ".metadata");
  EXPECT_EQ(metadata({2, 2}), metadata({2, 2}));
  EXPECT_NE(metadata({2, 2}), metadata({2, 1}));
}

TEST_F(DcpWriter, RefusesWhatCannotBeRead) {
  const uint32_t a = add_source("a", {4});
  const auto kind_of = [&](std::vector<PlacedTensor> tensors, std::vector<PlacedObject> objects) {
    try {
      check(lay_out(std::move(tensors), std::move(objects)).plan);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::internal;
  };
  EXPECT_EQ(kind_of({placed(a, {{{{0}, {4}}, 0}}), placed(a, {{{{0}, {4}}, 0}})}, {}),
            ErrorKind::invalid);
  EXPECT_EQ(kind_of({placed(a, {{{{0}, {4}}, 0}})}, {{"a", "", 0}}), ErrorKind::invalid);
  EXPECT_EQ(kind_of({placed(a, {{{{2}, {4}}, 0}})}, {}), ErrorKind::mismatch);
  // A piece missing, a piece twice: for the plan's own check.
  EXPECT_NE(kind_of({placed(a, {{{{0}, {2}}, 0}})}, {}), ErrorKind::internal);
  EXPECT_NE(kind_of({placed(a, {{{{0}, {4}}, 0}, {{{2}, {2}}, 0}})}, {}), ErrorKind::internal);
}

}  // namespace
}  // namespace ferry
