// Runs that Megatron-LM began go on as it goes on itself, at whatever layout.
//
// fixtures/continuations/<run>.log has Megatron-LM's own lines of iterations 6 to 25, from the
// checkpoint fixtures/megatron/<run> of iteration 5, fp32 on one GPU.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <regex>
#include <thread>

#include "ckpt/base/error.h"
#include "ckpt/io/file_system.h"
#include "ckpt/open.h"
#include "trainer/arguments/complete.h"
#include "trainer/arguments/namespace.h"
#include "trainer/arguments/parse.h"
#include "trainer/run/rank_trainer.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

struct Figures {
  double loss = 0, balance = 0, norm = 0;
  std::string learning_rate;
};

// By iteration. The line of a process's second iteration averages over the first, too.
std::map<int64_t, Figures> figures_in(const std::string& text) {
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

std::string read_text(const std::string& path) {
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

// What a run prints; its ranks are threads.
std::string run_of(const std::string& words) {
  const auto files = posix_file_system();
  TrainArguments arguments = parse_arguments(split_words(words, "the test"), *files);
  std::vector<std::string> notes;
  if (arguments.use_checkpoint_args) {
    const Checkpoint checkpoint = open_checkpoint(files, arguments.load);
    adopt_checkpoint_arguments(arguments, checkpoint.args.value, checkpoint.path, notes);
  }
  complete_arguments(arguments, Launch{}, notes);
  settle_vocabulary(arguments, arguments.vocab_size.value_or(0));
  const auto groups = thread_groups(static_cast<int>(arguments.world_size));
  const auto links = thread_links(groups);
  std::string printed, problem;
  std::mutex mutex;
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < groups.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const RankSetup setup{
            groups[rank], links[rank], files, nullptr, 1, [&](std::string_view text) {
              const std::lock_guard lock(mutex);
              printed += text;
            }};
        try {
          train(arguments, setup);
        } catch (const Error& error) {
          const std::lock_guard lock(mutex);
          problem = error.what();
        }
      });
    }
  }
  EXPECT_EQ(problem, "");
  return printed;
}

struct Case {
  const char* run;
  const char* layout;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.run << " " << one.layout; }

const std::map<std::string, std::string> kModels{
    {"f32_qwen3", "--qk-layernorm --norm-epsilon 1e-6 --rotary-base 1000000"},
    {"f32_qwen3moe",
     "--qk-layernorm --norm-epsilon 1e-6 --rotary-base 1000000 --moe-router-topk 2 "
     "--moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2"},
    {"f32_deepseek",
     "--multi-latent-attention --qk-layernorm --norm-epsilon 1e-6 --q-lora-rank 24 "
     "--kv-lora-rank 16 --qk-head-dim 16 --qk-pos-emb-head-dim 8 --v-head-dim 16 "
     "--rotary-scaling-factor 1 --moe-router-topk 2 --moe-router-pre-softmax "
     "--moe-router-score-function sigmoid --moe-router-enable-expert-bias "
     "--moe-router-topk-scaling-factor 2.5 --moe-shared-expert-intermediate-size 48 "
     "--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4"}};

class Continue : public testing::TestWithParam<Case> {
 protected:
  std::string words(const std::string& from, const std::string& layout, int64_t until) const {
    const std::string fixtures = FERRY_FIXTURES;
    return "--load " + from + " --save " + scratch_.path("run") +
           " --use-checkpoint-args --data-path " + fixtures +
           "/data/corpus_a_text_document --data-cache-path " + scratch_.path("cache") +
           " --split 99,1,0 --seq-length 64 --max-position-embeddings 128 --micro-batch-size 2 "
           "--global-batch-size 8 --lr 1e-3 --min-lr 1e-4 --lr-decay-iters 100 "
           "--lr-warmup-iters 5 --lr-decay-style cosine --weight-decay 0.1 --clip-grad 1.0 "
           "--adam-beta2 0.95 --tokenizer-type NullTokenizer --vocab-size 250 "
           "--make-vocab-size-divisible-by 32 --eval-iters 0 --log-interval 1 "
           "--attention-dropout 0 --hidden-dropout 0 --train-iters 30 --seed 11 "
           "--save-interval 10 --transformer-impl local --exit-interval " +
           std::to_string(until) + " " + kModels.at(GetParam().run) + " " + layout;
  }

