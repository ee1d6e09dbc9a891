#include "tests/fuzz/pickle_opcodes.h"

#include <algorithm>

#include "ckpt/format/pickle/pickle_opcodes.h"

namespace ferry::test {
namespace {

using namespace pickle;

constexpr uint64_t kAbsurd = uint64_t{1} << 32;

int count_bytes(Argument argument) {
  return argument == Argument::counted1 ? 1 : argument == Argument::counted4 ? 4 : 8;
}

int number_bytes(Argument argument) {
  switch (argument) {
    case Argument::number1:
      return 1;
    case Argument::number2:
      return 2;
    case Argument::number4:
      return 4;
    default:
      return 8;
  }
}

bool is_counted(Argument argument) { return argument >= Argument::counted1; }

class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes) {}

  PickleProgram decode() {
    PickleProgram program;
    PickleOp op;
    while (next(op)) {
      program.push_back(op);
      if (op.code == STOP) break;
      op = {};
    }
    return program;
  }

 private:
  bool next(PickleOp& op) {
    if (bytes_.empty()) return false;
    op.code = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    const auto argument = argument_of(op.code);
    if (!argument) return false;
    if (*argument == Argument::none) return true;
    if (*argument == Argument::line) return line(op.text);
    if (*argument == Argument::two_lines) {
      std::string second;
      if (!line(op.text) || !line(second)) return false;
      (op.text += '\n') += second;
      return true;
    }
    if (!is_counted(*argument)) return number(op.number, number_bytes(*argument));
    uint64_t length = 0;
    if (!number(length, count_bytes(*argument)) || length > bytes_.size()) return false;
    op.text = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return true;
  }

  bool number(uint64_t& value, int count) {
    if (bytes_.size() < static_cast<size_t>(count)) return false;
    for (int i = 0; i < count; ++i) {
      value |= uint64_t{static_cast<uint8_t>(bytes_[static_cast<size_t>(i)])} << 8 * i;
    }
    bytes_.remove_prefix(static_cast<size_t>(count));
    return true;
  }

  bool line(std::string& text) {
    const size_t end = bytes_.find('\n');
    if (end == std::string_view::npos) return false;
    text = bytes_.substr(0, end);
    bytes_.remove_prefix(end + 1);
    return true;
  }

  std::string_view bytes_;
};

void put_number(std::string& bytes, uint64_t value, int count) {
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> 8 * i);
}

}  // namespace

std::optional<Argument> argument_of(uint8_t code) {
  switch (code) {
    case BININT1:
    case BINPUT:
    case BINGET:
    case PROTO:
    case EXT1:
      return Argument::number1;
    case BININT2:
    case EXT2:
      return Argument::number2;
    case BININT:
    case LONG_BINPUT:
    case LONG_BINGET:
    case EXT4:
      return Argument::number4;
    case FRAME:
      return Argument::number8;
    case BINFLOAT:
      return Argument::real;
    case INT:
    case LONG:
    case FLOAT:
    case STRING:
    case UNICODE:
    case PERSID:
    case GET:
    case PUT:
      return Argument::line;
    case GLOBAL:
    case INST:
      return Argument::two_lines;
    case SHORT_BINSTRING:
    case SHORT_BINBYTES:
    case SHORT_BINUNICODE:
    case LONG1:
      return Argument::counted1;
    case BINSTRING:
    case BINBYTES:
    case BINUNICODE:
    case LONG4:
      return Argument::counted4;
    case BINUNICODE8:
    case BINBYTES8:
    case BYTEARRAY8:
      return Argument::counted8;
    case MARK:
    case STOP:
    case POP:
    case POP_MARK:
    case DUP:
    case NONE:
    case BINPERSID:
    case REDUCE:
    case APPEND:
    case BUILD:
    case DICT:
    case EMPTY_DICT:
    case APPENDS:
    case LIST:
    case EMPTY_LIST:
    case OBJ:
    case SETITEM:
    case TUPLE:
    case EMPTY_TUPLE:
    case SETITEMS:
    case NEWOBJ:
    case TUPLE1:
    case TUPLE2:
    case TUPLE3:
    case NEWTRUE:
    case NEWFALSE:
    case EMPTY_SET:
    case ADDITEMS:
    case FROZENSET:
    case NEWOBJ_EX:
    case STACK_GLOBAL:
    case MEMOIZE:
    case NEXT_BUFFER:
    case READONLY_BUFFER:
      return Argument::none;
    default:
      return std::nullopt;
  }
}

const std::vector<uint8_t>& pickle_codes() {
  static const std::vector<uint8_t> codes = [] {
    std::vector<uint8_t> found;
    for (int code = 0; code < 256; ++code) {
      if (argument_of(static_cast<uint8_t>(code))) found.push_back(static_cast<uint8_t>(code));
    }
    return found;
  }();
  return codes;
}

PickleProgram decode_pickle(std::string_view bytes) { return Decoder(bytes).decode(); }

std::string encode_pickle(const PickleProgram& program) {
  std::string bytes;
  std::vector<size_t> frames;
  for (const PickleOp& op : program) {
    bytes += static_cast<char>(op.code);
    const Argument argument = argument_of(op.code).value_or(Argument::none);
    if (argument == Argument::none) continue;
    if (argument == Argument::line || argument == Argument::two_lines) {
      (bytes += op.text) += '\n';
    } else if (is_counted(argument)) {
      put_number(bytes, op.false_length ? op.number : op.text.size(), count_bytes(argument));
      bytes += op.text;
    } else {
      put_number(bytes, op.number, number_bytes(argument));
      if (op.code == FRAME && op.number < kAbsurd) frames.push_back(bytes.size());
    }
  }
  for (const size_t begin : frames) {
    std::string length;
    put_number(length, bytes.size() - begin, 8);
    bytes.replace(begin - 8, 8, length);
  }
  return bytes;
}

}  // namespace ferry::test
