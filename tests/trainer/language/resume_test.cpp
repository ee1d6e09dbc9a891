// A run that is stopped and goes on is the run that never was: every bit of what it saves, every
// figure of what it prints.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "ckpt/megatron/state/edit.h"
#include "ckpt/megatron/state/norm_names.h"
#include "ckpt/store/run_folder.h"
#include "tests/random_cases.h"
#include "tests/trainer/checkpoint/saved_again.h"

namespace ferry::test {
namespace {

struct ResumedRun {
  const char* run;
  std::string layout;
};

void PrintTo(const ResumedRun& one, std::ostream* out) { *out << one.run << " " << one.layout; }

const std::string kTorch = "--ckpt-format torch ";

class Resume : public testing::TestWithParam<ResumedRun> {
 protected:
  // From the fixture, or from what `name` has saved itself.
  std::string words(const std::string& name, int64_t until) const {
    const std::string own = scratch_.path(name);
    return "--load " + (fs::exists(own) ? own : run_fixture(GetParam().run)) + " --save " + own +
           common_words(scratch_) + "--eval-iters 0 --save-interval 10 --exit-interval " +
           std::to_string(until) + " " + GetParam().layout;
  }

  const Scratch scratch_;
};

TEST_P(Resume, IsTheUnbrokenRun) {
  const auto whole = figures_in(run_of(words("whole", 20)));
  auto broken = figures_in(run_of(words("broken", 7)));
  for (const int64_t until : {13, 20}) {
    const int64_t from = broken.rbegin()->first;
    for (const auto& [iteration, figures] : figures_in(run_of(words("broken", until)))) {
      if (iteration != from + 2) broken[iteration] = figures;  // an average of two iterations
    }
  }
  ASSERT_EQ(whole.size(), 15u);
  for (const auto& [iteration, figures] : broken) {
    EXPECT_EQ(figures.loss, whole.at(iteration).loss) << iteration;
    EXPECT_EQ(figures.norm, whole.at(iteration).norm) << iteration;
    EXPECT_EQ(figures.learning_rate, whole.at(iteration).learning_rate) << iteration;
  }
  EXPECT_THAT(differences(scratch_.path("whole"), scratch_.path("broken")), testing::IsEmpty());
}

// With the names that Megatron-LM's local modules have for norms.
std::map<std::string, std::string> as_local(const std::map<std::string, std::string>& tensors) {
  std::vector<std::string_view> keys;
  for (const auto& [name, bytes] : tensors) keys.push_back(model_name(name));
  const NormNames norms(keys, false);
  std::map<std::string, std::string> result;
  for (const auto& [name, bytes] : tensors) {
    const std::string_view key = model_name(name);
    result[name.substr(0, name.size() - key.size()) + norms.of(key)] = bytes;
  }
  return result;
}

// What a rank loads, whatever layout saved it, is what is there: saved again, it is the same. Rank
// folders have the names of the modules that the arguments say.
TEST_P(Resume, LoadsEveryBit) {
  save_again(words("again", 20));
  const auto saved = tensors_in(scratch_.path("again"));
  const auto loaded = tensors_in(run_fixture(GetParam().run));
  const bool folders = GetParam().layout.starts_with(kTorch);
  for (const auto& [name, bytes] : folders ? as_local(loaded) : loaded) {
    EXPECT_TRUE(saved.contains(name) && saved.at(name) == bytes) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Resume,
    testing::Values(ResumedRun{"f32_qwen3", layout::kAlone}, ResumedRun{"f32_qwen3", layout::kTensor},
                    ResumedRun{"f32_qwen3", layout::kPipeline}, ResumedRun{"f32_qwen3", layout::kInterleaved},
                    ResumedRun{"f32_qwen3", layout::kData}, ResumedRun{"f32_qwen3", layout::kContext},
                    ResumedRun{"f32_qwen3", layout::kAll}, ResumedRun{"f32_qwen3moe", layout::kExpert},
                    ResumedRun{"f32_qwen3moe", layout::kTensor}, ResumedRun{"f32_deepseek", layout::kExpert},
                    ResumedRun{"f32_deepseek", layout::kPipeline},
                    ResumedRun{"f32_qwen3", kTorch + layout::kAll},
                    ResumedRun{"f32_qwen3", kTorch + layout::kContext},
                    ResumedRun{"f32_qwen3moe", kTorch + layout::kExpert},
                    ResumedRun{"f32_deepseek", kTorch + layout::kInterleaved}));

// From weights at random.
class NewRun : public testing::Test {
 protected:
  std::map<int64_t, Figures> figures(const std::string& name, const std::string& more,
                                     int64_t until) const {
    return figures_in(run_of("--load " + scratch_.path(name) + " --save " + scratch_.path(name) +
                             common_words(scratch_) +
                             "--num-layers 2 --hidden-size 32 --num-attention-heads 4 "
                             "--max-position-embeddings 64 --eval-iters 0 --save-interval 10 "
                             "--exit-interval " +
                             std::to_string(until) + " " + more));
  }
  void expect_the_same_after_a_stop(const std::string& more) const {
    const auto whole = figures("whole", more, 9);
    figures("broken", more, 4);
    for (const auto& [iteration, figure] : figures("broken", more, 9)) {
      if (iteration == 6) continue;  // the average of two iterations
      EXPECT_EQ(figure.loss, whole.at(iteration).loss) << iteration;
    }
    EXPECT_THAT(differences(scratch_.path("whole"), scratch_.path("broken")), testing::IsEmpty());
    fs::remove_all(scratch_.path("whole"));
    fs::remove_all(scratch_.path("broken"));
  }

  const Scratch scratch_;
};

// With what Megatron-LM does with random numbers of its own.
TEST_F(NewRun, DropoutIsTheSameAfterAStop) {
  expect_the_same_after_a_stop(
      "--hidden-dropout 0.1 --attention-dropout 0.1 --tensor-model-parallel-size 2 "
      "--sequence-parallel");
}

// Lengths in flat buffers do not distinguish an expert's projections.
TEST_F(NewRun, ExpertsWithoutAGateAreTheSameAfterAStop) {
  const std::string experts =
      "--disable-bias-linear --num-experts 4 --moe-router-topk 2 --data-parallel-size 2 "
      "--use-distributed-optimizer ";
  expect_the_same_after_a_stop(experts);
  expect_the_same_after_a_stop(experts + "--expert-model-parallel-size 2");
  expect_the_same_after_a_stop(experts +
                               "--transformer-impl transformer_engine --moe-grouped-gemm");
}

// In rank folders what a parameter's group decides is where its state is found.
TEST_F(NewRun, NormsThatDecayAreTheSameAfterAStop) {
  const std::string norms = "--qk-layernorm --ckpt-format torch ";
  expect_the_same_after_a_stop(norms + "--apply-wd-to-qk-layernorm");
  figures("without", norms, 4);
  figures("with", norms + "--apply-wd-to-qk-layernorm", 4);
  const std::string norm = "decoder.layers.self_attention.q_layernorm.weight";
  EXPECT_NE(tensors_in(scratch_.path("with")).at(norm),
            tensors_in(scratch_.path("without")).at(norm));
}

// The program, in a process of its own that may be killed.
class Process {
 public:
  explicit Process(const std::string& words, const std::string& log) {
    const std::string command =
        "exec " + std::string(FERRY_PROGRAM) + " train " + words + " >>" + log + " 2>&1";
    id_ = ::fork();
    if (id_ != 0) return;
    ::setenv("OMP_NUM_THREADS", "1", 1);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }

  void signal(int number) const { ::kill(id_, number); }
  // 0: it ended well. Signals count as 128 and their number.
  int wait() const {
    int status = 0;
    ::waitpid(id_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t id_;
};

// Killed at random moments, asked to end at others, and begun again each time by the same command:
// the end is that of the unbroken run, and the disk holds what retention allows.
class Killed : public testing::TestWithParam<std::string> {};

TEST_P(Killed, GoesOnFromTheLastCheckpoint) {
  const uint64_t kills = number_from_environment("FERRY_TEST_CASES", 12);
  const uint64_t hundreds = 1 + kills / 6;  // of iterations
  const Scratch scratch;
  const auto words = [&](const std::string& name) {
    fs::copy(run_fixture("f32_qwen3"), scratch.path(name), fs::copy_options::recursive);
    return "--load " + scratch.path(name) + " --save " + scratch.path(name) +
           common_words(scratch) +
           "--eval-iters 0 --override-opt-param-scheduler --save-interval 5 "
           "--async-save --keep-last 2 --save-retain-interval 100 --exit-signal-handler "
           "--data-parallel-size 2 --use-distributed-optimizer --ckpt-format " +
           GetParam() + " --train-iters " + std::to_string(100 * hundreds);
  };
  ASSERT_EQ(Process(words("whole"), scratch.path("whole.log")).wait(), 0)
      << read_text(scratch.path("whole.log"));
  const std::string broken = words("broken"), log = scratch.path("broken.log");
  std::mt19937_64 random(number_from_environment("FERRY_TEST_SEED", 1));
  for (uint64_t i = 0; i < kills; ++i) {
    const Process process(broken, log);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 400));
    const bool asks = random() % 4 == 0;
    process.signal(asks ? SIGTERM : SIGKILL);
    const int code = process.wait();
    const bool may_end = code == 0 || code == 128 + (asks ? SIGTERM : SIGKILL);
    ASSERT_TRUE(may_end) << code << "\n" << read_text(log);
  }
  ASSERT_EQ(Process(broken, log).wait(), 0) << read_text(log);
  EXPECT_THAT(differences(scratch.path("whole"), scratch.path("broken")), testing::IsEmpty());
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(scratch.path("broken"))) {
    left.push_back(entry.path().filename());
  }
  const auto last = static_cast<int64_t>(100 * hundreds);
  std::vector<std::string> expected{"latest_checkpointed_iteration.txt"};
  for (int64_t i = 100; i <= last; i += 100) expected.push_back(iteration_folder_name(i));
  // And the one before the last: of the interval, or where the run was asked to end after that.
  const auto before = std::ranges::find_if(left, [&](const std::string& name) {
    return name >= iteration_folder_name(last - 5) && name < iteration_folder_name(last);
  });
  if (before != left.end()) expected.push_back(*before);
  EXPECT_NE(before, left.end());
  EXPECT_THAT(left, testing::UnorderedElementsAreArray(expected));
}

INSTANTIATE_TEST_SUITE_P(Formats, Killed, testing::Values("torch_dist", "torch"));

}  // namespace
}  // namespace ferry::test
