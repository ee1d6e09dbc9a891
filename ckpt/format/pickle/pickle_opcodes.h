// Opcodes of Python pickles, named as in CPython's pickletools.
#pragma once

#include <cstdint>

namespace ferry::pickle {

// clang-format off
enum Opcode : uint8_t {
  MARK = '(', STOP = '.', POP = '0', POP_MARK = '1', DUP = '2',
  BINFLOAT = 'G', BININT = 'J', BININT1 = 'K', BININT2 = 'M', NONE = 'N',
  BINPERSID = 'Q', PERSID = 'P', REDUCE = 'R',
  BINSTRING = 'T', SHORT_BINSTRING = 'U', BINUNICODE = 'X', BINBYTES = 'B', SHORT_BINBYTES = 'C',
  APPEND = 'a', BUILD = 'b', DICT = 'd', EMPTY_DICT = '}', APPENDS = 'e', GLOBAL = 'c',
  GET = 'g', BINGET = 'h', INST = 'i', LONG_BINGET = 'j', LIST = 'l', EMPTY_LIST = ']', OBJ = 'o',
  PUT = 'p', BINPUT = 'q', LONG_BINPUT = 'r', SETITEM = 's', TUPLE = 't', EMPTY_TUPLE = ')',
  SETITEMS = 'u', INT = 'I', LONG = 'L', FLOAT = 'F', STRING = 'S', UNICODE = 'V',
  PROTO = 0x80, NEWOBJ, EXT1, EXT2, EXT4, TUPLE1, TUPLE2, TUPLE3, NEWTRUE, NEWFALSE, LONG1, LONG4,
  SHORT_BINUNICODE = 0x8c, BINUNICODE8, BINBYTES8, EMPTY_SET, ADDITEMS, FROZENSET, NEWOBJ_EX,
  STACK_GLOBAL, MEMOIZE, FRAME, BYTEARRAY8, NEXT_BUFFER, READONLY_BUFFER,
};
// clang-format on

}  // namespace ferry::pickle
