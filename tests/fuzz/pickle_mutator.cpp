// Mutations of pickles by opcode. The corpus is pickles, and torch.save's archives that hold one.
#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/pickle_opcodes.h"
#include "ckpt/format/torch/archive/zip_directory.h"
#include "tests/fuzz/bytes_file.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/pickle_dictionary.h"
#include "tests/fuzz/pickle_opcodes.h"

namespace ferry::test {
namespace {

using namespace pickle;

constexpr size_t kMostOps = 4000;
constexpr size_t kPiece = 12;  // most opcodes that are moved at a time

bool pushes_alone(uint8_t code) {
  static const std::string codes =
      std::string("GJKMNTUXBC}]IFLSV)gjh") + "\x88\x89\x8a\x8b\x8c" + "\x8d\x8e\x8f\x96";
  return codes.find(static_cast<char>(code)) != std::string::npos;
}

class PickleMutator final : public Mutator {
 public:
  PickleMutator(const std::vector<std::string>& corpus, size_t max_bytes) : max_bytes_(max_bytes) {
    for (const std::string& file : corpus) add_seed(file);
    if (seeds_.empty()) seeds_.push_back(decode_pickle("}."));
  }

  std::string input(Random& random) const override {
    const PickleProgram& seed = random.pick(seeds_);
    PickleProgram program = random.one_in(4) ? seed : shorter(seed, random.pick(seeds_));
    const uint64_t most = 1 + random.below(6);
    for (uint64_t changes = 1 + random.below(most); changes > 0; --changes) {
      change(program, random);
    }
    if (program.size() > kMostOps) program.resize(kMostOps);
    if (program.empty() || program.back().code != STOP) program.push_back({.code = STOP});
    std::string bytes = encode_pickle(program);
    if (bytes.size() > max_bytes_) bytes.resize(max_bytes_);
    return bytes;
  }

 private:
  // More inputs in the same time.
  static const PickleProgram& shorter(const PickleProgram& a, const PickleProgram& b) {
    return a.size() < b.size() ? a : b;
  }

  void add_seed(const std::string& file) {
    if (!file.starts_with("PK")) {
      seeds_.push_back(decode_pickle(file));
      return;
    }
    try {
      const BytesFile archive(reinterpret_cast<const uint8_t*>(file.data()), file.size());
      ItemReader item(archive, 0, file.size());
      for (const ZipRecord& record : read_zip_directory(item)) {
        if (!record.name.ends_with("data.pkl")) continue;
        seeds_.push_back(decode_pickle(file.substr(record.offset, record.length)));
      }
    } catch (const Error&) {
    }
  }

  void change(PickleProgram& program, Random& random) const {
    const size_t at = random.below(program.size());
    switch (random.below(16)) {
      case 0:
        return erase(program, at, 1 + random.below(3));
      case 1: {
        const PickleProgram copy = piece(program, random);
        return insert(program, at, copy);
      }
      case 2:
        if (!program.empty()) std::swap(program[at], program[random.below(program.size())]);
        return;
      case 3:
        return insert(program, at, piece(random.pick(seeds_), random));
      case 4:
        return insert(program, at, {random_op(random)});
      case 5:
      case 6:
      case 7:
        if (!program.empty()) change_argument(program[at], random);
        return;
      case 8:
      case 9:
        return replace_value(program, at, random);
      case 10:
        return insert(program, at, random.pick(changing_programs()));
      case 11:
        return insert(program, at, {memo_op(random)});
      case 12:
        return repeat(program, random);
      case 13:
        return change_code(program, at, random);
      case 14:
        return insert(program, at, call(random));
      default:
        return truncate(program, at, random);
    }
  }

  static void erase(PickleProgram& program, size_t at, size_t count) {
    const auto begin = program.begin() + static_cast<ptrdiff_t>(at);
    program.erase(begin, begin + static_cast<ptrdiff_t>(std::min(count, program.size() - at)));
  }

  static void insert(PickleProgram& program, size_t at, const PickleProgram& more) {
    program.insert(program.begin() + static_cast<ptrdiff_t>(at), more.begin(), more.end());
  }

  static PickleProgram piece(const PickleProgram& program, Random& random) {
    const size_t begin = random.below(program.size());
    const size_t count = std::min<size_t>(1 + random.below(kPiece), program.size() - begin);
    const auto from = program.begin() + static_cast<ptrdiff_t>(begin);
    return {from, from + static_cast<ptrdiff_t>(count)};
  }

