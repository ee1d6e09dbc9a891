// Runs a fuzz target without libFuzzer: each corpus file, then seeded random mutations of them.
//
//   fuzz_pickle [--runs N] [--seconds S] [--seed N] [--first N] [--max-bytes N] FILE...
//
// Mutations stop after N runs or S seconds, whichever comes first. The same seed, number and files
// give the same input: --first N begins with that number. The inputs run in a process of their own.
// When one crashes it, takes more than five seconds or makes it grow beyond a gibibyte, the program
// leaves it in finding-SEED-NUMBER, says so and fails; the target run on that file repeats it.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/mutator.h"
#include "tests/fuzz/watch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using namespace ferry::test;

struct Options {
  uint64_t runs = UINT64_MAX;
  double seconds = 0;
  uint64_t seed = 1, first = 0;
  size_t max_bytes = 1 << 20;
  WatchLimits limits;
  std::vector<std::string> files;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto next = [&] { return i + 1 < argc ? argv[++i] : "0"; };
    const auto number = [&] { return std::strtoull(next(), nullptr, 10); };
    if (argument == "--runs") {
      options.runs = number();
      if (options.seconds == 0) options.seconds = 1e9;
    } else if (argument == "--seconds") {
      options.seconds = std::strtod(next(), nullptr);
    } else if (argument == "--seed") {
      options.seed = number();
    } else if (argument == "--first") {
      options.first = number();
    } else if (argument == "--max-bytes") {
      options.max_bytes = number();
    } else if (argument == "--limit-seconds") {
      options.limits.seconds = std::strtod(next(), nullptr);
    } else if (argument == "--limit-mib") {
      options.limits.memory_bytes = number() << 20;
    } else {
      options.files.emplace_back(argument);
    }
  }
  return options;
}

std::string mutation(const Mutator& mutator, uint64_t seed, uint64_t number) {
  Random both(Random(seed).next() ^ number);
  return mutator.input(both);
}

class Fuzzer {
 public:
  Fuzzer(const Options& options, const std::vector<std::string>& corpus)
      : options_(options), corpus_(corpus), mutator_(make_mutator(corpus, options.max_bytes)) {}

  int run() {
    const auto start = std::chrono::steady_clock::now();
    const Outcome outcome =
        run_watched([&](Progress& progress) { run_all(progress); }, options_.limits);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const uint64_t files = std::min<uint64_t>(outcome.inputs, corpus_.size());
    const uint64_t mutations = outcome.inputs - files;
    std::printf(
        "%llu files and %llu mutations executed in %.1f s (%.1f s of the processor), seed "
        "%llu, from %llu on\n",
        static_cast<unsigned long long>(files), static_cast<unsigned long long>(mutations), seconds,
        outcome.processor_seconds, static_cast<unsigned long long>(options_.seed),
        static_cast<unsigned long long>(options_.first));
    if (outcome.finding.empty()) return 0;
    report(outcome);
    return 1;
  }

 private:
  void run_all(Progress& progress) const {
    for (const std::string& file : corpus_) run_one(file, progress);
    const auto start = std::chrono::steady_clock::now();
    const auto is_over = [&] {
      const auto now = std::chrono::steady_clock::now();
      return std::chrono::duration<double>(now - start).count() >= options_.seconds;
    };
    for (uint64_t i = 0; i < options_.runs && !is_over(); ++i) {
      run_one(mutation(*mutator_, options_.seed, options_.first + i), progress);
    }
  }

  void run_one(const std::string& bytes, Progress& progress) const {
    std::atomic_ref(progress.begun).fetch_add(1);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    check_memory(options_.limits);
    std::atomic_ref(progress.done).fetch_add(1);
  }

  void report(const Outcome& outcome) const {
    if (outcome.at_the_end) {
      std::fprintf(stderr, "finding: %s outside of an input\n", outcome.finding.c_str());
      return;
    }
    if (outcome.inputs <= corpus_.size()) {
      std::fprintf(stderr, "finding: %s on the file %s\n", outcome.finding.c_str(),
                   options_.files[outcome.inputs - 1].c_str());
      return;
    }
    const uint64_t number = options_.first + outcome.inputs - 1 - corpus_.size();
    const std::string name =
        "finding-" + std::to_string(options_.seed) + "-" + std::to_string(number);
    std::ofstream(name, std::ios::binary) << mutation(*mutator_, options_.seed, number);
    std::fprintf(stderr,
                 "finding: %s on mutation %llu of seed %llu, saved as %s. Repeat it "
                 "by running this program on that file, or with --seed %llu --first %llu --runs 1 "
                 "and the same files\n",
                 outcome.finding.c_str(), static_cast<unsigned long long>(number),
                 static_cast<unsigned long long>(options_.seed), name.c_str(),
                 static_cast<unsigned long long>(options_.seed),
                 static_cast<unsigned long long>(number));
  }

  const Options& options_;
  const std::vector<std::string>& corpus_;
  std::unique_ptr<Mutator> mutator_;
};

}  // namespace

int main(int argc, char** argv) {
  // Inputs are many and small: what one has freed is for the next one, not for the system.
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 64 << 20);
  const Options options = parse(argc, argv);
  std::vector<std::string> corpus;
  for (const std::string& path : options.files) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot open %s\n", path.c_str());
      return 1;
    }
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return Fuzzer(options, corpus).run();
}