  // Stopped and resumed from its own checkpoint, a run prints what one without a stop does.
  void compare_with_a_stop() const {
    const std::string source = std::string(FERRY_FIXTURES) + "/megatron/" + GetParam().run;
    const auto whole = figures_in(run_of(words(source, GetParam().layout, 25)));
    fs::remove_all(scratch_.path("run"));
    run_of(words(source, GetParam().layout, 15));
    const auto resumed = figures_in(run_of(words(scratch_.path("run"), GetParam().layout, 25)));
    ASSERT_EQ(resumed.size(), 10u);
    for (const auto& [iteration, figures] : resumed) {
      if (iteration == 17) continue;  // the average of two iterations
      EXPECT_EQ(figures.loss, whole.at(iteration).loss) << iteration;
      EXPECT_EQ(figures.norm, whole.at(iteration).norm) << iteration;
      EXPECT_EQ(figures.learning_rate, whole.at(iteration).learning_rate) << iteration;
    }
  }

  const Scratch scratch_;
};

TEST_P(Continue, AsMegatronDoes) {
  const std::string fixtures = FERRY_FIXTURES;
  const std::string run = GetParam().run;
  const auto theirs = figures_in(read_text(fixtures + "/continuations/" + run + ".log"));
  ASSERT_EQ(theirs.size(), 20u);
  const auto ours = figures_in(run_of(words(fixtures + "/megatron/" + run, GetParam().layout, 25)));
  ASSERT_EQ(ours.size(), 20u);
  for (const auto& [iteration, expected] : theirs) {
    const Figures& figures = ours.at(iteration);
    EXPECT_NEAR(figures.loss / expected.loss, 1, 1e-6) << iteration;
    EXPECT_NEAR(figures.balance, expected.balance, 1e-5) << iteration;
    EXPECT_NEAR(figures.norm, expected.norm, 1.1e-3) << iteration;  // three digits are printed
    EXPECT_EQ(figures.learning_rate, expected.learning_rate) << iteration;
  }
}

TEST_P(Continue, AfterAStop) { compare_with_a_stop(); }

// What Megatron-LM computes with random numbers of its own.
class Stopped : public Continue {};

TEST_P(Stopped, GoesOnAsIfItHadNot) { compare_with_a_stop(); }

constexpr const char* kDropout =
    "--hidden-dropout 0.1 --attention-dropout 0.1 --tensor-model-parallel-size 2 "
    "--sequence-parallel";
constexpr const char* kAlone = "";
constexpr const char* kTensor = "--tensor-model-parallel-size 2 --sequence-parallel";
constexpr const char* kPipeline = "--pipeline-model-parallel-size 2";
constexpr const char* kInterleaved =
    "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1";
constexpr const char* kData = "--data-parallel-size 2 --use-distributed-optimizer";
constexpr const char* kContext = "--context-parallel-size 2";
constexpr const char* kExpert =
    "--data-parallel-size 2 --expert-model-parallel-size 2 --use-distributed-optimizer "
    "--dist-ckpt-optim-fully-reshardable";
constexpr const char* kAll =
    "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
    "--data-parallel-size 2 --use-distributed-optimizer";

INSTANTIATE_TEST_SUITE_P(Peers, Stopped, testing::Values(Case{"f32_qwen3", kDropout}));
INSTANTIATE_TEST_SUITE_P(
    Peers, Continue,
    testing::Values(Case{"f32_qwen3", kAlone}, Case{"f32_qwen3", "--tensor-model-parallel-size 2"},
                    Case{"f32_qwen3", kTensor}, Case{"f32_qwen3", kPipeline},
                    Case{"f32_qwen3", kInterleaved}, Case{"f32_qwen3", kData},
                    Case{"f32_qwen3", kContext}, Case{"f32_qwen3", kAll},
                    Case{"f32_qwen3moe", kAlone}, Case{"f32_qwen3moe", kTensor},
                    Case{"f32_qwen3moe", kExpert}, Case{"f32_qwen3moe", kContext},
                    Case{"f32_qwen3moe", kPipeline}, Case{"f32_deepseek", kAlone},
                    Case{"f32_deepseek", kTensor}, Case{"f32_deepseek", kExpert},
                    Case{"f32_deepseek", kPipeline}));

}  // namespace
}  // namespace ferry
