// The optimizer's state of DeepSpeed and of FSDP's ranks as Megatron-LM's, of files that their own
// programs wrote (tests/interop/fixtures/make_deepspeed.py, make_verl.py).
// tests/interop/checkpoints/check_foreign.py compares values.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/core/plan.h"
#include "ckpt/megatron/state/edit.h"
#include "ckpt/megatron/torch_dist/torch_dist_writer.h"
#include "convert/import.h"
#include "convert/state_dict/state_dict.h"

namespace ferry {
namespace {

using testing::Contains;
using testing::HasSubstr;

const std::string kSources = FERRY_FIXTURES "/foreign/";

struct ImportedRun {
  Checkpoint checkpoint;
  StateDict state_dict;
  Import import;
};

// In place: its parts refer to each other.
void import_run(const std::string& source, ImportedRun& run, ImportOptions options = {}) {
  run.checkpoint = open_checkpoint(posix_file_system(), kSources + source);
  StateDictOptions state_dict;
  state_dict.config_folder = kSources + "model";
  state_dict.optimizer = true;
  run.state_dict = read_state_dict(run.checkpoint, state_dict);
  options.config_folder = run.state_dict.config_folder;
  options.optimizer = true;
  run.import = import_model(run.state_dict.model, options);
}

// All that a move says, as text.
std::string text_of(const std::vector<Move>& moves) {
  std::string text;
  for (const Move& move : moves) {
    text += fmt::format("{} {} -> {}", move.input, to_string(move.in_origin),
                        to_string(move.out_origin));
    for (const Loop& loop : move.loops) {
      text += fmt::format(" ({} {} {} {} {})", loop.count, loop.in_axis, loop.in_step,
                          loop.out_axis, loop.out_step);
    }
    text += "\n";
  }
  return text;
}

class OptimizerImport : public testing::TestWithParam<std::string> {};

// A moment goes where its weight goes: the same moves, from the state of the same parameters.
TEST_P(OptimizerImport, FollowsTheRulesOfTheWeights) {
  ImportedRun run;
  ImportOptions options;
  options.dtype = DType::bf16;
  import_run(GetParam(), run, options);
  const RunState& state = run.import.state;
  const auto& entries = run.state_dict.model.catalog->entries;
  std::map<std::string, const StateTensor*> model;
  for (const StateTensor& tensor : state.tensors) {
    if (tensor.role == Role::model) model[tensor.name] = &tensor;
  }
  size_t moments = 0;
  for (const StateTensor& tensor : state.tensors) {
    if (tensor.role != Role::optimizer) continue;
    ++moments;
    const StateTensor* weight = model.at(std::string(model_name(tensor.name)));
    EXPECT_EQ(tensor.dtype, DType::f32);
    EXPECT_EQ(weight->dtype, DType::bf16);
    EXPECT_EQ(tensor.shape, weight->shape);
    EXPECT_EQ(text_of(tensor.recipe.moves), text_of(weight->recipe.moves)) << tensor.name;
    EXPECT_EQ(tensor.recipe.zeros, weight->recipe.zeros);
    const std::string prefix = tensor.name.substr(0, tensor.name.size() - weight->name.size());
    ASSERT_EQ(tensor.recipe.inputs.size(), weight->recipe.inputs.size());
    for (size_t i = 0; i < tensor.recipe.inputs.size(); ++i) {
      EXPECT_EQ(entries[tensor.recipe.inputs[i]].name,
                prefix + entries[weight->recipe.inputs[i]].name);
    }
  }
  EXPECT_EQ(moments, 2 * model.size());
}

TEST_P(OptimizerImport, IsPlannedWhole) {
  ImportedRun run;
  ImportOptions options;
  options.layout.tensor = 1;
  options.layout.pipeline = 2;
  import_run(GetParam(), run, options);
  TorchDistOptions writer;
  const PlannedOutput planned = plan_torch_dist(std::move(run.import.state), writer);
  EXPECT_NO_THROW(check(planned.plan));
  size_t masters = 0;
  for (const Entry& entry : planned.plan.target.entries) {
    masters += entry.name.starts_with("optimizer.state.param.");
  }
  EXPECT_GT(masters, 0u);
}

INSTANTIATE_TEST_SUITE_P(Sources, OptimizerImport,
                         testing::Values("ds/zero2", "ds/zero3", "ds/zero2_universal",
                                         "verl/fsdp2"));

TEST(OptimizerState, HasGroupsStepsAndAScheduleThatKeepsTheRate) {
  ImportedRun run;
  import_run("ds/zero3", run);
  const RunState& state = run.import.state;
  EXPECT_EQ(state.iteration, 2);
  ASSERT_EQ(state.param_groups.size(), 1u);
  const Value groups = state.param_groups[0].value;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].get("weight_decay").real(), 0.1);
  EXPECT_EQ(groups[1].get("weight_decay").real(), 0.0);
  EXPECT_EQ(groups[0].get("wd_mult").real(), 1.0);
  EXPECT_EQ(groups[1].get("wd_mult").real(), 0.0);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(groups[i].get("step").integer(), 2);
    EXPECT_EQ(groups[i].get("lr").real(), 1e-3);
    EXPECT_EQ(groups[i].get("betas")[1].real(), 0.999);
  }
  const Value args = state.args.value;
  EXPECT_EQ(args.get("no_save_optim").boolean(), false);
  EXPECT_EQ(args.get("use_distributed_optimizer").boolean(), true);
}

