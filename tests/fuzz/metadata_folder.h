// A folder with a `.metadata` of the fuzzer's making.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/io/forwarding_file_system.h"
#include "tests/fuzz/bytes_file.h"
#include "tests/fuzz/finding.h"
#include "tests/io/memory_file_system.h"

namespace ferry::test {

/// The bytes given are the folder's `.metadata`. Next to it are Megatron-LM's metadata.json and, by
/// any name that begins with "__", data files of 1 MiB, of zeros. A path that leaves the folder is
/// a finding. No folder to write into.
class MetadataFolder final : public ForwardingFileSystem {
 public:
  static constexpr const char* kPath = "run/iter_0000005";
  static constexpr uint64_t kDataBytes = 1 << 20;

  MetadataFolder(const uint8_t* data, size_t size)
      : ForwardingFileSystem(std::make_shared<MemoryFileSystem>()), data_(data), size_(size) {}

  PathStatus status(const std::string& path) const override {
    const std::string_view bytes = bytes_of(path);
    return bytes.data() ? PathStatus{PathKind::file, bytes.size()} : PathStatus{};
  }
  std::vector<std::string> list(const std::string& path) const override {
    if (path != kPath) return {};
    return {".metadata", "metadata.json", "__0_0.distcp"};
  }
  std::shared_ptr<const ReadableFile> open(const std::string& path) const override {
    const std::string_view bytes = bytes_of(path);
    if (!bytes.data()) fail(ErrorKind::not_found, "{} is not there", path);
    return std::make_shared<BytesFile>(reinterpret_cast<const uint8_t*>(bytes.data()),
                                       bytes.size());
  }

 private:
  // No data for what is not there.
  std::string_view bytes_of(const std::string& path) const {
    static const std::string zeros(kDataBytes, '\0');
    static constexpr std::string_view kConfig =
        R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1})";
    const bool inside = path.starts_with("run") && (path + "/").find("/../") == std::string::npos;
    if (!inside) finding("'" + path + "' leaves the folder");
    const std::string name = path.substr(path.rfind('/') + 1);
    if (name == ".metadata") return {reinterpret_cast<const char*>(data_), size_};
    if (name == "metadata.json") return kConfig;
    if (name.starts_with("__")) return zeros;
    return {};
  }

  const uint8_t* data_;
  size_t size_;
};

}  // namespace ferry::test
