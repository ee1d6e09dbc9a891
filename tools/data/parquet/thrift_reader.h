// Reads Thrift's compact protocol, in which Parquet's metadata are written: fields one after
// another, each with its number and type; those that nobody asks for are passed over.
//
// Source: Apache Thrift, doc/specs/thrift-compact-protocol.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ferry::tool {

enum class ThriftType : uint8_t {
  stop = 0,
  yes = 1,
  no = 2,
  byte = 3,
  i16 = 4,
  i32 = 5,
  i64 = 6,
  real = 7,
  binary = 8,
  list = 9,
  set = 10,
  map = 11,
  structure = 12,
  uuid = 13
};

struct ThriftField {
  int64_t id = 0;
  ThriftType type = ThriftType::stop;
};

struct ThriftList {
  uint64_t size = 0;
  ThriftType type = ThriftType::stop;  // of its elements
};

/// Errors are corrupt, without a file's name; an end in the middle of a value is ThriftEnd.
class ThriftReader {
 public:
  explicit ThriftReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t at() const noexcept { return at_; }

  /// Calls `take(field)` for each field of a structure, which reads the field's value and returns
  /// true, or returns false: then it is passed over.
  template <typename Take>
  void structure(const Take& take) {
    const Depth depth(*this);
    for (ThriftField field; next_field(field);) {
      if (!take(field)) skip(field.type);
    }
  }
  /// Calls `take()` for each element of a list of structures.
  template <typename Take>
  void structures(const ThriftField& field, const Take& take) {
    const ThriftList list = read_list(field);
    if (list.size > 0) expect(list.type, ThriftType::structure);
    for (uint64_t i = 0; i < list.size; ++i) take();
  }

  int64_t integer(const ThriftField& field);  // i16, i32 or i64
  bool boolean(const ThriftField& field);
  std::string_view text(const ThriftField& field);
  std::string_view text();  // an element of a list
  ThriftList read_list(const ThriftField& field);
  static void expect(ThriftType found, ThriftType expected);

 private:
  // Structures in each other.
  class Depth {
   public:
    explicit Depth(ThriftReader& reader);
    ~Depth() { --reader_.depth_; }

   private:
    ThriftReader& reader_;
  };

  bool next_field(ThriftField& field);
  uint8_t byte();
  uint64_t varint();
  int64_t zigzag();
  void skip(ThriftType type);
  void skip_elements(ThriftType type, uint64_t count);
  void pass(uint64_t bytes);

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  int depth_ = 0;
};

/// The bytes end before the value does.
struct ThriftEnd {};

}  // namespace ferry::tool
