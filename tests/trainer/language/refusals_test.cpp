// Runs that cannot work are refused before anything is allocated or trained, with what to do.
#include "kernels/forwarding.h"
#include "tests/trainer/language/runs.h"
#include "trainer/language/memory_plan.h"
#include "trainer/language/options.h"

namespace ferry::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class Refusals : public testing::Test {
 protected:
  // A small model; what follows may say otherwise.
  std::string words(const std::string& more) const {
    return "--num-layers 2 --hidden-size 32 --ffn-hidden-size 64 --num-attention-heads 4 "
           "--group-query-attention --num-query-groups 2 --swiglu --normalization RMSNorm "
           "--position-embedding-type rope --disable-bias-linear --max-position-embeddings 64 "
           "--untie-embeddings-and-output-weights --seq-length 64 --micro-batch-size 2 "
           "--global-batch-size 8 --train-iters 4 --lr 1e-3 --eval-iters 0 --log-interval 1 "
           "--tokenizer-type NullTokenizer --vocab-size 250 --attention-dropout 0 "
           "--hidden-dropout 0 --split 90,9,1 --data-path " +
           std::string(FERRY_FIXTURES) + "/data/corpus_a_text_document --data-cache-path " +
           scratch_.path("cache") + " " + more;
  }
  // A run of four iterations.
  std::string saved() const {
    const std::string run = scratch_.path("run");
    if (!fs::exists(run)) run_of(words("--save-interval 2 --save " + run));
    return run;
  }
  void expect_untrained(const std::string& more, const std::string& problem) const {
    const Outcome outcome = outcome_of(words(more));
    EXPECT_THAT(outcome.problem, HasSubstr(problem)) << more;
    EXPECT_THAT(outcome.printed, Not(HasSubstr("lm loss"))) << more;
  }

  const Scratch scratch_;
};

TEST_F(Refusals, OfSchedulesComeBeforeTheFirstIteration) {
  expect_untrained("--phase-transition-iterations 3,x", "expected iterations such as 1000,2000");
  expect_untrained("--rampup-batch-size 4 1 20", "a batch of 5 samples (from sample 5 on)");
  expect_untrained(
      "--num-layers 4 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
      "--rampup-batch-size 4 2 8",
      "a batch of 6 samples (from sample 4 on) is 3 micro-batches");
  expect_untrained("--lr-warmup-iters 4", "must end before");
}

// Megatron-LM refuses the one and runs the other, whose rate it ends far from --min-lr.
TEST_F(Refusals, OfSchedulesUnderGrowingBatchesNameTheFigures) {
  // 4 + 4 + 8 + 8 samples.
  expect_untrained("--rampup-batch-size 4 4 8 --min-lr 1e-4",
                   "--rampup-batch-size cannot be used with --train-iters (Megatron-LM rejects it, "
                   "too): the schedule counts each iteration as 8 samples, so it warms up over 0 "
                   "and decays until sample 32, but batch sizes change and 4 iterations take 24 "
                   "samples: the final learning rate is 3.250000E-04 (--min-lr is 1.000000E-04)");
}

TEST_F(Refusals, OfDataComeBeforeTheModelsMemory) {
  const Outcome outcome = outcome_of(words("--split 100,0,0 --data-path nowhere"));
  EXPECT_THAT(outcome.problem, HasSubstr("nowhere"));
  EXPECT_THAT(outcome.printed, Not(HasSubstr("number of parameters")));
}

TEST_F(Refusals, OfARunWithNothingToTrainOnSayWhatToGive) {
  expect_untrained("--split 0,90,10", "the first number of --split 0,90,10, is empty");
  const std::string corpus = std::string(FERRY_FIXTURES) + "/data/corpus_a_text_document";
  std::string apart = words("--valid-data-path " + corpus);
  apart.erase(apart.find("--split"), apart.find("--data-cache-path") - apart.find("--split"));
  EXPECT_THAT(outcome_of(apart).problem, HasSubstr("give --train-data-path, or --skip-train"));
}

