// A fuzzer's input as a file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/io/file_system.h"

namespace ferry::test {

class BytesFile final : public ReadableFile {
 public:
  BytesFile(const uint8_t* data, size_t size) : bytes_(std::as_bytes(std::span(data, size))) {}
  const std::string& path() const noexcept override { return path_; }
  uint64_t size() const noexcept override { return bytes_.size(); }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    if (offset > bytes_.size() || into.size() > bytes_.size() - offset) {
      fail(ErrorKind::corrupt, "read outside the file");
    }
    if (!into.empty()) std::memcpy(into.data(), bytes_.data() + offset, into.size());
  }

 private:
  std::span<const std::byte> bytes_;
  std::string path_ = "fuzz";
};

}  // namespace ferry::test
