// What the tests of writers share: a run's state without changes, and plans run in memory.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/run.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/megatron/state/run_state.h"
#include "tests/io/memory_file_system.h"

namespace ferry::test {

/// Every tensor of the catalog as it is.
inline RunState state_of_entries(const Catalog& catalog) {
  RunState state;
  state.source = SharedCatalog::borrow(catalog);
  for (uint32_t i = 0; i < catalog.entries.size(); ++i) {
    const Entry& entry = catalog.entries[i];
    state.tensors.push_back(
        {entry.name, entry.dtype, entry.shape, {{i}, {copy_all(entry.shape)}, {}}, entry.role});
  }
  return state;
}

/// Tensors in memory that together are one catalog: one file, row-major, one after another.
class MemoryTensors {
 public:
  MemoryTensors() { catalog_.file_system = files_; }

  void add(std::string name, DType dtype, Dims shape, Role role, std::string bytes) {
    Extent extent;
    extent.offset = content_.size();
    extent.length = bytes.size();
    Chunk chunk{{Box::whole(shape)}, {}, extent};
    catalog_.entries.push_back({std::move(name), dtype, std::move(shape), {chunk}, role});
    content_ += bytes;
  }

  const Catalog& catalog() {
    files_->put("tensors", content_);
    catalog_.files = {{"tensors", content_.size()}};
    return catalog_;
  }

 private:
  std::shared_ptr<MemoryFileSystem> files_ = std::make_shared<MemoryFileSystem>();
  std::string content_;
  Catalog catalog_;
};

/// Runs a plan and writes its small files into `folder`.
inline void write(const PlannedOutput& output, const std::shared_ptr<MemoryFileSystem>& files,
                  const std::string& folder) {
  check(output.plan);
  std::set<std::string> folders = {""};
  files->create_folder(folder);
  for (const FileInfo& file : output.plan.target.files) {
    const size_t slash = file.path.rfind('/');
    const std::string below = slash == std::string::npos ? "" : file.path.substr(0, slash);
    if (folders.insert(below).second) files->create_folder(folder + "/" + below);
  }
  EngineOptions options;
  options.threads = 1;
  options.memory_bytes = 1 << 20;
  run(output.plan, *files, folder, options);
  for (const auto& [path, content] : output.small_files) {
    files->put(folder + "/" + path, content);
  }
}

/// Every tensor of `expected` is in `found`, with the same elements; and nothing else is.
inline void expect_same_tensors(const Catalog& found, const Catalog& expected) {
  std::set<std::string> names;
  const EntryIndex index(found);
  for (const Entry& entry : expected.entries) {
    const Entry* other = index.find(entry.name);
    ASSERT_NE(other, nullptr) << entry.name;
    EXPECT_EQ(other->dtype, entry.dtype) << entry.name;
    ASSERT_EQ(other->shape, entry.shape) << entry.name;
    EXPECT_EQ(other->role, entry.role) << entry.name;
    ASSERT_NO_THROW(check_chunks(found, *other)) << entry.name;
    EXPECT_TRUE(read_tensor(found, *other, 1 << 28) == read_tensor(expected, entry, 1 << 28))
        << entry.name;
  }
  EXPECT_EQ(found.entries.size(), expected.entries.size());
}

}  // namespace ferry::test
