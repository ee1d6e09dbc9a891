#include "ckpt/format/pickle/pickle_emitter.h"

#include <algorithm>
#include <bit>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/base/utf8.h"
#include "ckpt/format/pickle/pickle_opcodes.h"

namespace ferry {

using namespace pickle;  // opcodes

namespace {

// Longer decimal numbers, which only protocols 0 and 1 have, stay text: converting them takes time
// that is quadratic in their length.
constexpr size_t kMostDecimalDigits = 4300;

// Modules that Python 3 renamed; protocol 2 knows them by their old names.
std::string_view old_module(std::string_view module) {
  if (module == "builtins") return "__builtin__";
  if (module == "copyreg") return "copy_reg";
  return module;
}

// Magnitude of a number in base 256, lowest byte first.
std::string magnitude_of_decimal(std::string_view digits) {
  std::string magnitude;
  for (const char digit : digits) {
    unsigned carry = static_cast<unsigned>(digit - '0');
    for (char& byte : magnitude) {
      carry += static_cast<uint8_t>(byte) * 10u;
      byte = static_cast<char>(carry);
      carry >>= 8;
    }
    if (carry > 0) magnitude += static_cast<char>(carry);
  }
  return magnitude;
}

unsigned hex_value(char digit) {
  return static_cast<unsigned>(digit <= '9' ? digit - '0' : (digit | 32) - 'a' + 10);
}

std::string magnitude_of_hexadecimal(std::string_view digits) {
  std::string magnitude;
  for (size_t end = digits.size(); end > 0; end -= std::min<size_t>(end, 2)) {
    const unsigned high = end > 1 ? hex_value(digits[end - 2]) : 0;
    magnitude += static_cast<char>(high << 4 | hex_value(digits[end - 1]));
  }
  while (!magnitude.empty() && magnitude.back() == 0) magnitude.pop_back();
  return magnitude;
}

// Two's complement, as few bytes as hold the sign.
std::string twos_complement(std::string magnitude, bool negative) {
  magnitude += '\0';
  if (negative) {
    unsigned carry = 1;
    for (char& byte : magnitude) {
      carry += static_cast<uint8_t>(~byte);
      byte = static_cast<char>(carry);
      carry >>= 8;
    }
  }
  const auto sign_of = [](char byte) { return static_cast<uint8_t>(byte) >> 7; };
  while (magnitude.size() > 1) {
    const auto last = static_cast<uint8_t>(magnitude.back());
    const int below = sign_of(magnitude[magnitude.size() - 2]);
    if (last != (below ? 0xFF : 0)) break;
    magnitude.pop_back();
  }
  return magnitude;
}

}  // namespace

PickleEmitter::PickleEmitter() { bytes_ = "\x80\x02"; }

std::string PickleEmitter::finish() && {
  opcode(STOP);
  return std::move(bytes_);
}

void PickleEmitter::number(uint64_t value, int bytes) {
  char little_endian[8];
  for (int i = 0; i < 8; ++i) little_endian[i] = static_cast<char>(value >> 8 * i);
  bytes_.append(little_endian, static_cast<size_t>(bytes));
}

void PickleEmitter::line(std::string_view text) { (bytes_ += text) += '\n'; }

void PickleEmitter::boolean(bool value) { opcode(value ? NEWTRUE : NEWFALSE); }

void PickleEmitter::integer(int64_t value) {
  if (value >= 0 && value <= UINT8_MAX) {
    opcode(BININT1);
    number(static_cast<uint64_t>(value), 1);
  } else if (value >= 0 && value <= UINT16_MAX) {
    opcode(BININT2);
    number(static_cast<uint64_t>(value), 2);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    opcode(BININT);
    number(static_cast<uint64_t>(value), 4);
  } else {
    int bytes = 8;
    while (value >> (8 * bytes - 9) == value >> 63) --bytes;
    opcode(LONG1);
    number(static_cast<uint64_t>(bytes), 1);
    number(static_cast<uint64_t>(value), bytes);
  }
}

void PickleEmitter::long_bytes(std::string_view little_endian) {
  if (little_endian.size() > INT32_MAX) {
    fail(ErrorKind::unsupported, "an integer of {} bytes is too large for a pickle",
         little_endian.size());
  }
  const bool is_short = little_endian.size() <= UINT8_MAX;
  opcode(is_short ? LONG1 : LONG4);
  number(little_endian.size(), is_short ? 1 : 4);
  bytes_ += little_endian;
}

void PickleEmitter::big_integer(std::string_view digits) {
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  if (digits.starts_with("0x")) {
    return long_bytes(twos_complement(magnitude_of_hexadecimal(digits.substr(2)), negative));
  }
  if (digits.size() <= kMostDecimalDigits) {
    return long_bytes(twos_complement(magnitude_of_decimal(digits), negative));
  }
  opcode(LONG);
  if (negative) bytes_ += '-';
  (bytes_ += digits) += "L\n";
}

void PickleEmitter::real(double value) {
  opcode(BINFLOAT);
  number(__builtin_bswap64(std::bit_cast<uint64_t>(value)), 8);
}

uint32_t PickleEmitter::put() {
  if (next_memo_ <= UINT8_MAX) {
    opcode(BINPUT);
    number(next_memo_, 1);
  } else {
    opcode(LONG_BINPUT);
    number(next_memo_, 4);
  }
  return next_memo_++;
}

void PickleEmitter::get(uint32_t memo) {
  opcode(memo <= UINT8_MAX ? BINGET : LONG_BINGET);
  number(memo, memo <= UINT8_MAX ? 1 : 4);
}

uint32_t PickleEmitter::string(std::string_view utf8) {
  if (utf8_prefix(utf8, true) != utf8.size()) {
    fail(ErrorKind::invalid, "'{}' is not UTF-8, and text of a checkpoint must be",
         to_utf8(utf8.substr(0, 200)));
  }
  const bool is_long = utf8.size() > UINT32_MAX;
  opcode(is_long ? BINUNICODE8 : BINUNICODE);
  number(utf8.size(), is_long ? 8 : 4);
  bytes_ += utf8;
  return put();
}

void PickleEmitter::constant(std::string_view utf8) {
  const auto [at, is_new] = constants_.try_emplace(std::string(utf8), 0);
  if (!is_new) return get(at->second);
  at->second = string(utf8);
}

uint32_t PickleEmitter::bytes(std::string_view content) {
  if (content.empty()) {
    global("builtins", "bytes");
    opcode(EMPTY_TUPLE);
  } else {
    global("_codecs", "encode");
    std::string text;
    text.reserve(content.size() + content.size() / 2);
    for (const char byte : content) append_utf8(text, static_cast<uint8_t>(byte));
    string(text);
    constant("latin1");
    opcode(TUPLE2);
    put();
  }
  opcode(REDUCE);
  return put();
}

uint32_t PickleEmitter::byte_array(std::string_view content) {
  global("builtins", "bytearray");
  if (content.empty()) {
    opcode(EMPTY_TUPLE);
  } else {
    bytes(content);
    opcode(TUPLE1);
    put();
  }
  opcode(REDUCE);
  return put();
}

uint32_t PickleEmitter::global(std::string_view module, std::string_view name) {
  module = old_module(module);
  if (module.find('\n') != std::string_view::npos || name.find('\n') != std::string_view::npos) {
    fail(ErrorKind::unsupported, "the name of a class has a line break in it");
  }
  const std::string key = (std::string(module) += '\n') += name;
  if (const auto known = globals_.find(key); known != globals_.end()) {
    get(known->second);
    return known->second;
  }
  // A nested one is getattr(getattr(outermost, "..."), "...").
  const auto dots = std::count(name.begin(), name.end(), '.');
  for (auto i = dots; i > 0; --i) global("builtins", "getattr");
  size_t end = std::min(name.find('.'), name.size());
  opcode(GLOBAL);
  line(module);
  line(name.substr(0, end));
  uint32_t memo = put();
  globals_.try_emplace((std::string(module) += '\n') += name.substr(0, end), memo);
  while (end < name.size()) {
    const size_t begin = end + 1;
    end = std::min(name.find('.', begin), name.size());
    string(name.substr(begin, end - begin));
    opcode(TUPLE2);
    put();
    opcode(REDUCE);
    memo = put();
  }
  globals_[key] = memo;
  return memo;
}

void PickleEmitter::integers(const Dims& values) {
  if (values.empty()) return opcode(EMPTY_TUPLE);
  if (needs_mark(values.size())) opcode(MARK);
  for (const int64_t value : values) integer(value);
  end_tuple(values.size());
  put();
}

void PickleEmitter::tensor_call(const StoredTensor& tensor, std::string_view storage_name) {
  const std::string_view storage_class = torch_storage_name(tensor.dtype);
  const bool is_typed = !storage_class.empty();
  const int64_t element_bytes = is_typed ? 1 : size_bytes(tensor.dtype);
  global("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  opcode(MARK);
  opcode(MARK);
  constant("storage");
  global(is_typed ? "torch" : "torch.storage", is_typed ? storage_class : "UntypedStorage");
  constant(storage_name);
  constant("cpu");
  integer(checked_multiply(tensor.storage_elements, element_bytes, "a storage"));
  opcode(TUPLE);
  put();
  opcode(BINPERSID);
  integer(tensor.storage_offset);
  integers(tensor.shape);
  integers(tensor.strides);
  boolean(false);  // requires_grad
  global("collections", "OrderedDict");
  opcode(EMPTY_TUPLE);
  opcode(REDUCE);
  put();
  if (!is_typed) global("torch", torch_name(tensor.dtype));
  opcode(TUPLE);
  put();
}

void PickleEmitter::end_tuple(size_t count) {
  static constexpr uint8_t kOpcodes[] = {EMPTY_TUPLE, TUPLE1, TUPLE2, TUPLE3};
  opcode(needs_mark(count) ? static_cast<uint8_t>(TUPLE) : kOpcodes[count]);
}

}  // namespace ferry
