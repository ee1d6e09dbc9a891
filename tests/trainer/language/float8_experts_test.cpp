// Runs whose routed experts multiply 8-bit numbers, or do not and say so.
#include <cmath>
#include <cstring>

#include "kernels/forwarding.h"
#include "tests/trainer/language/float8_runs.h"

namespace ferry::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class Float8Experts : public Float8Runs {};

TEST_F(Float8Experts, LoseAsRunsInBf16DoWithLatentAttentionAndExperts) {
  const auto wide = figures(kDeepSeek + "--exit-interval 10 ");
  for (const std::string& fp8 : {kTensorwise, kDelayed, kDelayed + "--no-fp8-wgrad "}) {
    expect_near(kDeepSeek + "--exit-interval 10 " + fp8, wide, 0.01);
    for (const char* const at : {layout::kTensor, layout::kExpert}) {
      expect_near(kDeepSeek + "--exit-interval 10 " + at + fp8, wide, 0.01);
    }
  }
}

TEST_F(Float8Experts, LoseAsRunsInBf16DoWithBiasesOfExperts) {
  const auto wide = figures(kBiasedExperts + "--exit-interval 10 ");
  for (const std::string& fp8 : {kTensorwise, kDelayed, kDelayed + "--no-fp8-wgrad "}) {
    expect_near(kBiasedExperts + "--exit-interval 10 " + fp8, wide, 0.01);
  }
}

// A first step's moments are its gradients; those in FP8 are off by what rounding takes.
TEST_F(Float8Experts, HaveGradientsOfExpertsAsInBf16) {
  const auto moments = [&](const std::string& more) {
    std::map<std::string, std::vector<float>> of;
    const std::string run = scratch_.path("run" + std::to_string(more.size()));
    run_of(words("--save " + run + " --save-interval 1 --exit-interval 1 " + more));
    for (const auto& [name, bytes] : tensors_in(run)) {
      if (name.find("exp_avg.") == std::string::npos) continue;
      if (name.find("mlp.experts") == std::string::npos) continue;
      std::vector<float> numbers(bytes.size() / 4);
      std::memcpy(numbers.data(), bytes.data(), bytes.size());
      of[name] = std::move(numbers);
    }
    return of;
  };
  for (const std::string& model : {kDeepSeek, kBiasedExperts}) {
    for (const std::string& at : {std::string(), std::string(layout::kExpert)}) {
      const auto narrow = moments(model + kTensorwise + at);
      const auto wide = moments(model + kTensorwise + at + "--no-fp8-wgrad ");
      ASSERT_GE(narrow.size(), 2u);
      ASSERT_EQ(narrow.size(), wide.size());
      for (const auto& [name, numbers] : wide) {
        double difference = 0, size = 0;
        for (size_t i = 0; i < numbers.size(); ++i) {
          const auto number = static_cast<double>(numbers[i]);
          difference += std::pow(static_cast<double>(narrow.at(name)[i]) - number, 2);
          size += number * number;
        }
        EXPECT_GT(size, 0) << name;
        EXPECT_LT(std::sqrt(difference / size), 0.1) << model << at << name;
      }
    }
  }
}

// A GPU after Hopper: FP8 products, but not of groups of rows.
class LaterKernels final : public kernels::ForwardingKernels<LaterKernels> {
 public:
  explicit LaterKernels(std::unique_ptr<kernels::Kernels> inner) : inner_(std::move(inner)) {}
  kernels::DeviceKind kind() const noexcept override { return inner_->kind(); }
  std::shared_ptr<void> allocate(size_t bytes) override { return inner_->allocate(bytes); }
  void upload(const void* from, void* to, size_t bytes) override {
    inner_->upload(from, to, bytes);
  }
  void download(const void* from, void* to, size_t bytes) override {
    inner_->download(from, to, bytes);
  }
  void wait() override { inner_->wait(); }
  bool has_grouped_float8() const noexcept override { return false; }
  void forward(const kernels::GroupedFloat8Matmul&) {
    fail(ErrorKind::internal, "this device has no such products");
  }
  template <typename Operation>
  void forward(const Operation& x) {
    inner_->run(x);
  }

 private:
  std::unique_ptr<kernels::Kernels> inner_;
};

RankDevice later_device(const std::shared_ptr<Group>& group, std::shared_ptr<Links> links) {
  RankDevice device = test_device(group, std::move(links));
  device.kernels = std::make_unique<LaterKernels>(std::move(device.kernels));
  return device;
}

