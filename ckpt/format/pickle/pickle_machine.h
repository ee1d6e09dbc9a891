// The stack machine that a pickle is a program of.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ckpt/format/pickle/pickle_builder.h"

namespace ferry {

class PickleMachine {
 public:
  PickleMachine(std::span<const std::byte> bytes, std::string_view what, PickleLimits limits);

  /// Runs to STOP.
  std::shared_ptr<const Document> run();
  uint64_t consumed() const noexcept { return at_; }

 private:
  // One step a group of opcodes; false when the opcode is of another group.
  bool push_scalar(uint8_t opcode);
  bool push_text(uint8_t opcode);
  bool push_line(uint8_t opcode);  // protocol 0: arguments are lines
  bool build_container(uint8_t opcode);
  bool call(uint8_t opcode);
  bool move_memo(uint8_t opcode);
  bool move_stack(uint8_t opcode);

  std::string_view take(uint64_t bytes);
  std::string_view take_line();
  uint64_t take_number(int bytes);  // little-endian
  uint64_t take_decimal();          // a line
  uint32_t take_global();           // two lines
  void push_long(std::string_view little_endian);
  void push_int_line(std::string_view text);
  void push_long_line(std::string_view text);
  void push_float_line(std::string_view text);
  void push_quoted(std::string_view text);
  void push_raw_unicode(std::string_view text);
  void push_python2_string(std::string bytes);

  void push(uint32_t node) { stack_.push_back(node); }
  uint32_t pop();
  uint32_t top(size_t below = 0) const;
  std::span<const uint32_t> since_mark() const;  // what is above the last mark
  void drop_mark();                              // with all above it
  size_t floor() const noexcept { return marks_.empty() ? 0 : marks_.back(); }

  void put(uint64_t index);
  void get(uint64_t index);

  std::string_view bytes_;
  uint64_t at_ = 0;
  PicklePosition position_;
  PickleBuilder builder_;
  uint64_t most_open_;  // values on the stack, and marks
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;                              // heights of the stack
  std::vector<uint32_t> memo_;                             // indices that came in order
  std::unordered_map<uint64_t, uint32_t> scattered_memo_;  // the others
  bool stopped_ = false;
};

}  // namespace ferry
