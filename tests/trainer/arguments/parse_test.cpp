#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/trainer/arguments/runs.h"
#include "trainer/arguments/argument_row.h"
#include "trainer/arguments/layer_pattern.h"

namespace ferry::test {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

// The error that a call throws: its kind and message.
std::string error_of(ErrorKind kind, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}
std::string refusal(std::string_view line, ErrorKind kind = ErrorKind::invalid) {
  return error_of(kind, [&] { parsed(line); });
}

TEST(ParseArguments, ReadsEachKind) {
  const auto a = parsed(
      "--num-layers 12 --lr=3e-4 --bf16 --disable-bias-linear --save runs/x --data-path 30 a 70 b "
      "--moe-layer-freq ([0]*1+[1]*2)*2 --window-size 127,0 --min-lr 0 --moe-aux-loss-coeff 1e-2 "
      "--moe-router-load-balancing-type aux_loss --rampup-batch-size 8 8 4096 --exit-signal "
      "SIGUSR2 "
      "--ademamix-alpha-warmup -1 --goldfish-k 5");
  EXPECT_EQ(a.num_layers, 12);
  EXPECT_EQ(a.lr, 3e-4);
  EXPECT_TRUE(a.bf16);
  EXPECT_FALSE(a.add_bias_linear);
  EXPECT_EQ(a.save, "runs/x");
  EXPECT_THAT(a.data_path, ElementsAre("30", "a", "70", "b"));
  EXPECT_THAT(std::get<2>(a.moe_layer_freq), ElementsAre(0, 1, 1, 0, 1, 1));
  EXPECT_THAT(a.window_size, ElementsAre(127, 0));
  EXPECT_THAT(a.moe_aux_loss_coeff, ElementsAre(1e-2));
  EXPECT_THAT(a.rampup_batch_size, ElementsAre(8, 8, 4096));
  EXPECT_EQ(a.exit_signal, "SIGUSR2");
  EXPECT_EQ(a.goldfish_k, 5);
  EXPECT_EQ(a.ademamix_alpha_warmup, -1);
  EXPECT_TRUE(parsed("").bias_gelu_fusion);
}

TEST(ParseArguments, LaterOnesOverrideEarlierOnes) {
  EXPECT_EQ(parsed("--num-layers 2 --seed 5 --num-layers 3").num_layers, 3);
}

TEST(ParseArguments, ReadsFilesWhereTheyStand) {
  MemoryFileSystem files;
  files.put("/a/args",
            "# a run\n--num-layers 2 \\\n  --save 'my run' --seed 3\n--tokenizer-model \"a b\"");
  files.put("/a/run.yaml",
            "seed: 9\nlanguage_model:\n  hidden_size: 64\n  add_bias_linear: false\n  lr: 1.0e-4\n"
            "moe_layer_freq: [0, 1]\ndata_path: [a, b]\ntrain-iters: null\n");
  const auto parse = [&](std::string_view line) { return parse_arguments(words_of(line), files); };
  const auto a =
      parse("--num-layers 1 @/a/args --seed 4 --args-file /a/args --yaml-cfg /a/run.yaml");
  EXPECT_EQ(a.num_layers, 2);
  EXPECT_EQ(a.save, "my run");
  EXPECT_EQ(a.tokenizer_model, "a b");
  EXPECT_EQ(a.seed, 9);
  EXPECT_EQ(a.hidden_size, 64);
  EXPECT_EQ(a.lr, 1e-4);
  EXPECT_FALSE(a.add_bias_linear);
  EXPECT_THAT(std::get<2>(a.moe_layer_freq), ElementsAre(0, 1));
  EXPECT_THAT(a.data_path, ElementsAre("a", "b"));
  EXPECT_EQ(parse("--yaml-cfg /a/run.yaml --seed 4").seed, 4);

  EXPECT_THAT(error_of(ErrorKind::invalid, [&] { parse("/a/args"); }),
              HasSubstr("give a file of arguments as @/a/args"));
  files.put("/a/loop", "@/a/loop");
  EXPECT_THAT(error_of(ErrorKind::invalid, [&] { parse("@/a/loop"); }),
              HasSubstr("include itself"));
  files.put("/a/bad.yaml", "num_leyers: 2");
  EXPECT_THAT(error_of(ErrorKind::invalid, [&] { parse("--yaml-cfg /a/bad.yaml"); }),
              HasSubstr("num_leyers is not an argument of training; the nearest is --num-layers"));
  files.put("/a/twice.yaml", "num_layers: 2\nseed: 1\nnum_layers: 4\n");
  EXPECT_THAT(error_of(ErrorKind::corrupt, [&] { parse("--yaml-cfg /a/twice.yaml"); }),
              HasSubstr("/a/twice.yaml, line 3: the key 'num_layers' is on line 1 already"));
  files.put("/a/spelt.yaml", "num_layers: 2\nnum-layers: 4\n");
  EXPECT_THAT(error_of(ErrorKind::invalid, [&] { parse("--yaml-cfg /a/spelt.yaml"); }),
              HasSubstr("/a/spelt.yaml: num_layers is given both with _ and with -"));
  files.put("/a/quote", "--save 'x");
  EXPECT_THAT(error_of(ErrorKind::invalid, [&] { parse("@/a/quote"); }), HasSubstr("quotation"));
  error_of(ErrorKind::not_found, [&] { parse("@/a/none"); });
}

TEST(ParseArguments, NamesWhatIsWrong) {
  EXPECT_THAT(refusal("--num-layer 3"), HasSubstr("the nearest is --num-layers"));
  EXPECT_THAT(refusal("--xyzzy-plugh 3"), HasSubstr("ferry train --help"));
  EXPECT_THAT(refusal("--nproc_per_node 2"),
              HasSubstr("torchrun --nproc_per_node ... --no-python"));
  EXPECT_THAT(refusal("--num-layers 3.5"), HasSubstr("--num-layers: '3.5' is not a whole number"));
  EXPECT_THAT(refusal("--num-layers 99999999999999999999"), HasSubstr("whole number"));
  EXPECT_THAT(refusal("--lr nan"), HasSubstr("--lr: 'nan' is not a number"));
  EXPECT_THAT(refusal("--lr"), HasSubstr("--lr needs a value"));
  EXPECT_THAT(refusal("--lr --bf16"), HasSubstr("--lr needs a value"));
  EXPECT_THAT(refusal("--bf16=1"), HasSubstr("--bf16 takes no value"));
  EXPECT_THAT(refusal("--bf16 yes"), HasSubstr("'yes' is not preceded by"));
  EXPECT_THAT(refusal("--optimizer adm"), HasSubstr("adam sgd"));
  EXPECT_THAT(refusal("--exit-signal SIGKILL"), HasSubstr("SIGUSR2"));
  EXPECT_THAT(refusal("--batch-size 3"), HasSubstr("older releases"));
  EXPECT_THAT(refusal("--window-size 5"), HasSubstr("127,0"));
}

TEST(ParseArguments, BoundsWholeNumbers) {
  EXPECT_THAT(refusal("--num-layers 0"), HasSubstr("must be a whole number from 1 to 65536"));
  EXPECT_THAT(refusal("--num-layers 65537"), HasSubstr("--num-layers 65537"));
  EXPECT_THAT(refusal("--train-iters -1"), HasSubstr("from 0 to"));
  EXPECT_THAT(refusal("--keep-last 0"), HasSubstr("from 1 to"));
  EXPECT_EQ(parsed("--seed 4294967295 --train-iters 0 --ademamix-beta3-warmup -1").train_iters, 0);
}

TEST(ParseArguments, RefusesWhatItDoesNotHaveButForTheDefault) {
  const std::string message = refusal("--fp4-format e2m1", ErrorKind::unsupported);
  EXPECT_THAT(message, HasSubstr("--fp4-format is an argument of Megatron-LM"));
  EXPECT_THAT(message, HasSubstr("(default: None)"));
  refusal("--use-megatron-fsdp", ErrorKind::unsupported);
  refusal("--rl-use-sequence-packing", ErrorKind::unsupported);
  refusal("--megatron-fsdp-main-grads-dtype bf16", ErrorKind::unsupported);
  refusal("--megatron-fsdp-main-grads-dtype int8");
  EXPECT_EQ(no_effect_note(parsed("--softmax-type vanilla --no-rl-partial-rollouts "
                                  "--megatron-fsdp-main-params-dtype fp32")),
            "");
}

// Variables of scripts may be empty: a run would go on without saving.
TEST(ParseArguments, RefusesEmptyValues) {
  for (const char* flag : {"--save", "--load", "--metrics-json", "--split"}) {
    EXPECT_THAT(refusal(std::string(flag) + "="),
                HasSubstr(std::string(flag) + " has an empty value"));
  }
}

TEST(ParseArguments, TakesDtypesOfEachArgument) {
  EXPECT_EQ(parsed("--main-grads-dtype bf16").main_grads_dtype, "torch.bfloat16");
  EXPECT_EQ(parsed("").exp_avg_dtype, "torch.float32");
  EXPECT_THAT(refusal("--main-grads-dtype int8"),
              HasSubstr("'int8' is not one of fp32, bf16, fp16"));
  EXPECT_THAT(refusal("--main-grads-dtype fp16"), HasSubstr("is not one of: fp32 bf16"));
  EXPECT_THAT(refusal("--exp-avg-dtype auto"), HasSubstr("fp32 fp16 bf16 fp8"));
}

TEST(ParseArguments, SaysOnceWhatMeansNothingHere) {
  const auto a = parsed("--attention-backend flash --use-flash-attn --distributed-backend gloo");
  const std::string note = no_effect_note(a);
  EXPECT_THAT(note, HasSubstr("--attention-backend, --distributed-backend, --use-flash-attn"));
  EXPECT_EQ(std::get<std::string>(value_of(a, *find_argument("attention_backend"))),
            "AttnBackend.flash");
  EXPECT_EQ(no_effect_note(parsed("--num-layers 3")), "");
}

TEST(ParseArguments, LetsGpusAloneHaveFusedAttention) {
  const auto fused = parsed("--attention-backend fused");
  EXPECT_TRUE(has_fused_attention(fused));
  EXPECT_THAT(no_effect_note(fused, false), HasSubstr("--attention-backend"));
  EXPECT_EQ(no_effect_note(fused, true), "");
  const auto flash = parsed("--attention-backend flash");
  EXPECT_FALSE(has_fused_attention(flash));
  EXPECT_THAT(no_effect_note(flash, true), HasSubstr("--attention-backend"));
  EXPECT_EQ(no_effect_note(parsed("--attention-backend auto"), true), "");
}

TEST(ParseArguments, SaysWhyNoAttentionIsFused) {
  const std::string fused = "--attention-backend fused --seq-length 4096 --bf16 ";
  const auto note = [](const std::string& words) { return unfused_note(parsed(words), true); };
  EXPECT_THAT(note(fused), EndsWith(": --attention-dropout 0.1"));  // Megatron-LM's default
  EXPECT_EQ(note(fused + "--attention-dropout 0"), "");
  EXPECT_EQ(unfused_note(parsed(fused), false), "");
  EXPECT_EQ(note("--attention-backend flash"), "");
  EXPECT_THAT(note("--attention-backend fused --seq-length 100 --attention-dropout 0 "
                   "--context-parallel-size 2"),
              EndsWith(": neither --bf16 nor --fp16, --context-parallel-size 2, --seq-length 100, "
                       "not a multiple of 128"));
}

TEST(LayerPattern, IsAnExpression) {
  const auto parse = [](std::string_view text) { return parse_layer_pattern("--x", text); };
  EXPECT_THAT(parse("[0]*3+[1]*2"), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(parse("( [0, 1] + [2] ) * 2"), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(parse("[]"), ElementsAre());
  for (const char* bad : {"", "[", "[1", "[1]*", "[1]+", "(", "([1]", "1+[1]", "[1]]", "[x]",
                          "[1]*65537", "[1,1]*40000", "[1]*60000*60000", "[1]*65536+[1]",
                          "[1]*9223372036854775807", "(((((((((((((((((([1]))))))))))))))))))"}) {
    EXPECT_THROW(parse(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace ferry::test
