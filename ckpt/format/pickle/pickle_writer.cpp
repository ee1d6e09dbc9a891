#include "ckpt/format/pickle/pickle_writer.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/format/pickle/pickle_emitter.h"
#include "ckpt/format/pickle/pickle_opcodes.h"

namespace ferry {

using namespace pickle;  // opcodes

namespace {

using Kind = ValueKind;
using Range = ValueNode::Range;
using Step = Reduction::Step;

constexpr uint32_t kNoMemo = UINT32_MAX;
constexpr uint32_t kBatch = 1000;  // elements between two marks, as in CPython
constexpr uint64_t kAlwaysAllowed = 1 << 20;

// A pickle is written by a machine with a stack of what is still to do, the next on top.
class DocumentWriter {
 public:
  DocumentWriter(const Document& document, const StorageNames& names, PickleEmitter& out)
      : document_(document), names_(names), out_(out), memo_(document.nodes.size(), kNoMemo) {
    // A value is mentioned about as often as its document has slots. Ranges that nodes share are
    // written for each of them, and so are the parts of a tuple on a cycle: that must end.
    budget_ = 16 * (document.slots.size() + document.nodes.size()) + kAlwaysAllowed;
    most_bytes_ = out.size() + 16 * budget_;
    for (const std::string& text : document.texts) most_bytes_ += 16 * text.size();
  }

  void write(uint32_t root) {
    push({Task::value, root});
    while (!tasks_.empty()) step();
  }

 private:
  struct Task {
    enum What : uint8_t {
      value,      // node
      opcode,     // byte
      values,     // slots [node, end)
      append,     // slots [node, end), to a list
      set_items,  // slots [node, end), pairs, into a dict
      put,        // what was made into the memo, as `node`
      made,       // the same, and what is done to it afterwards
      storage,    // the key of the storage that the persistent id `node` names
      end_tuple,  // of `end` values, as `node`
    };
    What what;
    uint32_t node = 0;
    uint32_t end = 0;
    bool begun = false;
  };
  static constexpr uint32_t kNobody = UINT32_MAX;  // what is not a node of the document

  const ValueNode& at(uint32_t node) const { return document_.nodes[node]; }
  const std::string& text(uint32_t node) const { return document_.texts[at(node).text]; }

  void push(Task task) { tasks_.push_back(task); }
  void push_opcode(uint8_t code) { push({Task::opcode, code}); }

  void step() {
    Task& task = tasks_.back();
    switch (task.what) {
      case Task::values:
        if (task.node == task.end) return tasks_.pop_back();
        return save(document_.slots[task.node++]);
      case Task::append:
      case Task::set_items:
        return batch(task);
      default:
        break;
    }
    const Task done = task;
    tasks_.pop_back();
    switch (done.what) {
      case Task::value:
        return save(done.node);
      case Task::put:
        put(done.node, 1);
        return;
      case Task::made:
        if (put(done.node, 1)) push_steps(done.node);
        return;
      case Task::storage:
        return save_storage_key(done.node);
      case Task::end_tuple:
        return end_tuple(done.node, done.end);
      default:
        return out_.opcode(static_cast<uint8_t>(done.node));
    }
  }

  // One element is added by itself, more in batches after a mark.
  void batch(Task& task) {
    const uint32_t width = task.what == Task::append ? 1 : 2;
    const uint32_t left = (task.end - task.node) / width;
    if (left == 0) return tasks_.pop_back();
    const bool is_list = task.what == Task::append;
    const bool alone = left == 1 && !task.begun;
    const uint32_t begin = task.node, count = std::min(left, kBatch) * width;
    task.begun = true;
    task.node += count;
    if (!alone) out_.opcode(MARK);
    push_opcode(alone ? (is_list ? APPEND : SETITEM) : (is_list ? APPENDS : SETITEMS));
    push({Task::values, begin, begin + count});
  }

  // Memoises what is on top of the stack, made of `count` values, as `node`; or replaces it by what
  // was stored under that name while its own parts were written (a cycle through a tuple, or
  // through the arguments of a call): false then.
  bool put(uint32_t node, uint32_t count) {
    if (node != kNobody && memo_[node] != kNoMemo) {
      for (uint32_t i = 0; i < count; ++i) out_.opcode(POP);
      out_.get(memo_[node]);
      return false;
    }
    const uint32_t memo = out_.put();
    if (node != kNobody) memo_[node] = memo;
    return true;
  }

