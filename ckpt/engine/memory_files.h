// The caller's memory as a source or a target of plans.
#pragma once

#include <cstring>
#include <span>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// `name` is for messages. The bytes are the caller's and must outlive the file.
class MemorySource final : public ReadableFile {
 public:
  MemorySource(std::string name, std::span<const std::byte> bytes)
      : name_(std::move(name)), bytes_(bytes) {}
  const std::string& path() const noexcept override { return name_; }
  uint64_t size() const noexcept override { return bytes_.size(); }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    const auto from = view(offset, into.size());
    if (!from.empty()) std::memcpy(into.data(), from.data(), from.size());
  }
  std::span<const std::byte> view(uint64_t offset, uint64_t bytes) const override {
    if (offset > bytes_.size() || bytes > bytes_.size() - offset) {
      fail(ErrorKind::internal, "{}: {} bytes at {} of {} are asked for", name_, bytes, offset,
           bytes_.size());
    }
    return bytes_.subspan(offset, bytes);
  }

 private:
  std::string name_;
  std::span<const std::byte> bytes_;
};

class MemoryTarget final : public WritableFile {
 public:
  MemoryTarget(std::string name, std::span<std::byte> bytes)
      : name_(std::move(name)), bytes_(bytes) {}
  const std::string& path() const noexcept override { return name_; }
  void write(uint64_t offset, std::span<const std::byte> from) override {
    const auto to = part(offset, from.size());
    if (!from.empty() && to.data() != from.data()) {
      std::memcpy(to.data(), from.data(), from.size());
    }
  }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    const auto from = part(offset, into.size());
    if (!from.empty()) std::memcpy(into.data(), from.data(), from.size());
  }
  void sync() override {}
  std::span<std::byte> room(uint64_t offset, uint64_t bytes) override {
    return part(offset, bytes);
  }

 private:
  std::span<std::byte> part(uint64_t offset, uint64_t bytes) const {
    if (offset > bytes_.size() || bytes > bytes_.size() - offset) {
      fail(ErrorKind::internal, "{}: {} bytes at {} of {} are written", name_, bytes, offset,
           bytes_.size());
    }
    return bytes_.subspan(offset, bytes);
  }

  std::string name_;
  std::span<std::byte> bytes_;
};

}  // namespace ferry
