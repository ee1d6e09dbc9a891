// Runs with SGD, which has one state a parameter: in every form, at other layouts, and to Hugging
// Face.
#include <gmock/gmock.h>

#include "tests/tools/program.h"

namespace {

using ferry::test::Outcome;
using ferry::test::Program;
using testing::HasSubstr;
using testing::Not;

struct SgdRuns : Program {
  Outcome run_well(const std::string& arguments) const {
    Outcome outcome = ferry(arguments);
    EXPECT_EQ(outcome.code, 0) << arguments << "\n" << outcome.err;
    return outcome;
  }
  void train(const std::string& name, const std::string& form) const {
    run_well(
        "train --mock-data --tokenizer-type NullTokenizer --vocab-size 100 --num-layers 2 "
        "--hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 "
        "--micro-batch-size 1 --global-batch-size 2 --train-iters 2 --lr 0.01 --bf16 "
        "--optimizer sgd --eval-iters 0 --save-interval 2 --save " +
        path(name) + " " + form);
  }
  // Weights, masters, momentum and parameter groups.
  void expect_same(const std::string& a, const std::string& b) const {
    const Outcome outcome = ferry("diff " + path(a) + " " + path(b));
    EXPECT_EQ(outcome.code, 0) << a << " " << b << "\n" << outcome.out;
  }
};

TEST_F(SgdRuns, GoToEveryFormAndBack) {
  train("flat", "--use-distributed-optimizer");
  train("full", "--use-distributed-optimizer --dist-ckpt-optim-fully-reshardable");
  train("plain", "--ckpt-format torch");
  const Outcome shown = run_well("inspect " + path("full") + " --tensors 'optimizer.*'");
  EXPECT_THAT(shown.out, HasSubstr("optimizer.state.momentum_buffer."));
  EXPECT_THAT(shown.out, Not(HasSubstr("exp_avg")));
  expect_same("flat", "full");
  expect_same("plain", "full");
  run_well("reshard " + path("flat") + " " + path("f") + " --optimizer fully_reshardable --tp 2");
  run_well("reshard " + path("f") + " " + path("d") + " --optimizer dp_reshardable --tp 1 --pp 2");
  run_well("reshard " + path("d") + " " + path("t") + " --to torch --optimizer legacy --dp 2");
  for (const char* form : {"f", "d", "t"}) expect_same(form, "full");
}

TEST_F(SgdRuns, AreExportedFromTheirMasters) {
  train("run", "--use-distributed-optimizer");
  run_well("convert " + path("run") + " " + path("masters") +
           " --to safetensors --from-masters --optimizer");
  EXPECT_THAT(run_well("inspect " + path("masters") + " --tensors '*'").out,
              HasSubstr("momentum_buffer"));
}

}  // namespace
