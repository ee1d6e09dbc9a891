#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/io/tar_file_system.h"

namespace ferry {
namespace {

constexpr uint64_t kBlock = 512;
constexpr uint64_t kMostHeaderBytes = 64 << 10;  // of a long name, or of a pax header
constexpr size_t kMostNameBytes = 1024;
constexpr int64_t kMostDepth = 16;
constexpr size_t kMostMembers = size_t{1} << 20;

using TarBlock = std::array<char, kBlock>;

std::string_view text_field(const TarBlock& block, size_t at, size_t bytes) {
  const std::string_view field(block.data() + at, bytes);
  return field.substr(0, std::min(field.find('\0'), bytes));
}

// Octal digits with blanks around them; of large numbers GNU's base 256.
std::optional<uint64_t> number_field(const TarBlock& block, size_t at, size_t bytes) {
  uint64_t value = 0;
  if (static_cast<unsigned char>(block[at]) == 0x80) {
    for (size_t i = 1; i < bytes; ++i) {
      if (value >> 55) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(block[at + i]);
    }
    return value;
  }
  std::string_view digits = text_field(block, at, bytes);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  if (digits.empty()) return 0;
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, value, 8);
  return error == std::errc() && rest == end ? std::optional(value) : std::nullopt;
}

// The sum of all bytes, those of the sum itself counted as blanks.
bool has_checksum(const TarBlock& block) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
  }
  const auto stored = number_field(block, 148, 8);
  return stored && *stored == sum;
}

bool is_empty(const TarBlock& block) {
  return std::ranges::all_of(block, [](char c) { return c == 0; });
}

class TarReader {
 public:
  explicit TarReader(const ReadableFile& file) : file_(file) {}

  std::vector<TarMember> read() {
    while (file_.size() - at_ >= kBlock) {
      const TarBlock block = next_block();
      if (is_empty(block)) return std::move(members_);
      if (!has_checksum(block)) refuse("a header contradicts its checksum");
      take(block);
    }
    refuse("it is cut off: its last blocks are missing");
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail(ErrorKind::corrupt, "{}: tar archive: {} (at byte {})", file_.path(), what, at_);
  }

  [[noreturn]] void refuse_sparse() const {
    fail(ErrorKind::unsupported,
         "{}: tar archive: holds a sparse file (at byte {}); extract it (tar -xf) and give the "
         "folder",
         file_.path(), at_);
  }

  TarBlock next_block() {
    TarBlock block;
    file_.read(at_, std::as_writable_bytes(std::span(block)));
    return block;
  }

  // The header at at_, and what follows it; at_ is the next one's place then.
  void take(const TarBlock& block) {
    const auto stored = number_field(block, 124, 12);
    if (!stored) refuse("a size is not a number");
    const char type = block[156];
    const bool is_file = type == '0' || type == '\0' || type == '7';
    const uint64_t bytes = is_file && size_ ? *size_ : *stored;
    const bool has_data = std::string_view("123456").find(type) == std::string_view::npos;
    const uint64_t data = at_ + kBlock;
    if (has_data && bytes > file_.size() - data) refuse("a member is larger than what follows");
    if (type == 'L') {
      name_ = read_text(data, bytes);
      name_->resize(std::min(name_->find('\0'), name_->size()));
    } else if (type == 'S') {
      refuse_sparse();
    } else if (type == 'x') {
      read_pax(read_text(data, bytes));
    } else if (type != 'g' && type != 'K') {
      if (is_file) add(block, data, bytes);
      name_.reset();
      size_.reset();
    }
    const uint64_t blocks = has_data ? bytes / kBlock + (bytes % kBlock != 0) : 0;
    if (blocks * kBlock > file_.size() - data) refuse("it is cut off in a member");
    at_ = data + blocks * kBlock;
  }

  std::string read_text(uint64_t data, uint64_t bytes) {
    if (bytes > kMostHeaderBytes) refuse("a name is longer than any file's");
    std::string text(bytes, '\0');
    file_.read(data, std::as_writable_bytes(std::span(text)));
    return text;
  }

  // Lines of "LENGTH KEY=VALUE", the length that of the whole line.
  void read_pax(std::string_view text) {
    while (!text.empty() && text[0] != '\0') {
      size_t length = 0;
      const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), length);
      const auto digits = static_cast<size_t>(rest - text.data());
      if (error != std::errc() || length < digits + 2 || length > text.size() ||
          text[digits] != ' ' || text[length - 1] != '\n') {
        refuse("a pax header has a malformed line");
      }
      const std::string_view line = text.substr(digits + 1, length - digits - 2);
      const size_t equals = std::min(line.find('='), line.size());
      const std::string_view key = line.substr(0, equals);
      const std::string_view value = line.substr(std::min(equals + 1, line.size()));
      if (key == "path") name_ = value;
      if (key == "size") {
        uint64_t size = 0;
        const auto [end, wrong] = std::from_chars(value.data(), value.data() + value.size(), size);
        if (wrong != std::errc() || end != value.data() + value.size()) {
          refuse("a pax header's size is not a number");
        }
        size_ = size;
      }
      if (key.starts_with("GNU.sparse")) refuse_sparse();
      text.remove_prefix(length);
    }
  }

  void add(const TarBlock& block, uint64_t data, uint64_t bytes) {
    std::string name = name_ ? *name_ : std::string(text_field(block, 0, 100));
    const std::string_view prefix = text_field(block, 345, 155);
    const bool is_ustar = std::string_view(block.data() + 257, 6) == std::string_view("ustar\0", 6);
    if (!name_ && is_ustar && !prefix.empty()) name = fmt::format("{}/{}", prefix, name);
    while (name.starts_with("./")) name.erase(0, 2);
    if (name.empty() || name.ends_with('/')) return;  // a folder, as old tars write it
    join_untrusted(file_.path(), name);
    if (name.size() > kMostNameBytes || std::ranges::count(name, '/') > kMostDepth) {
      refuse("a name is longer than any checkpoint's file has");
    }
    const auto [place, is_new] = places_.emplace(name, members_.size());
    if (!is_new) {
      members_[place->second] = {std::move(name), data, bytes};
      return;
    }
    if (members_.size() == kMostMembers) {
      fail(ErrorKind::exhausted, "{}: tar archive: more than {} members", file_.path(),
           kMostMembers);
    }
    members_.push_back({std::move(name), data, bytes});
  }

  const ReadableFile& file_;
  uint64_t at_ = 0;
  std::optional<std::string> name_;  // of the next member, from a header before it
  std::optional<uint64_t> size_;
  std::vector<TarMember> members_;
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace

bool is_tar(const ReadableFile& file) {
  if (file.size() < kBlock) return false;
  TarBlock block;
  file.read(0, std::as_writable_bytes(std::span(block)));
  return !is_empty(block) && has_checksum(block);
}

std::vector<TarMember> read_tar(const ReadableFile& file) { return TarReader(file).read(); }

}  // namespace ferry