  void end_tuple(uint32_t node, uint32_t count) {
    if (node != kNobody && memo_[node] != kNoMemo) {
      if (!PickleEmitter::needs_mark(count)) {
        put(node, count);
        return;
      }
      out_.opcode(POP_MARK);
      return out_.get(memo_[node]);
    }
    out_.end_tuple(count);
    if (count > 0) put(node, 1);
  }

  void push_tuple(uint32_t node, Range items) {
    push({Task::end_tuple, node, items.count});
    push({Task::values, items.begin, items.begin + items.count});
    if (PickleEmitter::needs_mark(items.count)) push_opcode(MARK);
  }

  void save(uint32_t node) {
    if (--budget_ == 0 || out_.size() > most_bytes_) {
      fail(ErrorKind::exhausted,
           "a value's parts refer to each other so often that its pickle would grow far beyond it; "
           "no checkpoint does that");
    }
    if (memo_[node] != kNoMemo) return out_.get(memo_[node]);
    switch (at(node).kind) {
      case Kind::none:
        return out_.opcode(NONE);
      case Kind::boolean:
        return out_.boolean(at(node).number != 0);
      case Kind::integer:
        return out_.integer(at(node).number);
      case Kind::real:
        return out_.real(std::bit_cast<double>(at(node).number));
      case Kind::big_integer:
        return out_.big_integer(text(node));
      case Kind::string:
        memo_[node] = out_.string(text(node));
        return;
      case Kind::bytes:
        memo_[node] = at(node).number ? out_.byte_array(text(node)) : out_.bytes(text(node));
        return;
      case Kind::global:
        return save_global(node);
      case Kind::list:
        out_.opcode(EMPTY_LIST);
        put(node, 1);
        return push({Task::append, at(node).items.begin, end_of(at(node).items)});
      case Kind::tuple:
        return save_tuple(node);
      case Kind::set:
        return save_set(node);
      case Kind::dict:
        return save_dict(node);
      case Kind::object:
        return save_object(node);
      case Kind::tensor:
        return save_tensor(node);
    }
  }

  static uint32_t end_of(Range range) { return range.begin + range.count; }

  void save_global(uint32_t node) {
    const std::string_view name = text(node);
    const auto module = static_cast<size_t>(at(node).number);
    memo_[node] = out_.global(name.substr(0, module), name.substr(module + 1));
  }

  const Reduction& reduction(uint32_t node) const {
    return document_.reductions[at(node).reduction()];
  }

  void save_tuple(uint32_t node) {
    const Reduction& how = reduction(node);
    if (how.call == Reduction::Call::literal) return push_tuple(node, at(node).items);
    push({Task::put, node});
    push_opcode(REDUCE);
    push({Task::end_tuple, kNobody, 1});
    push_tuple(kNobody, at(node).items);
    push({Task::value, how.callable});
  }

  // set([...])
  void save_set(uint32_t node) {
    const Reduction& how = reduction(node);
    push({Task::put, node});
    push_opcode(REDUCE);
    push({Task::end_tuple, kNobody, 1});
    push({Task::append, at(node).items.begin, end_of(at(node).items)});
    push({Task::put, kNobody});
    push_opcode(EMPTY_LIST);
    if (how.call == Reduction::Call::literal) {
      out_.global("builtins", "set");
    } else {
      push({Task::value, how.callable});
    }
  }

  void save_dict(uint32_t node) {
    const Reduction& how = reduction(node);
    push({Task::made, node});
    if (how.call == Reduction::Call::literal) return push_opcode(EMPTY_DICT);
    push_opcode(REDUCE);
    push_tuple(kNobody, how.own_arguments);
    push({Task::value, how.callable});
  }

  void save_object(uint32_t node) {
    const Reduction& how = reduction(node);
    Range arguments = how.own_arguments;
    if (!how.apart) {
      arguments = at(node).items;
      arguments.count = std::min(arguments.count, how.arguments);
    }
    const bool is_tuple = how.call == Reduction::Call::persistent_id_tuple;
    if (is_tuple || how.call == Reduction::Call::persistent_id) {
      return save_persistent_id(node, arguments, is_tuple);
    }
    const bool has_keywords = !how.steps.empty() && how.steps[0].kind == Step::Kind::keywords;
    push({Task::made, node});
    push_opcode(has_keywords                                ? NEWOBJ_EX
                : how.call == Reduction::Call::new_instance ? NEWOBJ
                                                            : REDUCE);
    if (has_keywords) push_dict(at(node).pairs.begin, how.steps[0].count);
    push_tuple(kNobody, arguments);
    push({Task::value, how.callable});
  }