// Families have it, and no module of the trainer computes it.
TEST_F(Refusals, NameWhatTheModelHasThatIsNotComputed) {
  std::string biases = words("--num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 16");
  biases.erase(biases.find("--disable-bias-linear"), sizeof "--disable-bias-linear");
  EXPECT_EQ(outcome_of(biases).problem, "");
  EXPECT_THAT(outcome_of(biases + " --moe-shared-expert-intermediate-size 16").problem,
              HasSubstr("this model cannot be trained: a bias in shared experts"));
  EXPECT_THAT(outcome_of(biases + " --tensor-model-parallel-size 2 --sequence-parallel").problem,
              HasSubstr("give --expert-tensor-parallel-size 1"));
  expect_untrained("--position-embedding-type yarn --rotary-scaling-factor 4 --rotary-percent 0.5",
                   "leave out --rotary-percent");
  expect_untrained("--position-embedding-type yarn --yarn-beta-slow 0", "--yarn-beta-slow 0");
  expect_untrained("--softmax-type off-by-one", "is not one of: vanilla learnable");
  expect_untrained("--activation-func-clamp-value -1", "must be a positive number");

  Architecture a;
  a.sinks = true;
  a.glu_clamp = 7;
  a.rope_scaling = RopeScaling::yarn;
  EXPECT_THAT(untrainable_reasons(a), testing::IsEmpty());
  a.mla = true;
  a.layers = 1;
  a.linear_layers = {true};
  EXPECT_THAT(untrainable_reasons(a), testing::SizeIs(2));
}

// Their tensors have the names and sizes of a model that the trainer has.
TEST_F(Refusals, AreWarningsWhereTheSameParametersAreAnotherModel) {
  const std::string run = scratch_.path("positions");
  const std::string kinds = "--no-rope-freq [0,1] --window-size 15,0 ";
  run_of(words(kinds + "--save-interval 2 --exit-interval 2 --save " + run));
  const std::string load = "--exit-interval 3 --load " + run + " ";
  EXPECT_THAT(outcome_of(words(load + kinds)).printed, Not(HasSubstr("the model is not that")));
  EXPECT_THAT(outcome_of(words(load + "--use-checkpoint-args")).printed,
              Not(HasSubstr("the model is not that")));
  EXPECT_THAT(
      outcome_of(words(load)).printed,
      HasSubstr("layers without rotary positions (no_rope_freq) is none and not 1 (1); windowed "
                "attention (window_size) is none and not 16"));
}

// The layers that no module computes, and the first of them.
TEST_F(Refusals, NameLayersOfFamiliesThatAreNotTrained) {
  Architecture a;
  a.layers = 4;
  a.linear_layers = {false, true, true, true};
  EXPECT_THAT(
      untrainable_reasons(a),
      testing::ElementsAre("a gated delta net (linear_attention_freq: layer 1 and others) is "
                           "not supported"));
  a.linear_layers = {};
  a.kinds = {LayerKind::attention, LayerKind::mamba, LayerKind::mlp, LayerKind::mlp};
  EXPECT_THAT(
      untrainable_reasons(a),
      testing::ElementsAre("a Mamba mixer (hybrid_layer_pattern: layer 1) is not supported"));
  a.kinds[1] = LayerKind::attention;
  EXPECT_THAT(untrainable_reasons(a), testing::ElementsAre(HasSubstr("an MLP or a mixture alone")));
}

TEST_F(Refusals, NameTensorRanksWithoutAQueryGroup) {
  expect_untrained("--tensor-model-parallel-size 4", "give at most 2 tensor ranks");
}

TEST_F(Refusals, NameAFolderThatTakesNoFiles) {
  expect_untrained("--save-interval 2 --save /proc/self/fdinfo", "cannot save in /proc");
}

