#include "ckpt/format/torch/objects.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tests/format/torch/torch_items.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

class ObjectsTest : public testing::Test {
 protected:
  // `name` of a fixture, after some bytes that are not its own.
  LoadedValue read(const std::string& name, std::vector<std::string> path = {}) {
    return read_bytes(read_file(*posix_file_system(), test::fixture(name), 1 << 20),
                      std::move(path));
  }
  LoadedValue read_bytes(const std::string& bytes, std::vector<std::string> path = {},
                         bool zstd = false) {
    const auto memory = std::make_shared<MemoryFileSystem>();
    memory->put("/f", "before" + bytes + "after");
    Catalog catalog;
    catalog.file_system = memory;
    catalog.files = {{"/f", bytes.size() + 11}};
    return read_object(catalog, {"thing", {0, 6, bytes.size(), Encoding::raw, zstd, 0}, path});
  }
  ErrorKind error_of(const std::string& bytes, std::vector<std::string> path = {},
                     bool zstd = false) {
    try {
      read_bytes(bytes, std::move(path), zstd);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("/f"));
      return error.kind();
    }
    ADD_FAILURE() << "read";
    return ErrorKind::internal;
  }
};

TEST_F(ObjectsTest, ArchivesPicklesAndOldFiles) {
  EXPECT_EQ(read("torch/state.pt").value.get("args").get("lr").real(), 0.5);
  EXPECT_EQ(read("torch/state_legacy.pt").value.get("args").get("lr").real(), 0.5);
  EXPECT_EQ(read("pickle/value_p4.pkl").value.get("namespace").get("lr").real(), 0.5);
  EXPECT_EQ(read("pickle/value_p0.pkl").value.get("namespace").get("lr").real(), 0.5);
}

TEST_F(ObjectsTest, PathsWalkKeysAttributesAndPositions) {
  EXPECT_EQ(read("pickle/value_p4.pkl", {"namespace", "nested", "x"}).value.integer(), 1);
  EXPECT_EQ(read("pickle/value_p4.pkl", {"tuples", "4", "2"}).value.integer(), 3);
  EXPECT_EQ(read("pickle/value_p4.pkl", {"many_keys", "1099"}).value.string(), "1099");
  EXPECT_TRUE(read("pickle/value_p4.pkl", {"none"}).value.is_none());
  EXPECT_EQ(error_of("}.", {"none"}), ErrorKind::not_found);
  EXPECT_EQ(error_of("].", {"0"}), ErrorKind::not_found);
  EXPECT_EQ(error_of("N.", {"a", "b"}), ErrorKind::not_found);
}

TEST_F(ObjectsTest, CompressedItemsOfACheckpoint) {
  std::vector<std::string> values;
  for (const test::Item& item : test::read_items(test::fixture("dcp_zstd"))) {
    if (item.is_tensor) continue;
    const auto bytes = read_file(*posix_file_system(), item.path, 1 << 20);
    const auto loaded = read_bytes(bytes.substr(item.offset, item.length), {}, true);
    values.push_back(item.key + "=" + to_json(loaded.value).dump());
  }
  EXPECT_THAT(values, testing::UnorderedElementsAre("step.n=5", "step.name=\"x\""));
}

TEST_F(ObjectsTest, DamageIsCorrupt) {
  EXPECT_EQ(error_of(""), ErrorKind::corrupt);
  EXPECT_EQ(error_of("PK\3\4"), ErrorKind::corrupt);
  EXPECT_EQ(error_of("\x80\x02"), ErrorKind::corrupt);
  EXPECT_EQ(error_of("N.", {}, true), ErrorKind::corrupt);
  EXPECT_EQ(error_of("", {}, true), ErrorKind::corrupt);
  Catalog catalog;
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->put("/f", "N.");
  catalog.file_system = memory;
  catalog.files = {{"/f", 2}};
  EXPECT_THROW(read_object(catalog, {"x", {0, 1, 2}, {}}), Error);
}

TEST_F(ObjectsTest, EveryObjectOfTheRealCheckpointsIsRead) {
  const auto file_system = posix_file_system();
  for (const std::string& name : test::distributed_fixtures()) {
    Catalog catalog;
    catalog.file_system = file_system;
    for (const test::Item& item : test::read_items(test::iteration_folder(name))) {
      if (item.is_tensor) continue;
      Object object;
      object.name = item.key;
      object.extent.file = catalog.add_file(item.path, file_system->status(item.path).bytes);
      object.extent.offset = item.offset;
      object.extent.length = item.length;
      const LoadedValue loaded = read_object(catalog, object);
      ASSERT_TRUE(loaded.value.document()) << name << " " << item.key;
      if (item.key.starts_with("common_state/")) {
        EXPECT_EQ(loaded.value[0].get("iteration").integer(), 5) << name;
      }
      if (item.key.find("_extra_state") != std::string::npos) {
        EXPECT_EQ(loaded.value.kind(), ValueKind::list) << name << " " << item.key;
      }
    }
  }
}

}  // namespace
}  // namespace ferry
