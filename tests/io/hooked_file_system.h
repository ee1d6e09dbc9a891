// A file system in which something happens before or after a call, and, where asked for, without
// locks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/io/forwarding_file_system.h"

namespace ferry {

class HookedFileSystem final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;

  /// `call`: "status", "list", "open", "create", "rename", "remove_all" or "open_lockable"; `path`:
  /// its first one. What a hook does to the inner file system calls none.
  using Hook = std::function<void(std::string_view call, const std::string& path)>;
  Hook before = [](std::string_view, const std::string&) {};
  Hook after = before;
  bool has_locks = true;

  PathStatus status(const std::string& path) const override {
    return hooked("status", path, [&] { return inner().status(path); });
  }
  std::vector<std::string> list(const std::string& path) const override {
    return hooked("list", path, [&] { return inner().list(path); });
  }
  std::shared_ptr<const ReadableFile> open(const std::string& path) const override {
    return hooked("open", path, [&] { return inner().open(path); });
  }
  std::unique_ptr<WritableFile> create(const std::string& path, uint64_t bytes) const override {
    return hooked("create", path, [&] { return inner().create(path, bytes); });
  }
  void rename(const std::string& from, const std::string& to) const override {
    hooked("rename", from, [&] { return inner().rename(from, to), 0; });
  }
  void remove_all(const std::string& path) const override {
    hooked("remove_all", path, [&] { return inner().remove_all(path), 0; });
  }
  std::unique_ptr<LockableFile> open_lockable(const std::string& path,
                                              LockMode mode) const override {
    return hooked("open_lockable", path, [&] {
      if (!has_locks) fail(ErrorKind::unsupported, "{}: no locks", path);
      return inner().open_lockable(path, mode);
    });
  }

 private:
  template <class Call>
  std::invoke_result_t<Call> hooked(std::string_view name, const std::string& path,
                                    const Call& call) const {
    before(name, path);
    std::invoke_result_t<Call> result = call();
    after(name, path);
    return result;
  }
};

}  // namespace ferry