// Experts whose width does not fit stay in bf16, and nothing else does.
TEST_F(Float8Experts, SayThatExpertsStayInBf16) {
  const std::string narrow = kDeepSeek + "--exit-interval 3 --moe-ffn-hidden-size 24 ";
  expect_near(narrow + kDelayed, figures(narrow), 0.01);
  EXPECT_THAT(outcome_of(words(narrow + kDelayed)).printed,
              HasSubstr("routed experts run in bf16: an expert is 24 wide on a rank, and FP8 "
                        "products need multiples of 16"));
  const std::string half = kDeepSeek + "--exit-interval 3 " + kDelayed;
  EXPECT_THAT(outcome_of(words(half)).printed, Not(HasSubstr("experts run in bf16")));
  EXPECT_THAT(outcome_of(words(half + "--moe-ffn-hidden-size 48 " + layout::kTensor)).printed,
              HasSubstr("an expert is 24 wide on a rank"));
  const Outcome later = outcome_of(words(half), later_device);
  EXPECT_EQ(later.problem, "");
  EXPECT_THAT(later.printed, HasSubstr("routed experts run in bf16: their FP8 products need "
                                       "compute capability 9.0 (Hopper)"));
  EXPECT_THAT(later.printed, HasSubstr("iteration        3/"));
}

// Nothing balances the experts, and such steps are too long: soon one rank has almost all rows.
TEST_F(Float8Experts, HaveMemoryForAllRowsOnOneRank) {
  const std::string run = kDeepSeek + layout::kExpert + kTensorwise +
                          "--moe-ffn-hidden-size 192 --moe-router-load-balancing-type none "
                          "--micro-batch-size 4 --seq-length 256 --max-position-embeddings 256 "
                          "--lr 0.1 --lr-warmup-iters 0 --exit-interval 12 ";
  const Outcome outcome = outcome_of(words(run));
  EXPECT_EQ(outcome.problem, "");
  EXPECT_THAT(outcome.printed, HasSubstr("iteration       12/"));
}

// Where a checkpoint lacks the scales of some layers, these begin anew, the others go on, and a
// line says so.
TEST(Float8Scaling, ThatACheckpointLacksBeginsAnew) {
  const Scratch scratch;
  const auto run = [&](const std::string& name, int until, const std::string& fp8) {
    return " --load " + scratch.path(name) + " --save " + scratch.path(name) +
           common_words(scratch) + kDeepSeek + fp8 + "--eval-iters 0 --save-interval 10 " +
           "--exit-interval " + std::to_string(until) + " ";
  };
  const auto newest = [&](const std::string& linear, size_t age) {
    const LoadedValue scaling = scaling_in(scratch.path("older"));
    return scaling.value.get(linear).get("weight").get("amax_history")[age].real();
  };
  const std::string experts = "decoder.layers.1.mlp.experts.experts.linear_fc1",
                    dense = "decoder.layers.0.mlp.linear_fc1";
  EXPECT_EQ(outcome_of(run("older", 3, kHistory), later_device).problem, "");
  const auto before = newest(dense, 0);
  EXPECT_TRUE(before);
  EXPECT_FALSE(newest(experts, 0));
  EXPECT_THAT(outcome_of(run("older", 4, kHistory + layout::kPipeline)).printed,
              HasSubstr("has no FP8 scales of 4 linear layers (the first is " + experts + ")"));
  EXPECT_EQ(newest(dense, 1), before);
  EXPECT_GT(newest(experts, 0), 0);
  EXPECT_EQ(newest(experts, 1), 0);
  EXPECT_THAT(outcome_of(run("older", 5, kHistory)).printed, Not(HasSubstr("no FP8 scales")));
  run_of(run("wide", 3, ""));
  EXPECT_THAT(outcome_of(run("wide", 4, kTensorwise)).printed, Not(HasSubstr("no FP8 scales")));
  EXPECT_THAT(outcome_of(run("wide", 5, kHistory)).printed,
              HasSubstr("(the first is decoder.layers.0.self_attention.linear_"));
}

// All of a layer's experts are one linear layer, whichever rank has which of them.
TEST(Float8Scaling, OfExpertsIsTheSameWhereverTheyAre) {
  const Scratch scratch;
  const auto run = [&](const std::string& name, const std::string& more) {
    run_of("--save " + scratch.path(name) + common_words(scratch) + kDeepSeek + kHistory + more +
           "--eval-iters 0 --save-interval 10 --exit-interval 3");
    return scaling_in(scratch.path(name));
  };
  const LoadedValue alone = run("alone", ""), spread = run("spread", layout::kExpert);
  ASSERT_EQ(spread.value.pair_count(), alone.value.pair_count());
  for (const char* const layer : {"decoder.layers.1", "mtp.layers.0.transformer_layer"}) {
    for (const char* const linear : {"linear_fc1", "linear_fc2"}) {
      const std::string name = std::string(layer) + ".mlp.experts.experts." + linear;
      for (const char* const tensor : {"input", "weight", "gradient"}) {
        for (size_t age = 0; age < 3; ++age) {
          const auto newest = [&](const LoadedValue& of) {
            return of.value.get(name).get(tensor).get("amax_history")[age].real().value_or(-1);
          };
          EXPECT_GT(newest(alone), 0) << name << tensor << age;
          EXPECT_NEAR(newest(spread) / newest(alone), 1, 0.25) << name << tensor << age;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ferry::test
