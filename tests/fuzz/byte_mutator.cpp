// Mutations of bytes, whatever they mean.
#include <algorithm>
#include <utility>

#include "tests/fuzz/mutator.h"

namespace ferry::test {
namespace {

class ByteMutator final : public Mutator {
 public:
  ByteMutator(std::vector<std::string> corpus, size_t max_bytes)
      : corpus_(std::move(corpus)), max_bytes_(max_bytes) {
    if (corpus_.empty()) corpus_.emplace_back();
  }

  std::string input(Random& random) const override {
    std::string bytes = random.pick(corpus_);
    for (uint64_t changes = 1 + random.below(4); changes > 0; --changes) change(bytes, random);
    if (bytes.size() > max_bytes_) bytes.resize(max_bytes_);
    return bytes;
  }

 private:
  void change(std::string& bytes, Random& random) const {
    const size_t at = random.below(bytes.size() + 1);
    const size_t run = std::min<size_t>(random.below(32) + 1, bytes.size() - at);
    switch (random.below(8)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << random.below(8));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random.next());
        break;
      case 2:
        bytes.erase(at, run);
        break;
      case 3:
        bytes.insert(at, bytes.substr(random.below(bytes.size() + 1), run));
        break;
      case 4:
        bytes.resize(at);
        break;
      case 5:
        put_edge(bytes, at, random);
        break;
      case 6: {  // a piece of another file
        const std::string& other = random.pick(corpus_);
        const size_t from = random.below(other.size() + 1);
        bytes.replace(at, run, other.substr(from, random.below(64)));
        break;
      }
      default:
        bytes.insert(at, 1, static_cast<char>(random.next()));
    }
  }

  // A number at the edge of its type.
  static void put_edge(std::string& bytes, size_t at, Random& random) {
    static constexpr uint64_t kEdges[] = {
        0,         1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, uint64_t{1} << 60,
        UINT64_MAX};
    const uint64_t edge = random.pick(kEdges);
    for (size_t i = 0, n = size_t{1} << random.below(4); i < n && at + i < bytes.size(); ++i) {
      bytes[at + i] = static_cast<char>(edge >> 8 * i);
    }
  }

  std::vector<std::string> corpus_;
  size_t max_bytes_;
};

}  // namespace

std::unique_ptr<Mutator> make_mutator(const std::vector<std::string>& corpus, size_t max_bytes) {
  return std::make_unique<ByteMutator>(corpus, max_bytes);
}

}  // namespace ferry::test