// A run inside an iteration would go with it when it is pruned, and one inside a model's folder
// would hide the model.
TEST_F(Refusals, NameAFolderThatIsNoRuns) {
  const std::string run = saved();
  const std::string save = "--save-interval 2 --save ";
  expect_untrained(save + run + "/iter_0000002/", "iter_0000002/ is the folder of an iteration");
  expect_untrained(save + scratch_.path("iter_0000008"), "is the folder of an iteration");
  fs::rename(run + "/iter_0000002", scratch_.path("moved"));
  expect_untrained(save + scratch_.path("moved"), "holds a checkpoint that a run would hide");
}

TEST_F(Refusals, OfAnotherModelsWeightsSayWhatToGive) {
  const std::string load = "--finetune --load " + saved() + " ";
  expect_untrained(load + "--hidden-size 64", "or --use-checkpoint-args");
  expect_untrained(load + "--qk-layernorm", "or --use-checkpoint-args");
  const std::string fp8 = "--bf16 --fp8-format hybrid --kv-channels 16 ";  // is planned before
  const std::string wide = scratch_.path("wide");
  run_of(words("--kv-channels 16 --save-interval 4 --save " + wide));
  expect_untrained("--finetune --load " + wide + " --qk-layernorm " + fp8,
                   "or --use-checkpoint-args");
}

// Whichever has more parameters: the run would be saved with arguments that nobody can load it by.
TEST_F(Refusals, OfAModelWithOtherParametersNameOne) {
  const std::string biased = scratch_.path("biased");
  run_of(words("--add-qkv-bias --save-interval 4 --save " + biased));
  const std::string name = "the parameter decoder.layers.self_attention.linear_qkv.bias";
  expect_untrained("--train-iters 8 --load " + biased, "it has " + name);
  expect_untrained("--finetune --load " + biased, "it has " + name);
  expect_untrained("--finetune --add-qkv-bias --load " + saved(), "it lacks " + name);
}

// Layers that the arguments name a kind for have numbers in files of both kinds, alike or not.
TEST_F(Refusals, AreNotOfTheRunsOwnParametersHoweverTheyAreSpelt) {
  const std::string experts = "--num-experts 4 --moe-ffn-hidden-size 32 --moe-router-topk 2 ";
  for (const std::string kinds : {"", "--moe-layer-freq [1,1] ", "--moe-layer-freq [0,1] "}) {
    for (const std::string format : {"torch_dist", "torch"}) {
      const std::string run = scratch_.path(format + kinds);
      const std::string own = experts + kinds + "--ckpt-format " + format +
                              " --save-interval 2 --exit-interval 2 --train-iters 4 --save '" +
                              run + "' ";
      run_of(words(own));
      EXPECT_EQ(outcome_of(words(own + "--exit-interval 4 --load '" + run + "'")).problem, "");
      const Checkpoint saved = open_checkpoint(posix_file_system(), run);
      const bool has_numbers = std::ranges::any_of(saved.catalog->entries, [](const Entry& entry) {
        return entry.name.starts_with("decoder.layers.1.");
      });
      EXPECT_EQ(has_numbers, !kinds.empty()) << kinds << format;
    }
  }
}

TEST_F(Refusals, OfAnotherOptimizersStateSayWhatToGive) {
  const std::string load = "--lr-decay-iters 4 --load " + saved() + " ";
  expect_untrained(load + "--bf16", "--no-load-optim");
  expect_untrained(load + "--optimizer sgd", "--no-load-optim");
}

// As if nothing had been lost, a run would go on with moments of zero.
TEST_F(Refusals, OfACheckpointWithoutItsOptimizersStateSayWhatToGive) {
  const std::string run = scratch_.path("run");
  run_of(words("--save-interval 4 --no-save-optim --save " + run));
  const std::string go_on = "--train-iters 8 --load " + run + " ";
  expect_untrained(go_on, "has no optimizer state to resume from");
  expect_untrained(go_on, "--no-load-optim starts with a new optimizer");
  EXPECT_EQ(outcome_of(words(go_on + "--no-load-optim")).problem, "");
  EXPECT_EQ(outcome_of(words("--finetune --load " + run)).problem, "");
}