  // A value in the place of the next one that is a single opcode, so that the rest still fits.
  static void replace_value(PickleProgram& program, size_t at, Random& random) {
    while (at < program.size() && !pushes_alone(program[at].code)) ++at;
    if (at == program.size()) return;
    erase(program, at, 1);
    insert(program, at, random.pick(pushing_programs()));
  }

  static void repeat(PickleProgram& program, Random& random) {
    const PickleProgram part = piece(program, random);
    const size_t at = random.below(program.size());
    const uint64_t times = random.one_in(8) ? 1 + random.below(1500) : 1 + random.below(8);
    PickleProgram all;
    for (uint64_t i = 0; i < times && all.size() < kMostOps; ++i) {
      all.insert(all.end(), part.begin(), part.end());
    }
    insert(program, at, all);
  }

  static void truncate(PickleProgram& program, size_t at, Random& random) {
    if (!random.one_in(4)) return insert(program, at, random.pick(pushing_programs()));
    program.resize(at);
  }

  // Another opcode with the same kind of argument.
  static void change_code(PickleProgram& program, size_t at, Random& random) {
    if (program.empty()) return;
    const auto kind = argument_of(program[at].code);
    for (int attempt = 0; attempt < 20; ++attempt) {
      const uint8_t code = random.pick(pickle_codes());
      if (argument_of(code) != kind) continue;
      program[at].code = code;
      return;
    }
  }

  // Calls of known constructors with arguments that are values of some kind.
  static PickleProgram call(Random& random) {
    PickleProgram program{{.code = GLOBAL, .text = std::string(random.pick(kModulesAndNames))},
                          {.code = MARK}};
    for (uint64_t arguments = random.below(8); arguments > 0; --arguments) {
      const PickleProgram& argument = random.pick(pushing_programs());
      program.insert(program.end(), argument.begin(), argument.end());
    }
    program.push_back({.code = TUPLE});
    program.push_back(
        {.code = random.one_in(4) ? static_cast<uint8_t>(NEWOBJ) : static_cast<uint8_t>(REDUCE)});
    return program;
  }

  static PickleOp memo_op(Random& random) {
    static constexpr uint8_t kCodes[] = {BINGET,  BINPUT, LONG_BINGET, LONG_BINPUT,
                                         MEMOIZE, GET,    PUT,         DUP};
    PickleOp op{.code = random.pick(kCodes)};
    op.number = random.one_in(16) ? random.pick(kNumbers) : random.below(64);
    op.text = op.code == GET || op.code == PUT ? std::to_string(op.number) : "";
    return op;
  }

  static PickleOp random_op(Random& random) {
    PickleOp op{.code = random.pick(pickle_codes())};
    change_argument(op, random);
    return op;
  }

  static void change_argument(PickleOp& op, Random& random) {
    const auto argument = argument_of(op.code);
    switch (argument.value_or(Argument::none)) {
      case Argument::none:
        return;
      case Argument::line:
        op.text = random.one_in(4) ? random.pick(kTexts) : random.pick(kLines);
        break;
      case Argument::two_lines:
        op.text = random.pick(kModulesAndNames);
        break;
      case Argument::counted1:
      case Argument::counted4:
      case Argument::counted8:
        return change_text(op, random);
      default:
        op.number = change_number(op.number, random);
        return;
    }
    std::erase(op.text, argument == Argument::line ? '\n' : '\0');
  }

  static uint64_t change_number(uint64_t number, Random& random) {
    switch (random.below(5)) {
      case 0:
        return number + 1;
      case 1:
        return number - 1;
      case 2:
        return random.below(64);
      case 3:
        return random.next();
      default:
        return random.pick(kNumbers);
    }
  }

  static void change_text(PickleOp& op, Random& random) {
    switch (random.below(8)) {
      case 0:
        op.false_length = true;
        op.number = random.one_in(2) ? random.pick(kNumbers) : op.text.size() + 1;
        return;
      case 1:
        op.text += random.pick(kTexts);
        return;
      case 2:
        if (!op.text.empty()) op.text[random.below(op.text.size())] ^= 1 << random.below(8);
        return;
      case 3:
        op.text.resize(random.below(op.text.size() + 1));
        return;
      case 4:
        op.text = std::string(random.below(300), static_cast<char>(random.next()));
        return;
      default:
        op.text = random.pick(kTexts);
    }
  }

  std::vector<PickleProgram> seeds_;
  size_t max_bytes_;
};

}  // namespace

std::unique_ptr<Mutator> make_mutator(const std::vector<std::string>& corpus, size_t max_bytes) {
  return std::make_unique<PickleMutator>(corpus, max_bytes);
}

}  // namespace ferry::test
