// What the tests of the asynchronous saver share: a run in memory whose files are created only
// while a gate is open.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "ckpt/memory/async_saver.h"
#include "ckpt/io/forwarding_file_system.h"
#include "tests/io/memory_file_system.h"
#include "tests/memory/random_model.h"

namespace ferry::test {

/// Creating a data file waits while the gate is closed.
class GatedFileSystem final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;

  void close() { set(false); }
  void open_gate() { set(true); }

  std::unique_ptr<WritableFile> create(const std::string& path, uint64_t bytes) const override {
    if (path.ends_with(".distcp")) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_open_; });
    }
    return inner().create(path, bytes);
  }

 private:
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    is_open_ = open;
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool is_open_ = true;
};

class Async : public testing::Test {
 protected:
  Async() { memory_->create_folder("runs"); }

  std::string tracker() const { return memory_->get("runs/a/latest_checkpointed_iteration.txt"); }

  const std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
  const std::shared_ptr<GatedFileSystem> gated_ = std::make_shared<GatedFileSystem>(memory_);
  const RandomModel model_ = random_model(1);
};

}  // namespace ferry::test
