// Runs of a trainer in this process, and what they print.
#pragma once

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/io/file_system.h"
#include "ckpt/memory/load.h"
#include "tests/trainer/test_device.h"
#include "trainer/arguments/complete.h"
#include "trainer/arguments/parse.h"
#include "trainer/language/language_model.h"
#include "trainer/language/source.h"
#include "trainer/language/tokenizer_facts.h"

namespace ferry::test {

namespace fs = std::filesystem;

struct Figures {
  double loss = 0, balance = 0, norm = 0;
  std::string learning_rate;
};

// By iteration. The line of a process's second iteration averages over the first, too.
inline std::map<int64_t, Figures> figures_in(const std::string& text) {
  static const std::regex kLine(
      R"(iteration +(\d+)/.*learning rate: (\S+).*lm loss: (\S+) \|(?:.*load_balancing_loss: (\S+) \|)?.*grad norm: (\S+) \|)");
  std::map<int64_t, Figures> figures;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (!std::regex_search(line, found, kLine)) continue;
    const double balance = found[4].matched ? std::stod(found[4]) : 0;
    figures[std::stoll(found[1])] = {std::stod(found[3]), balance, std::stod(found[5]), found[2]};
  }
  return figures;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "ferry-train-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Scratch() { fs::remove_all(path_); }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The arguments of a run as it takes them.
inline TrainArguments arguments_of(const std::shared_ptr<const FileSystem>& files,
                                   const std::string& text) {
  const std::vector<std::string> words = split_words(text, "the test");
  TrainArguments arguments = parse_arguments(words, *files);
  std::vector<std::string> notes;
  adopt_source_arguments(files, words, arguments, notes);
  complete_arguments(arguments, Launch{}, notes);
  adopt_tokenizer(*files, arguments);
  complete_vocabulary(arguments, arguments.vocab_size.value_or(0));
  return arguments;
}

// What a run printed, and the error that ended it; empty: none.
struct Outcome {
  std::string printed, problem;
  std::vector<std::string> problems;  // of all ranks, the first one first
};

// Its ranks are threads, each with one for its kernels.
inline Outcome outcome_of(const std::string& text,
                          const std::function<decltype(test_device)>& open_device = test_device,
                          const std::shared_ptr<const FileSystem>& files = posix_file_system()) {
  Outcome outcome;
  TrainArguments arguments;
  try {
    arguments = arguments_of(files, text);
  } catch (const Error& error) {
    outcome.problem = error.what();
    return outcome;
  }
  const ExitWatch watch(arguments, *files);
  const auto groups = thread_groups(static_cast<int>(arguments.world_size));
  const auto links = thread_links(groups);
  std::mutex mutex;
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const RankSetup setup{groups[rank],
                            links[rank],
                            files,
                            &watch,
                            1,
                            [&](std::string_view more) {
                              const std::lock_guard lock(mutex);
                              outcome.printed += more;
                            },
                            {},
                            [&, rank] { return open_device(groups[rank], links[rank]); }};
      try {
        train(arguments, setup);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        if (outcome.problem.empty()) outcome.problem = error.what();
        outcome.problems.emplace_back(error.what());
      }
    });
  }
  threads.clear();
  return outcome;
}

// What a run prints that ends well.
inline std::string run_of(const std::string& words) {
  const Outcome outcome = outcome_of(words);
  EXPECT_EQ(outcome.problem, "");
  return outcome.printed;
}

// All tensors of a checkpoint, as bytes.
inline std::map<std::string, std::string> tensors_in(const std::string& path) {
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), path);
  std::map<std::string, std::string> tensors;
  std::vector<Region> regions;
  for (const Entry& entry : checkpoint.catalog->entries) {
    std::string& bytes = tensors[entry.name];
    bytes.resize(static_cast<size_t>(entry.elements() * size_bytes(entry.dtype)));
    regions.push_back(whole_region(entry.name, entry.dtype, entry.shape, bytes.data()));
  }
  load(checkpoint, regions);
  return tensors;
}

// The names of those that differ, or that one side alone has.
inline std::vector<std::string> differences(const std::string& a, const std::string& b) {
  const auto left = tensors_in(a), right = tensors_in(b);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : left) {
    const auto other = right.find(name);
    if (other == right.end() || other->second != bytes) names.push_back(name);
  }
  for (const auto& [name, bytes] : right) {
    if (!left.contains(name)) names.push_back(name);
  }
  return names;
}

inline std::string run_fixture(const std::string& run) {
  return std::string(FERRY_FIXTURES) + "/megatron/" + run;
}

// Layouts that runs are tried at.
namespace layout {
constexpr const char* kAlone = "";
constexpr const char* kTensor = "--tensor-model-parallel-size 2 --sequence-parallel ";
constexpr const char* kWholeExperts =
    "--tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 1 ";
constexpr const char* kPipeline = "--pipeline-model-parallel-size 2 ";
constexpr const char* kInterleaved =
    "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 ";
constexpr const char* kData = "--data-parallel-size 2 --use-distributed-optimizer ";
constexpr const char* kContext = "--context-parallel-size 2 ";
constexpr const char* kExpert =
    "--data-parallel-size 2 --expert-model-parallel-size 2 --use-distributed-optimizer "
    "--dist-ckpt-optim-fully-reshardable ";
constexpr const char* kAll =
    "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
    "--data-parallel-size 2 --use-distributed-optimizer ";
}  // namespace layout

// A small run over the fixtures' corpus, but for what it loads and saves.
inline std::string common_words(const Scratch& scratch) {
  const std::string fixtures = FERRY_FIXTURES;
  return " --use-checkpoint-args --data-path " + fixtures +
         "/data/corpus_a_text_document --data-cache-path " + scratch.path("cache") +
         " --split 99,1,0 --seq-length 64 --micro-batch-size 2 --global-batch-size 8 --lr 1e-3 "
         "--min-lr 1e-4 --lr-decay-iters 100 --lr-warmup-iters 5 --lr-decay-style cosine "
         "--weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --tokenizer-type NullTokenizer "
         "--vocab-size 250 --make-vocab-size-divisible-by 32 --log-interval 1 "
         "--attention-dropout 0 --hidden-dropout 0 --train-iters 30 --seed 11 "
         "--transformer-impl local ";
}

}  // namespace ferry::test
