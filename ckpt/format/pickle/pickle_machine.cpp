#include "ckpt/format/pickle/pickle_machine.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/pickle_opcodes.h"

namespace ferry {

using namespace pickle;  // opcodes

namespace {

constexpr uint8_t kNewestProtocol = 5;
constexpr auto kFunction = Reduction::Call::function, kNewInstance = Reduction::Call::new_instance;

}  // namespace

PickleMachine::PickleMachine(std::span<const std::byte> bytes, std::string_view what,
                             PickleLimits limits)
    : bytes_(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
      position_{what},
      builder_(bytes.size(), limits, position_),
      most_open_(limits.nodes) {}

std::shared_ptr<const Document> PickleMachine::run() {
  while (!stopped_) {
    position_.offset = at_;
    const auto opcode = static_cast<uint8_t>(take(1)[0]);
    const bool known = move_memo(opcode) || push_scalar(opcode) || push_text(opcode) ||
                       build_container(opcode) || call(opcode) || move_stack(opcode) ||
                       push_line(opcode);
    if (!known) position_.corrupt("unknown opcode");
    if (std::max(stack_.size(), marks_.size()) > most_open_) {
      fail(ErrorKind::exhausted, "{}: pickle at byte {}: more than {} values at once",
           position_.what, position_.offset, most_open_);
    }
  }
  return builder_.finish(pop());
}

std::string_view PickleMachine::take(uint64_t bytes) {
  if (bytes > bytes_.size() - at_) {
    position_.corrupt("it ends " + std::to_string(bytes_.size() - at_) +
                      " bytes further on where " + std::to_string(bytes) + " are needed");
  }
  const auto taken = bytes_.substr(at_, bytes);
  at_ += bytes;
  return taken;
}

std::string_view PickleMachine::take_line() {
  const size_t end = bytes_.find('\n', at_);
  if (end == std::string_view::npos) position_.corrupt("a line has no end");
  const auto line = bytes_.substr(at_, end - at_);
  at_ = end + 1;
  return line;
}

uint32_t PickleMachine::take_global() {
  const auto module = take_line();
  const auto name = take_line();
  return builder_.global(module, name);
}

uint64_t PickleMachine::take_number(int bytes) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t number = 0;
  std::memcpy(&number, take(bytes).data(), bytes);
  return number;
}

uint32_t PickleMachine::pop() {
  const uint32_t node = top();
  stack_.pop_back();
  return node;
}

uint32_t PickleMachine::top(size_t below) const {
  if (stack_.size() - floor() <= below) position_.corrupt("its stack holds too few values");
  return stack_[stack_.size() - 1 - below];
}

std::span<const uint32_t> PickleMachine::since_mark() const {
  if (marks_.empty()) position_.corrupt("a mark is missing");
  return std::span(stack_).subspan(marks_.back());
}

void PickleMachine::drop_mark() {
  stack_.resize(marks_.back());
  marks_.pop_back();
}

void PickleMachine::put(uint64_t index) {
  const uint32_t node = top();
  if (index < memo_.size()) {
    memo_[index] = node;
  } else if (index == memo_.size()) {
    memo_.push_back(node);
    if (!scattered_memo_.empty()) scattered_memo_.erase(index);
  } else {
    scattered_memo_[index] = node;
  }
}

void PickleMachine::get(uint64_t index) {
  if (index < memo_.size()) return push(memo_[index]);
  const auto at = scattered_memo_.find(index);
  if (at == scattered_memo_.end()) position_.corrupt("it refers to a value that it never stored");
  push(at->second);
}

bool PickleMachine::move_memo(uint8_t opcode) {
  switch (opcode) {
    case MEMOIZE:
      put(memo_.size() + scattered_memo_.size());
      return true;
    case BINPUT:
      put(take_number(1));
      return true;
    case LONG_BINPUT:
      put(take_number(4));
      return true;
    case PUT:
      put(take_decimal());
      return true;
    case BINGET:
      get(take_number(1));
      return true;
    case LONG_BINGET:
      get(take_number(4));
      return true;
    case GET:
      get(take_decimal());
      return true;
    default:
      return false;
  }
}

bool PickleMachine::push_scalar(uint8_t opcode) {
  switch (opcode) {
    case NONE:
      push(builder_.none());
      return true;
    case NEWTRUE:
      push(builder_.boolean(true));
      return true;
    case NEWFALSE:
      push(builder_.boolean(false));
      return true;
    case BININT1:
      push(builder_.integer(static_cast<int64_t>(take_number(1))));
      return true;
    case BININT2:
      push(builder_.integer(static_cast<int64_t>(take_number(2))));
      return true;
    case BININT:
      push(builder_.integer(static_cast<int32_t>(take_number(4))));
      return true;
    case LONG1:
      push_long(take(take_number(1)));
      return true;
    case LONG4: {
      const auto length = static_cast<int32_t>(take_number(4));
      if (length < 0) position_.corrupt("an integer has a negative length");
      push_long(take(static_cast<uint64_t>(length)));
      return true;
    }
    case BINFLOAT:  // the one big-endian number of the format
      push(builder_.real(std::bit_cast<double>(__builtin_bswap64(take_number(8)))));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::push_text(uint8_t opcode) {
  const auto bytes = [&](int length_bytes) {
    push(builder_.text_node(ValueKind::bytes, std::string(take(take_number(length_bytes)))));
    return true;
  };
  const auto string = [&](int length_bytes) {
    push(builder_.string(take(take_number(length_bytes))));
    return true;
  };
  switch (opcode) {
    case SHORT_BINUNICODE:
      return string(1);
    case BINUNICODE:
      return string(4);
    case BINUNICODE8:
      return string(8);
    case SHORT_BINBYTES:
      return bytes(1);
    case BINBYTES:
      return bytes(4);
    case BINBYTES8:
      return bytes(8);
    case BYTEARRAY8:
      push(builder_.byte_array(std::string(take(take_number(8)))));
      return true;
    case SHORT_BINSTRING:
      push_python2_string(std::string(take(take_number(1))));
      return true;
    case BINSTRING:
      push_python2_string(std::string(take(take_number(4))));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::build_container(uint8_t opcode) {
  const auto fixed_tuple = [&](size_t count) {
    top(count - 1);
    const uint32_t node = builder_.tuple(std::span(stack_).last(count));
    stack_.resize(stack_.size() - count);
    push(node);
    return true;
  };
  const auto replace_marked = [&](uint32_t node) {
    drop_mark();
    push(node);
    return true;
  };
  switch (opcode) {
    case EMPTY_TUPLE:
      push(builder_.tuple({}));
      return true;
    case EMPTY_LIST:
      push(builder_.container(ValueKind::list));
      return true;
    case EMPTY_DICT:
      push(builder_.container(ValueKind::dict));
      return true;
    case EMPTY_SET:
      push(builder_.container(ValueKind::set));
      return true;
    case TUPLE1:
      return fixed_tuple(1);
    case TUPLE2:
      return fixed_tuple(2);
    case TUPLE3:
      return fixed_tuple(3);
    case TUPLE:
      return replace_marked(builder_.tuple(since_mark()));
    case FROZENSET:
      return replace_marked(builder_.frozen_set(since_mark()));
    case LIST: {
      const auto items = since_mark();
      const uint32_t node = builder_.container(ValueKind::list);
      builder_.append(node, items);
      return replace_marked(node);
    }
    case DICT: {
      const auto items = since_mark();
      const uint32_t node = builder_.container(ValueKind::dict);
      builder_.set_items(node, items);
      return replace_marked(node);
    }
    case APPEND: {
      const uint32_t item = pop();
      builder_.append(top(), {&item, 1});
      return true;
    }
    case SETITEM: {
      const uint32_t value = pop(), key = pop();
      const uint32_t pair[] = {key, value};
      builder_.set_items(top(), pair);
      return true;
    }
    case APPENDS:
    case ADDITEMS:
    case SETITEMS: {
      const auto items = since_mark();
      const size_t below = marks_.back();
      const size_t outer = marks_.size() > 1 ? marks_[marks_.size() - 2] : 0;
      if (below <= outer) position_.corrupt("its stack holds no container below the mark");
      const uint32_t container = stack_[below - 1];
      opcode == SETITEMS ? builder_.set_items(container, items) : builder_.append(container, items);
      drop_mark();
      return true;
    }
    default:
      return false;
  }
}

bool PickleMachine::call(uint8_t opcode) {
  switch (opcode) {
    case STACK_GLOBAL: {
      const uint32_t name = pop(), module = pop();
      push(builder_.global(module, name));
      return true;
    }
    case GLOBAL:
      push(take_global());
      return true;
    case REDUCE:
    case NEWOBJ: {
      const uint32_t args = pop(), callable = pop();
      push(builder_.construct(callable, args, opcode == REDUCE ? kFunction : kNewInstance));
      return true;
    }
    case NEWOBJ_EX: {
      const uint32_t keywords = pop(), args = pop(), callable = pop();
      push(builder_.construct_with_keywords(callable, args, keywords));
      return true;
    }
    case BUILD: {
      const uint32_t state = pop();
      builder_.set_state(top(), state);
      return true;
    }
    case OBJ:
    case INST: {
      auto items = since_mark();
      if (opcode == OBJ && items.empty()) position_.corrupt("a class is missing");
      const uint32_t callable = opcode == OBJ ? items[0] : take_global();
      items = items.subspan(opcode == OBJ ? 1 : 0);
      const auto call = items.empty() ? kNewInstance : kFunction;  // as Python 2 did
      const uint32_t node = builder_.construct(callable, builder_.tuple(items), call);
      drop_mark();
      push(node);
      return true;
    }
    case BINPERSID:
      push(builder_.persistent_id(pop()));
      return true;
    case PERSID:
      push(builder_.persistent_id(builder_.string(take_line())));
      return true;
    case EXT1:
    case EXT2:
    case EXT4:
      position_.unsupported(
          "it uses the extension registry of the program that wrote it; save the "
          "checkpoint again without copyreg.add_extension");
    case NEXT_BUFFER:
    case READONLY_BUFFER:
      position_.unsupported(
          "it refers to buffers outside itself; save it again without a "
          "buffer_callback");
    default:
      return false;
  }
}

bool PickleMachine::move_stack(uint8_t opcode) {
  switch (opcode) {
    case PROTO:
      if (const auto protocol = take_number(1); protocol > kNewestProtocol) {
        position_.unsupported("protocol " + std::to_string(protocol) + " is newer than 5");
      }
      return true;
    case FRAME:
      if (take_number(8) > bytes_.size() - at_)
        position_.corrupt("a frame is longer than the file");
      return true;
    case MARK:
      marks_.push_back(stack_.size());
      return true;
    case POP:
      if (stack_.size() == floor() && !marks_.empty()) {
        marks_.pop_back();
      } else {
        pop();
      }
      return true;
    case POP_MARK:
      since_mark();
      drop_mark();
      return true;
    case DUP:
      push(top());
      return true;
    case STOP:
      stopped_ = true;
      return true;
    default:
      return false;
  }
}

}  // namespace ferry