TEST_F(Refusals, OfALostPartOfTheOptimizersStateSayWhatToGive) {
  const std::string run = scratch_.path("run");
  run_of(
      words("--save-interval 4 --ckpt-format torch --data-parallel-size 2 "
            "--use-distributed-optimizer --save " +
            run));
  fs::remove(run + "/iter_0000004/mp_rank_00/distrib_optim.pt");
  const std::string go_on = "--train-iters 8 --load " + run;
  expect_untrained(go_on, "distrib_optim.pt");
  expect_untrained(go_on, "--no-load-optim starts with a new optimizer");
}

TEST_F(Refusals, OfAnotherScheduleNameTheCheckpoint) {
  expect_untrained("--lr 2e-3 --train-iters 8 --load " + saved(),
                   "run/iter_0000004: the learning rate (--lr) is 0.001 in the checkpoint's "
                   "scheduler and 0.002 now");
}

// Batches change all lengths of a schedule by iterations.
TEST_F(Refusals, OfAnotherBatchNameTheBatch) {
  const std::string other = "--global-batch-size 16 --load " + saved() + " ";
  expect_untrained(
      other, "run/iter_0000004: --global-batch-size is 8 in the checkpoint and 16 now, and with");
  // What differs besides comes first, by its own name.
  expect_untrained(other + "--lr 2e-3", "the learning rate (--lr) is 0.001");
  // Half as many iterations are the same schedule.
  EXPECT_EQ(outcome_of(words(other + "--train-iters 2")).problem, "");
  for (const char* choice :
       {"--override-opt-param-scheduler", "--use-checkpoint-opt-param-scheduler"}) {
    EXPECT_EQ(outcome_of(words(other + choice)).problem, "") << choice;
  }
}

TEST_F(Refusals, OfAnIterationNameThisCommandsFlag) {
  const std::string run = saved();
  EXPECT_THAT(outcome_of(words("--ckpt-step 3 --load " + run)).problem,
              HasSubstr("choose one with --ckpt-step 4"));
  std::ofstream(run + "/latest_checkpointed_iteration.txt") << "garbage";
  EXPECT_THAT(outcome_of(words("--use-checkpoint-args --load " + run)).problem,
              HasSubstr("choose one with --ckpt-step 4"));
}

// As Megatron-LM does: hashes are written with a checkpoint, and checked before it is loaded.
TEST_F(Refusals, OfDamagedBytesComeWhereIntegrityIsToBeVerified) {
  const std::string run = scratch_.path("hashed");
  run_of(words("--save-interval 4 --verify-integrity --save " + run));
  EXPECT_TRUE(fs::exists(run + "/iter_0000004/integrity.json"));
  const std::string load = "--exit-interval 4 --load " + run + " ";
  EXPECT_EQ(outcome_of(words(load + "--verify-integrity")).problem, "");
  const std::string data = run + "/iter_0000004/__0_0.distcp";
  std::fstream file(data, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(data) / 2));
  file.write("damaged", 7);
  file.close();
  EXPECT_EQ(outcome_of(words(load)).problem, "");
  expect_untrained(load + "--verify-integrity", "start from an earlier one (--ckpt-step)");
}

// As Megatron-LM does: weights that a run begins with, whatever iteration they are of.
TEST_F(Refusals, DoNotMeetReleases) {
  const std::string run = saved();
  fs::rename(run + "/iter_0000004", run + "/release");
  std::ofstream(run + "/latest_checkpointed_iteration.txt") << "release";
  const auto figures = figures_in(run_of(words("--exit-interval 1 --load " + run)));
  ASSERT_EQ(figures.size(), 1u);
  EXPECT_EQ(figures.begin()->first, 1);
}

