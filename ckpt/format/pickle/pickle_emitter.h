// The bytes of a pickle, opcode by opcode, with the memo of what has been written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ckpt/base/box.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry {

class PickleEmitter {
 public:
  /// Begins a pickle of protocol 2.
  PickleEmitter();

  /// Ends it and hands it over.
  std::string finish() &&;
  uint64_t size() const noexcept { return bytes_.size(); }
  /// Makes room for so many bytes, so that a long pickle is not moved as it grows.
  void reserve(uint64_t bytes) { bytes_.reserve(bytes); }

  void opcode(uint8_t opcode) { bytes_ += static_cast<char>(opcode); }
  void boolean(bool value);
  void integer(int64_t value);
  void big_integer(std::string_view digits);  // decimal or 0x..., may be negative
  void real(double value);

  // What follows is put into the memo, as Python does; all but these return its index.
  uint32_t string(std::string_view utf8);         // invalid when it is not
  uint32_t bytes(std::string_view content);       // latin-1 text and the codec's name
  uint32_t byte_array(std::string_view content);  // of bytes
  uint32_t put();                                 // what is on top of the stack
  void get(uint32_t memo);

  /// A class or function; `name` may be that of a nested one ("Outer.Inner").
  uint32_t global(std::string_view module, std::string_view name);
  /// A string that is used in many places: written once.
  void constant(std::string_view utf8);
  /// A tuple of integers.
  void integers(const Dims& values);
  /// torch._utils._rebuild_tensor_v2 or _v3 and its arguments: a tensor, once REDUCE follows.
  void tensor_call(const StoredTensor& tensor, std::string_view storage_name);
  /// Ends a tuple of the `count` values on top of the stack (a mark below them when more than
  /// three); without putting it into the memo.
  void end_tuple(size_t count);
  static bool needs_mark(size_t count) noexcept { return count > 3; }

 private:
  void number(uint64_t value, int bytes);  // little-endian
  void long_bytes(std::string_view little_endian);
  void line(std::string_view text);

  std::string bytes_;
  uint32_t next_memo_ = 0;
  std::unordered_map<std::string, uint32_t> globals_, constants_;  // memo indices
};

}  // namespace ferry
