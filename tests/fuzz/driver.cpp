// Runs a fuzz target without libFuzzer: each corpus file, then seeded random mutations of them.
//
//   fuzz_pickle [--runs N] [--seconds S] [--seed N] [--max-bytes N] FILE...
//
// Mutations stop after N runs or S seconds, whichever comes first. The same seed and files give the
// same inputs. Before a mutation runs it is written to crash-input-SEED when --keep is given, so
// that a crash leaves its input behind.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

struct Options {
  uint64_t runs = UINT64_MAX;
  double seconds = 0;
  uint64_t seed = 1;
  size_t max_bytes = 1 << 20;
  bool keep = false;
  std::vector<std::string> files;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto next = [&] { return i + 1 < argc ? argv[++i] : "0"; };
    if (argument == "--runs") {
      options.runs = std::strtoull(next(), nullptr, 10);
      if (options.seconds == 0) options.seconds = 1e9;
    } else if (argument == "--seconds") {
      options.seconds = std::strtod(next(), nullptr);
    } else if (argument == "--seed") {
      options.seed = std::strtoull(next(), nullptr, 10);
    } else if (argument == "--max-bytes") {
      options.max_bytes = std::strtoull(next(), nullptr, 10);
    } else if (argument == "--keep") {
      options.keep = true;
    } else {
      options.files.emplace_back(argument);
    }
  }
  return options;
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& corpus, uint64_t seed, size_t max_bytes)
      : corpus_(corpus), random_(seed), max_bytes_(max_bytes) {}

  std::string next() {
    std::string bytes = pick();
    for (uint64_t changes = 1 + below(4); changes > 0; --changes) change(bytes);
    if (bytes.size() > max_bytes_) bytes.resize(max_bytes_);
    return bytes;
  }

 private:
  // Not uniform_int_distribution: its results differ between standard libraries.
  uint64_t below(uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }
  const std::string& pick() { return corpus_[below(corpus_.size())]; }

  void change(std::string& bytes) {
    const size_t at = below(bytes.size() + 1);
    const size_t run = std::min<size_t>(below(32) + 1, bytes.size() - at);
    static constexpr uint64_t kEdges[] = {
        0,         1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, uint64_t{1} << 60,
        UINT64_MAX};
    switch (below(8)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random_());
        break;
      case 2:
        bytes.erase(at, run);
        break;
      case 3:
        bytes.insert(at, bytes.substr(below(bytes.size() + 1), run));
        break;
      case 4:
        bytes.resize(at);
        break;
      case 5: {  // a number at the edge of its type
        const uint64_t edge = kEdges[below(std::size(kEdges))];
        for (size_t i = 0, n = size_t{1} << below(4); i < n && at + i < bytes.size(); ++i) {
          bytes[at + i] = static_cast<char>(edge >> 8 * i);
        }
        break;
      }
      case 6: {  // a piece of another file
        const std::string& other = pick();
        const size_t from = below(other.size() + 1);
        bytes.replace(at, run, other.substr(from, below(64)));
        break;
      }
      default:
        bytes.insert(at, 1, static_cast<char>(random_()));
    }
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_;
  size_t max_bytes_;
};

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  std::vector<std::string> corpus;
  for (const std::string& path : options.files) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot open %s\n", path.c_str());
      return 1;
    }
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    run(corpus.back());
  }
  const size_t files = corpus.size();
  if (corpus.empty()) corpus.emplace_back();
  Mutator mutator(corpus, options.seed, options.max_bytes);
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  uint64_t runs = 0;
  for (; runs < options.runs && elapsed() < options.seconds; ++runs) {
    const std::string bytes = mutator.next();
    if (options.keep) {
      std::ofstream("crash-input-" + std::to_string(options.seed), std::ios::binary) << bytes;
    }
    run(bytes);
  }
  std::printf("%zu files and %llu mutations executed in %.1f s, seed %llu\n", files,
              static_cast<unsigned long long>(runs), elapsed(),
              static_cast<unsigned long long>(options.seed));
}