TEST_F(Refusals, DoNotMeetAnEvaluationAlone) {
  const Outcome outcome = outcome_of("--skip-train --load " + saved() + common_words(scratch_) +
                                     "--split 90,9,1 --eval-iters 1");
  EXPECT_EQ(outcome.problem, "");
  std::string alone = words("--skip-train --eval-iters 1 --load " + saved());
  alone.erase(alone.find("--train-iters 4"), std::string("--train-iters 4").size());
  EXPECT_THAT(run_of(alone), HasSubstr("validation loss at iteration 4 on test set"));
}

// A disk that is full under the logs of a run ends the logs.
TEST_F(Refusals, AreNotOfARunWhoseLogsCannotGrow) {
  const Outcome outcome = outcome_of(words("--metrics-json /dev/full"));
  EXPECT_EQ(outcome.problem, "");
  EXPECT_THAT(outcome.printed, HasSubstr("WARNING: --metrics-json is no longer written"));
  EXPECT_THAT(outcome.printed, HasSubstr("iteration        4/       4"));
}

// Whose memory is full when the optimizer steps.
class FullKernels final : public kernels::ForwardingKernels<FullKernels> {
 public:
  explicit FullKernels(std::unique_ptr<kernels::Kernels> inner) : inner_(std::move(inner)) {}
  std::shared_ptr<void> allocate(size_t bytes) override { return inner_->allocate(bytes); }
  void upload(const void* from, void* to, size_t bytes) override {
    inner_->upload(from, to, bytes);
  }
  void download(const void* from, void* to, size_t bytes) override {
    inner_->download(from, to, bytes);
  }
  void wait() override { inner_->wait(); }
  void forward(const kernels::AdamStep&) { throw kernels::OutOfDeviceMemory("GPU 1 is full"); }
  template <typename Operation>
  void forward(const Operation& x) {
    inner_->run(x);
  }

 private:
  std::unique_ptr<kernels::Kernels> inner_;
};

// A device that is full on one rank ends all of them, and the user hears of it and what to do.
TEST_F(Refusals, SayWhatTakesLessOfADevicesMemory) {
  const Outcome outcome =
      outcome_of(words("--data-parallel-size 2"), [](const auto& group, auto links) {
        if (group->rank() == 1) throw kernels::OutOfDeviceMemory("GPU 1 has no room");
        return test_device(group, std::move(links));
      });
  EXPECT_THAT(outcome.problem, HasSubstr("GPU 1 has no room; use a smaller --micro-batch-size"));
  // The same in the middle of a run, from each rank: the first one's error is the program's.
  const Outcome later =
      outcome_of(words("--data-parallel-size 2"), [](const auto& group, auto links) {
        RankDevice device = test_device(group, std::move(links));
        if (group->rank() == 1) {
          device.kernels = std::make_unique<FullKernels>(std::move(device.kernels));
        }
        return device;
      });
  EXPECT_EQ(later.problems.size(), 2U);
  EXPECT_THAT(later.problems,
              testing::Each(HasSubstr("GPU 1 is full; use a smaller --micro-batch-size")));
}

// A dynamic one goes down until they are finite.
TEST_F(Refusals, OfGradientsThatAConstantLossScaleMakesTooLarge) {
  const std::string half = "--fp16 --initial-loss-scale 1e12 ";
  expect_untrained(half + "--loss-scale 1e12", "the gradient of iteration 1 is not finite");
  const std::string unchecked = "--loss-scale 1e12 --no-check-for-nan-in-loss-and-grad";
  for (const std::string& more : {std::string(), unchecked}) {
    EXPECT_THAT(run_of(words(half + more)), HasSubstr("number of skipped iterations:   1 |"));
  }
}

TEST(MachineMemory, IsWhatARunMayTake) {
  StagePlan stage;
  stage.activations = int64_t{1} << 20;
  check_machine_memory({stage, stage}, 4);
  stage.activations = int64_t{1} << 58;
  try {
    check_machine_memory({stage}, 2);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::exhausted);
    EXPECT_THAT(error.what(), HasSubstr("process (2) need 536870912.0 GiB"));
  }
}

}  // namespace
}  // namespace ferry::test