TEST(OptimizerState, OneGroupThatDecaysAllIsReported) {
  ImportedRun run;
  import_run("verl/fsdp2", run);
  EXPECT_THAT(run.import.state.warnings, Contains(HasSubstr("decayed all parameters by 0.01")));
}

TEST(OptimizerState, FrozenTensorsHaveNone) {
  ImportedRun run;
  ImportOptions options;
  options.dtype = DType::f32;
  import_run("ds/zero3_frozen", run, options);
  EXPECT_THAT(run.import.state.warnings,
              Contains(HasSubstr("1 tensors have no optimizer state, as they were not trained: "
                                 "embedding.word_embeddings.weight")));
  for (const StateTensor& tensor : run.import.state.tensors) {
    if (tensor.role == Role::optimizer) {
      EXPECT_THAT(tensor.name, testing::Not(HasSubstr("word_embeddings")));
    }
  }
}

// One layer of a stack without: there is no half of a tensor's state.
TEST(OptimizerState, OfSomeLayersIsRefused) {
  ImportedRun run;
  import_run("ds/zero2", run);
  auto& entries = run.state_dict.model.catalog.edit().entries;
  std::erase_if(entries, [](const Entry& entry) {
    return entry.name == "optimizer.state.exp_avg.model.layers.1.mlp.up_proj.weight";
  });
  ImportOptions options;
  options.config_folder = run.state_dict.config_folder;
  options.optimizer = true;
  try {
    import_model(run.state_dict.model, options);
    FAIL() << "was imported";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_THAT(error.what(), HasSubstr("optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1"));
  }
}

TEST(OptimizerState, ThatIsNotThereIsRefused) {
  const std::pair<std::string, std::string> cases[] = {{"lightning.ckpt", "holds no exp_avg"},
                                                       {"verl/hsdp", "holds no exp_avg"}};
  for (const auto& [source, words] : cases) {
    ImportedRun run;
    try {
      import_run(source, run);
      ADD_FAILURE() << "was imported";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }
  ImportedRun run;
  import_run("ds/zero2", run);
  run.state_dict.model.param_groups = {};
  ImportOptions options;
  options.config_folder = run.state_dict.config_folder;
  options.optimizer = true;
  EXPECT_THROW(import_model(run.state_dict.model, options), Error);
}

}  // namespace
}  // namespace ferry
