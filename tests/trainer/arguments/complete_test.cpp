#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ckpt/megatron/state/vocabulary.h"
#include "tests/trainer/arguments/runs.h"
#include "trainer/arguments/namespace.h"

namespace ferry::test {
namespace {

using testing::HasSubstr;

// A small run that fits; more words follow.
std::string small(const std::string& more) {
  return "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 64 "
         "--max-position-embeddings 64 --micro-batch-size 2 --train-iters 10 --lr 1e-3 " +
         more;
}

std::string refusal_of_arguments(const std::string& more, const Launch& launch = {},
                    ErrorKind kind = ErrorKind::invalid) {
  try {
    completed(small(more), launch);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << more << ": nothing was thrown";
  return {};
}

TEST(CompleteArguments, FillsInWhatFollows) {
  const auto run =
      completed(small("--swiglu --bf16 --tensor-model-parallel-size 2 "
                      "--data-parallel-size 3 --context-parallel-size 2"));
  const TrainArguments& a = run.arguments;
  EXPECT_EQ(a.world_size, 12);
  EXPECT_EQ(a.data_parallel_size, 3);
  EXPECT_EQ(a.ffn_hidden_size, 64);
  EXPECT_EQ(a.kv_channels, 8);
  EXPECT_EQ(a.global_batch_size, 6);
  EXPECT_EQ(a.expert_tensor_parallel_size, 2);
  EXPECT_EQ(a.params_dtype, "torch.bfloat16");
  EXPECT_TRUE(a.accumulate_allreduce_grads_in_fp32);
  EXPECT_EQ(a.start_weight_decay, 0.01);
  EXPECT_THAT(run.notes, testing::Contains("setting global batch size to 6"));
  EXPECT_EQ(completed(small("")).arguments.ffn_hidden_size, 128);
  EXPECT_EQ(completed(small("--sequence-parallel")).arguments.sequence_parallel, false);
}

TEST(CompleteArguments, NoteADecayThatEndsBeforeTheRun) {
  using testing::Contains, testing::Not;
  const auto notes = [](const std::string& more) { return completed(small(more)).notes; };
  const auto any = HasSubstr("stays at --min-lr");
  EXPECT_THAT(notes("--lr-decay-iters 8 --min-lr 1e-5"),
              Contains("--lr-decay-iters 8 ends before --train-iters 10 do: the learning rate "
                       "stays at --min-lr 1e-05 for the last 2 iterations, 20% of the run"));
  EXPECT_THAT(notes("--lr-decay-style WSD --lr-wsd-decay-iters 2 --lr-decay-iters 8"),
              Contains(any));
  for (const char* same : {"", "--lr-decay-iters 10", "--lr-decay-iters 20",
                           "--lr-decay-iters 8 --lr-decay-style constant",
                           "--lr-decay-iters 8 --min-lr 1e-3", "--lr-decay-iters 8 --skip-train",
                           "--lr-decay-iters 8 --use-checkpoint-opt-param-scheduler"}) {
    EXPECT_THAT(notes(same), Not(Contains(any))) << same;
  }
  std::string by_samples = small("--lr-decay-samples 30");
  by_samples.replace(by_samples.find("--train-iters 10"), 16, "--train-samples 40");
  EXPECT_THAT(
      completed(by_samples).notes,
      Contains(HasSubstr("--lr-decay-samples 30 ends before --train-samples 40 do: the "
                         "learning rate stays at --min-lr 0 for the last 10 samples, 25%")));
}

TEST(CompleteArguments, AreCompleteOnce) {
  auto run = completed(llama_words() + "--num-layers-per-virtual-pipeline-stage 1");
  EXPECT_EQ(run.arguments.virtual_pipeline_model_parallel_size, 2);
  const std::string banner = arguments_banner(run.arguments);
  complete_arguments(run.arguments, Launch(), run.notes);
  EXPECT_EQ(arguments_banner(run.arguments), banner);
}

TEST(CompleteArguments, TakesRanksFromTheLauncher) {
  Launch launch;
  launch.launcher = "mpirun";
  launch.world_size = 8;
  launch.rank = 5;
  const auto run = completed(small("--tensor-model-parallel-size 2"), launch);
  EXPECT_EQ(run.arguments.data_parallel_size, 4);
  EXPECT_EQ(run.arguments.rank, 5);
  EXPECT_THAT(refusal_of_arguments("--context-parallel-size 2 --tensor-model-parallel-size 8", launch),
              HasSubstr("start a multiple of 16"));
  EXPECT_THAT(refusal_of_arguments("--data-parallel-size 2", launch), HasSubstr("which leaves 8 for data"));
}

TEST(CompleteArguments, NamesSizesThatDoNotFit) {
  EXPECT_THAT(refusal_of_arguments("--num-attention-heads 5"), HasSubstr("for --num-attention-heads, 1, 2, 4"));
  EXPECT_THAT(refusal_of_arguments("--tensor-model-parallel-size 3"), HasSubstr("4 attention heads"));
  EXPECT_THAT(refusal_of_arguments("--tensor-model-parallel-size 3"), HasSubstr("1, 2 and 4 fit"));
  EXPECT_THAT(refusal_of_arguments("--ffn-hidden-size 33 --tensor-model-parallel-size 2"),
              HasSubstr("33 elements of --ffn-hidden-size"));
  EXPECT_THAT(refusal_of_arguments("--group-query-attention --num-query-groups 3"),
              HasSubstr("for --num-query-groups, 1, 2 and 4 fit"));
  EXPECT_THAT(refusal_of_arguments("--pipeline-model-parallel-size 3"),
              HasSubstr("for --pipeline-model-parallel-size, 1, 2 and 4 fit"));
  EXPECT_THAT(refusal_of_arguments("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 3"),
              HasSubstr("for --num-virtual-stages-per-pipeline-rank, 1 and 2 fit"));
  EXPECT_THAT(refusal_of_arguments("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|tt|tL"),
              HasSubstr("has 3 stages"));
  EXPECT_THAT(refusal_of_arguments("--seq-length 65"), HasSubstr("--max-position-embeddings 64 is less"));
  EXPECT_THAT(refusal_of_arguments("--seq-length 62 --context-parallel-size 2"), HasSubstr("64 is the next"));
  EXPECT_THAT(refusal_of_arguments("--global-batch-size 3"), HasSubstr("4 is the next"));
  EXPECT_THAT(refusal_of_arguments("--expert-model-parallel-size 2 --data-parallel-size 2"),
              HasSubstr("give --num-experts"));
  EXPECT_THAT(refusal_of_arguments("--disable-bias-linear --num-experts 3 --expert-model-parallel-size 2 "
                      "--data-parallel-size 2"),
              HasSubstr("for --expert-model-parallel-size, 1 and 3 fit"));
  EXPECT_THAT(refusal_of_arguments("--disable-bias-linear --num-experts 4 --expert-model-parallel-size 2"),
              HasSubstr("not a multiple of 2"));
  EXPECT_THAT(refusal_of_arguments("--disable-bias-linear --num-experts 4 --tensor-model-parallel-size 2"),
              HasSubstr("--sequence-parallel"));
  EXPECT_THAT(refusal_of_arguments("--disable-bias-linear --num-experts 4 --moe-layer-freq [1]*3"),
              HasSubstr("3 elements"));
  EXPECT_THAT(refusal_of_arguments("--kv-channels 7 --position-embedding-type rope"),
              HasSubstr("--kv-channels 7: rotary positions rotate pairs"));
  EXPECT_THAT(refusal_of_arguments("--multi-latent-attention --qk-pos-emb-head-dim 5 "
                      "--position-embedding-type rope"),
              HasSubstr("--qk-pos-emb-head-dim 5"));
  EXPECT_THAT(refusal_of_arguments("--disable-bias-linear --moe-router-topk 5 --num-experts 4"),
              HasSubstr("from 1 to 4"));
  EXPECT_THAT(refusal_of_arguments("--hidden-size 1099511627777"), HasSubstr("--hidden-size"));
  EXPECT_THAT(
      refusal_of_arguments("--tensor-model-parallel-size 1048576 --pipeline-model-parallel-size 1048576"),
      HasSubstr("parallel ranks"));
}

TEST(CompleteArguments, NamesNumbersThatNothingCanBeMadeOf) {
  EXPECT_THAT(refusal_of_arguments("--norm-epsilon -1"), HasSubstr("--norm-epsilon -1"));
  EXPECT_THAT(refusal_of_arguments("--init-method-std -1"), HasSubstr("--init-method-std -1"));
  EXPECT_THAT(refusal_of_arguments("--micro-batch-size 40000000"), HasSubstr("at most 2147483647 tokens"));
}

// Evaluations take as many samples at a time as training does.
TEST(CompleteArguments, NamesBatchesThatEvaluationsCannotTake) {
  EXPECT_THAT(
      refusal_of_arguments("--eval-micro-batch-size 1 --eval-global-batch-size 3"),
      HasSubstr("--eval-global-batch-size 3 is not a multiple of --micro-batch-size 2 x 1"));
  EXPECT_THAT(refusal_of_arguments("--eval-micro-batch-size 1 --eval-global-batch-size 1"),
              HasSubstr("2 is the next"));
  const auto even = completed(small("--eval-micro-batch-size 1 --eval-global-batch-size 6"));
  EXPECT_EQ(even.arguments.eval_global_batch_size, 6);
}

TEST(CompleteArguments, NamesWhatAPrecisionAwareOptimizerNeeds) {
  const std::string aware = "--use-precision-aware-optimizer --use-distributed-optimizer ";
  EXPECT_THAT(refusal_of_arguments("--exp-avg-dtype bf16"),
              HasSubstr("--exp-avg-dtype bf16 needs --use-precision-aware-optimizer"));
  EXPECT_THAT(refusal_of_arguments("--main-grads-dtype bf16 --bf16"),
              HasSubstr("--main-grads-dtype bf16 needs"));
  EXPECT_THAT(refusal_of_arguments("--use-precision-aware-optimizer"),
              HasSubstr("needs --use-distributed-optimizer"));
  EXPECT_THAT(refusal_of_arguments(aware + "--optimizer sgd"), HasSubstr("--optimizer adam, not sgd"));
  EXPECT_THAT(refusal_of_arguments(aware + "--main-grads-dtype bf16"), HasSubstr("is for --bf16"));
  EXPECT_THAT(refusal_of_arguments(aware + "--main-grads-dtype bf16 --fp16"), HasSubstr("is for --bf16"));
  EXPECT_THAT(
      refusal_of_arguments(aware + "--bf16 --main-grads-dtype bf16 --accumulate-allreduce-grads-in-fp32"),
      HasSubstr("exclude each other"));
  for (const std::string which :
       {"--main-params-dtype fp16", "--exp-avg-dtype fp8", "--exp-avg-sq-dtype fp16"}) {
    EXPECT_THAT(refusal_of_arguments(aware + "--bf16 " + which, {}, ErrorKind::unsupported), HasSubstr(which));
  }
  EXPECT_TRUE(completed(small(aware + "--bf16")).arguments.accumulate_allreduce_grads_in_fp32);
  EXPECT_FALSE(completed(small(aware + "--bf16 --main-grads-dtype bf16"))
                   .arguments.accumulate_allreduce_grads_in_fp32);
}

TEST(CompleteArguments, NamesWhatContradicts) {
  EXPECT_THAT(refusal_of_arguments("--disable-bias-linear --xielu --num-experts 4"),
              HasSubstr("experts have no parameters of xIELU"));
  EXPECT_THAT(refusal_of_arguments("--bf16 --fp16"), HasSubstr("exclude each other"));
  EXPECT_THAT(refusal_of_arguments("--swiglu --squared-relu"), HasSubstr("exclude each other"));
  EXPECT_THAT(refusal_of_arguments("--train-samples 100"), HasSubstr("--train-iters and --train-samples"));
  EXPECT_THAT(refusal_of_arguments("--lr-decay-samples 100"), HasSubstr("give --lr-decay-iters"));
  EXPECT_THAT(refusal_of_arguments("--lr-warmup-fraction 0.1 --lr-warmup-iters 3"), HasSubstr("excludes"));
  EXPECT_THAT(refusal_of_arguments("--min-lr 0.1"), HasSubstr("--min-lr 0.1 is not between 0 and --lr 0.001"));
  EXPECT_THAT(refusal_of_arguments("--save x"), HasSubstr("give --save-interval, how often to save"));
  EXPECT_THAT(refusal_of_arguments("--save x --save-interval 5 --save-retain-interval 7"),
              HasSubstr("not a multiple"));
  EXPECT_THAT(refusal_of_arguments("--weight-decay-incr-style linear"), HasSubstr("give both"));
  EXPECT_THAT(refusal_of_arguments("--start-weight-decay 0.3"), HasSubstr("linear or cosine"));
  EXPECT_THAT(refusal_of_arguments("--recompute-granularity full"), HasSubstr("--recompute-method"));
  EXPECT_THAT(refusal_of_arguments("--recompute-activations --recompute-method block"), HasSubstr("full"));
  EXPECT_THAT(refusal_of_arguments("--recompute-granularity selective --recompute-modules mlp attention"),
              HasSubstr("attention: supported are core_attn, layernorm"));
  EXPECT_THAT(refusal_of_arguments("--recompute-granularity selective --recompute-modules mla_up_proj"),
              HasSubstr("--multi-latent-attention"));
  EXPECT_THAT(refusal_of_arguments("--overlap-param-gather"), HasSubstr("--use-distributed-optimizer"));
  EXPECT_THAT(refusal_of_arguments("--lr-decay-style WSD"), HasSubstr("--lr-wsd-decay-iters"));
  EXPECT_THAT(refusal_of_arguments("--mock-data --data-path a"), HasSubstr("exclude each other"));
  EXPECT_THAT(refusal_of_arguments("--global-batch-size 4 --step-batch-size-schedule 0:4"),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refusal_of_arguments("--load-main-params-from-ckpt"), HasSubstr("--no-load-optim"));
  EXPECT_THAT(refusal_of_arguments("--seed 0"), HasSubstr("--seed 0"));
  EXPECT_THAT(refusal_of_arguments("--fp16 --min-loss-scale 0"), HasSubstr("--min-loss-scale"));
  EXPECT_THAT(refusal_of_arguments("--mtp-num-layers 1"), HasSubstr("rope"));
  EXPECT_THAT(refusal_of_arguments("--position-embedding-type rope --rope-type yarn"),
              HasSubstr("--rope-type yarn is for --multi-latent-attention"));
  EXPECT_THAT(refusal_of_arguments("--disable-bias-linear --num-experts 4 --moe-router-topk 1"),
              HasSubstr("always 1"));
  const std::string experts =
      "--disable-bias-linear --num-experts 4 --moe-router-topk 1 "
      "--moe-router-score-function sigmoid ";
  EXPECT_THAT(refusal_of_arguments(experts + "--moe-router-load-balancing-type aux_loss seq_aux_loss "
                                "--moe-aux-loss-coeff 0.1 0.1"),
              HasSubstr("2 kinds"));
  EXPECT_EQ(completed(small(experts + "--moe-router-load-balancing-type none seq_aux_loss "
                                      "--moe-aux-loss-coeff 0.1 0.1"))
                .arguments.moe_aux_loss_coeff.size(),
            2u);
  EXPECT_THAT(refusal_of_arguments("--dataloader-type cyclic --eval-micro-batch-size 1"),
              HasSubstr("--eval-micro-batch-size 1"));
}

TEST(CompleteArguments, KnowsFormerNames) {
  EXPECT_TRUE(completed(small("--no-weight-decay-cond-type apply_wd_to_qk_layernorm"))
                  .arguments.apply_wd_to_qk_layernorm);
}

TEST(CompleteArguments, PadsVocabularies) {
  EXPECT_EQ(padded_vocabulary(50257, 128, 1), 50304);
  EXPECT_EQ(padded_vocabulary(50257, 128, 2), 50432);
  EXPECT_EQ(padded_vocabulary(50257, 128, 4), 50688);
  EXPECT_EQ(padded_vocabulary(50257, 128, 8), 51200);
  EXPECT_EQ(padded_vocabulary(1, 1, 1), 1);
  auto a = completed(small("--tensor-model-parallel-size 2")).arguments;
  complete_vocabulary(a, 250);
  EXPECT_EQ(a.padded_vocab_size, 256);
  EXPECT_THROW(complete_vocabulary(a, 257), Error);
  complete_vocabulary(a, 256);
  auto elsewhere =
      completed(small("--tokenizer-type HuggingFaceTokenizer --tokenizer-model some/where "
                      "--data-parallel-size 1"))
          .arguments;
  try {
    complete_vocabulary(elsewhere, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("--tokenizer-model some/where is not a folder on this machine"));
  }
}

}  // namespace
}  // namespace ferry::test
