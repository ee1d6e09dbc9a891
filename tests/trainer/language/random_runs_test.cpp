// A run of a configuration at random that is stopped and goes on is the run that never was, in
// every format that it may save. tests/gpu/random_runs.py holds such configurations against
// Megatron-LM.
#include <random>

#include "tests/random_cases.h"
#include "tests/trainer/language/runs.h"

namespace ferry::test {
namespace {

class Configuration {
 public:
  explicit Configuration(uint64_t number) : random_(number) {
    layout();
    attention();
    mlp();
    optimizer();
  }
  const std::string& words() const { return words_; }
  const std::vector<std::string>& formats() const { return formats_; }

 private:
  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  int one_of(std::initializer_list<int> numbers) {
    return numbers.begin()[random_() % numbers.size()];
  }
  /// Whether they are there now.
  bool add(const std::string& words, int percent = 100) {
    const bool is_there = chance(percent);
    if (is_there) words_ += words + " ";
    return is_there;
  }
  bool add(const std::string& flag, std::initializer_list<int> numbers, int percent = 100) {
    return add(flag + " " + std::to_string(one_of(numbers)), percent);
  }

  void layout() {
    layers_ = one_of({1, 2, 4});
    tensor_ = one_of({1, 1, 2});
    data_ = one_of({1, 2, 4});
    add("--num-layers " + std::to_string(layers_));
    if (layers_ > 1 && add("--pipeline-model-parallel-size 2", 40) && layers_ == 4) {
      add("--num-layers-per-virtual-pipeline-stage 1", 50);
    }
    add("--context-parallel-size 2", 20);
    if (data_ > 1) add("--data-parallel-size " + std::to_string(data_));
    if (tensor_ > 1) add("--tensor-model-parallel-size 2 --sequence-parallel");
  }

  void attention() {
    add("--hidden-size", {32, 64});
    add("--num-attention-heads 4");
    const bool latent = chance(25);
    add("--position-embedding-type rope", latent ? 100 : 60);
    add("--normalization RMSNorm", 50);
    add("--untie-embeddings-and-output-weights", 50);
    if (add("--qk-layernorm", 40)) add("--apply-wd-to-qk-layernorm", 40);
    if (!latent) {
      add("--group-query-attention --num-query-groups 2", 50);
      add("--softmax-type learnable", 30);
      return;
    }
    add("--multi-latent-attention --kv-lora-rank 16 --qk-head-dim 8 --qk-pos-emb-head-dim 8");
    add("--v-head-dim", {8, 16});
    add("--q-lora-rank 24", 60);
  }

  void mlp() {
    add(std::array{"", "--swiglu", "--squared-relu", "--quick-geglu"}[random_() % 4]);
    add("--ffn-hidden-size", {64, 96});
    add("--disable-bias-linear", 50);
    add("--transformer-impl transformer_engine", 50);
    if (!chance(50)) return;
    const bool is_biased = chance(40);
    add("--num-experts 4 --moe-router-topk 2");
    if (!is_biased) add("--disable-bias-linear");
    if (data_ > 1) add("--expert-model-parallel-size 2", 60);
    if (tensor_ > 1) add("--expert-tensor-parallel-size 1", is_biased ? 100 : 30);
    add("--moe-grouped-gemm", 40);
    if (!is_biased) add("--moe-shared-expert-intermediate-size 32", 30);
    add("--moe-router-score-function sigmoid --moe-router-enable-expert-bias", 30);
    const char* const kind =
        std::array{"aux_loss", "seq_aux_loss", "global_aux_loss"}[random_() % 3];
    add(std::string("--moe-aux-loss-coeff 0.01 --moe-router-load-balancing-type ") + kind, 60);
    if (layers_ > 1) add("--moe-layer-freq 2", 30);
  }

  void optimizer() {
    const bool is_bf16 = add("--bf16", 50);
    const bool is_adam = chance(70);
    if (!is_adam) add(chance(50) ? "--optimizer sgd" : "--optimizer ademamix");
    formats_ = {"", "--ckpt-format torch "};
    if (!add("--use-distributed-optimizer", 70)) return;
    formats_.push_back("--dist-ckpt-optim-fully-reshardable ");
    if (add("--overlap-grad-reduce", 40)) {
      add("--ddp-bucket-size", {3000, 10000}, 60);
      add("--overlap-param-gather", 50);
    }
    if (is_bf16 && is_adam && add("--use-precision-aware-optimizer", 40)) {
      add("--exp-avg-dtype bf16", 50);
      add("--main-grads-dtype bf16", 50);
    }
  }

  std::mt19937_64 random_;
  int layers_ = 1, tensor_ = 1, data_ = 1;
  std::string words_;
  std::vector<std::string> formats_;
};

TEST(RandomRuns, GoOnAsIfTheyHadNotStopped) {
  for_random_cases(12, [](uint64_t number) {
    const Configuration configuration(number);
    for (const std::string& format : configuration.formats()) {
      SCOPED_TRACE(configuration.words() + format);
      const Scratch scratch;
      const auto run = [&](const std::string& name, int64_t until) {
        run_of(common_words(scratch) + configuration.words() + format +
               "--max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 16 "
               "--eval-iters 0 --save-interval 10 --load " +
               scratch.path(name) + " --save " + scratch.path(name) + " --exit-interval " +
               std::to_string(until));
      };
      run("whole", 6);
      run("broken", 3);
      run("broken", 6);
      if (testing::Test::HasFailure()) return;
      EXPECT_THAT(differences(scratch.path("whole"), scratch.path("broken")), testing::IsEmpty());
    }
  });
}

}  // namespace
}  // namespace ferry::test