  // A dict of `pairs` pairs from slot `begin` on, that is not a node of the document.
  void push_dict(uint32_t begin, uint32_t pairs) {
    push({Task::set_items, begin, begin + 2 * pairs});
    push({Task::put, kNobody});
    push_opcode(EMPTY_DICT);
  }

  // What was done to a dict or object after it had been made; the last one is pushed first.
  void push_steps(uint32_t node) {
    if (at(node).kind == Kind::dict) return push_content(node);
    const Reduction& how = reduction(node);
    uint32_t item = end_of(at(node).items), pair = end_of(at(node).pairs);
    for (size_t i = how.steps.size(); i-- > 0;) {
      const Step& step = how.steps[i];
      if (step.kind == Step::Kind::items) {
        push({Task::append, item - step.count, item});
        item -= step.count;
        continue;
      }
      const uint32_t count =
          step.count == Reduction::kRest ? (pair - at(node).pairs.begin) / 2 : step.count;
      pair -= 2 * count;
      push_step(how, i, pair, count);
    }
  }

  // The pairs of a dict, and its own state.
  void push_content(uint32_t node) {
    if (at(node).items.count > 0) {
      push_opcode(BUILD);
      push({Task::value, document_.slots[at(node).items.begin]});
    }
    push({Task::set_items, at(node).pairs.begin, end_of(at(node).pairs)});
  }

  void push_step(const Reduction& how, size_t step, uint32_t pair, uint32_t count) {
    switch (how.steps[step].kind) {
      case Step::Kind::pairs:
        return push({Task::set_items, pair, pair + 2 * count});
      case Step::Kind::state:
        push_opcode(BUILD);
        return push_dict(pair, count);
      case Step::Kind::slots: {
        const bool has_attributes = step > 0 && how.steps[step - 1].kind == Step::Kind::attributes;
        push_opcode(BUILD);
        push({Task::end_tuple, kNobody, 2});
        push_dict(pair, count);
        if (!has_attributes) push_opcode(NONE);
        return;
      }
      case Step::Kind::attributes:
        return push_dict(pair, count);
      case Step::Kind::other_state:
        push_opcode(BUILD);
        return push({Task::value, document_.slots[pair + 1]});
      default:
        return;  // keywords are part of the call
    }
  }

  // The id is made anew for every mention, as Python does.
  void save_persistent_id(uint32_t node, Range id, bool is_tuple) {
    push_opcode(BINPERSID);
    if (!is_tuple) return push({Task::value, document_.slots[id.begin]});
    if (!storage_id(document_.root_at(node))) return push_tuple(kNobody, id);
    push({Task::end_tuple, kNobody, id.count});
    push({Task::values, id.begin + 3, end_of(id)});
    push({Task::storage, node});
    push({Task::values, id.begin, id.begin + 2});
    push_opcode(MARK);
  }

  void save_storage_key(uint32_t node) {
    const StorageId id = *storage_id(document_.root_at(node));
    out_.constant(storage_name(id.key, id.bytes));
  }

  std::string storage_name(std::string_view key, uint64_t bytes) const {
    return names_ ? names_(key, bytes) : std::string(key);
  }

  void save_tensor(uint32_t node) {
    const Reduction& how = reduction(node);
    push({Task::made, node});
    push_opcode(REDUCE);
    if (how.call != Reduction::Call::literal) {
      push_tuple(kNobody, how.own_arguments);
      return push({Task::value, how.callable});
    }
    const StoredTensor& tensor = document_.tensors[static_cast<size_t>(at(node).number)];
    const int64_t bytes =
        checked_multiply(tensor.storage_elements, size_bytes(tensor.dtype), "a storage");
    out_.tensor_call(tensor, storage_name(tensor.storage_key, static_cast<uint64_t>(bytes)));
  }

  const Document& document_;
  const StorageNames& names_;
  PickleEmitter& out_;
  std::vector<uint32_t> memo_;  // by node
  std::vector<Task> tasks_;
  uint64_t budget_ = 0, most_bytes_ = 0;
};

}  // namespace

void write_value(const Value& value, const StorageNames& names, PickleEmitter& out) {
  if (!value.document()) return out.opcode(NONE);
  DocumentWriter(*value.document(), names, out).write(value.node());
}

std::string write_pickle(const Value& value, const StorageNames& names) {
  PickleEmitter out;
  write_value(value, names, out);
  return std::move(out).finish();
}

}  // namespace ferry
