// What runs begin with.
#include "tests/trainer/language/runs.h"

namespace ferry::test {
namespace {

class RunSource : public testing::Test {
 protected:
  std::string words(const std::string& from, const std::string& more) const {
    return "--load " + from + common_words(scratch_) + "--eval-iters 0 " + more;
  }
  void ferry(const std::string& words) const {
    const std::string command = std::string(FERRY_PROGRAM) + " " + words + " >/dev/null 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }

  const Scratch scratch_;
};

constexpr const char* kOneIteration = "--finetune --train-iters 1 ";

TEST_F(RunSource, AHuggingFaceFolderIsAModel) {
  // Rows of padding count in the softmax: without them it would be another model.
  ferry("convert --to hf --keep-padding " + run_fixture("f32_qwen3") + " " + scratch_.path("hf"));
  const auto expected = figures_in(run_of(words(run_fixture("f32_qwen3"), kOneIteration)));
  for (const char* layout : {layout::kAlone, layout::kTensor, layout::kPipeline}) {
    const auto figures =
        figures_in(run_of(words(scratch_.path("hf"), std::string("--train-iters 1 ") + layout)));
    ASSERT_EQ(figures.size(), 1u);
    EXPECT_NEAR(figures.at(1).loss, expected.at(1).loss, 2e-6) << layout;
    EXPECT_NEAR(figures.at(1).norm, expected.at(1).norm, 1e-3) << layout;
  }
}

// Rank folders, at whatever layout, as what a conversion makes of them.
TEST_F(RunSource, ALegacyRunIsGoneOnWith) {
  const std::string legacy = run_fixture("llama_legacy_tp2pp2");
  ferry("reshard --to torch_dist " + legacy + " " + scratch_.path("new"));
  const std::string more = "--bf16 --override-opt-param-scheduler --exit-interval 8 ";
  const auto expected = figures_in(run_of(words(scratch_.path("new"), more)));
  const auto figures = figures_in(run_of(words(legacy, more)));
  ASSERT_EQ(figures.size(), 3u);
  for (const auto& [iteration, figure] : figures) {
    EXPECT_EQ(figure.loss, expected.at(iteration).loss) << iteration;
    EXPECT_EQ(figure.norm, expected.at(iteration).norm) << iteration;
  }
}

// The run says that its modules are local, and has the names of Transformer Engine's: what saved it
// looks for these. Other modules than the run's look for their own.
TEST_F(RunSource, NormsHaveTheNamesThatTheModulesLookFor) {
  const std::string peer = run_fixture("f32_deepseek"), fused = " --transformer-impl ";
  ferry("convert --to hf --keep-padding " + peer + " " + scratch_.path("hf"));
  ferry("reshard --transformer-impl local " + peer + " " + scratch_.path("own"));
  const auto norms = [](const std::string& path) {
    const Checkpoint checkpoint = open_checkpoint(posix_file_system(), path);
    std::vector<std::string> names;
    for (const Entry& entry : checkpoint.catalog->entries) {
      const bool is_norm = entry.name.find("norm") != std::string::npos;
      if (is_norm && entry.role == Role::model) names.push_back(entry.name);
    }
    std::ranges::sort(names);
    return names;
  };
  const auto saved = [&](const std::string& from, const std::string& more) {
    const std::string run = scratch_.path("saved");
    fs::remove_all(run);
    run_of(words(from, "--exit-interval 1 --save-interval 1 --finetune " + more) + " --save " +
           run);
    return norms(run);
  };
  const auto own = norms(scratch_.path("own"));
  EXPECT_NE(own, norms(peer));
  EXPECT_EQ(saved(peer, ""), norms(peer));
  EXPECT_EQ(saved(scratch_.path("own"), ""), own);
  EXPECT_EQ(saved(scratch_.path("own"), fused + "transformer_engine"), norms(peer));
  EXPECT_EQ(saved(scratch_.path("hf"), ""), own);
  EXPECT_EQ(saved(peer, "--ckpt-format torch"), own);
}

TEST_F(RunSource, TheVocabularyMayHaveAnotherPadding) {
  const std::string more = "--exit-interval 6 --save-interval 10 --save " + scratch_.path("run");
  run_of(words(run_fixture("f32_qwen3"), more + " --padded-vocab-size 320"));
  const Checkpoint wider = open_checkpoint(posix_file_system(), scratch_.path("run"));
  int found = 0;
  for (const Entry& entry : wider.catalog->entries) {
    if (!entry.name.ends_with("embedding.word_embeddings.weight")) continue;
    EXPECT_EQ(entry.shape[0], 320) << entry.name;
    ++found;
  }
  EXPECT_EQ(found, 3);  // with both moments
  const Outcome cut = outcome_of(words(scratch_.path("run"), "--padded-vocab-size 128"));
  EXPECT_THAT(cut.problem, testing::HasSubstr("128"));
}

TEST_F(RunSource, IsTheOneAskedFor) {
  const std::string run = scratch_.path("run");
  const std::string common = common_words(scratch_) + "--eval-iters 0 ";
  const std::string save = "--save " + run + " --save-interval 2 ";
  run_of("--load " + run_fixture("f32_qwen3") + " " + save + common + "--exit-interval 10");
  const auto first = [&](const std::string& more) {
    const auto figures = figures_in(run_of(more + common));
    return figures.empty() ? int64_t{-1} : figures.begin()->first;
  };
  EXPECT_EQ(first("--load " + run + " --exit-interval 12 "), 11);
  EXPECT_EQ(first("--load " + run + " --ckpt-step 8 --exit-interval 10 "), 9);
  EXPECT_EQ(first("--load " + run + " --finetune --exit-interval 2 "), 1);
  const std::string none = scratch_.path("none"), pretrained = " --pretrained-checkpoint " + run;
  EXPECT_EQ(first("--load " + none + pretrained + " --exit-interval 2 "), 1);
  EXPECT_EQ(first("--load " + run + pretrained + " --exit-interval 12 "), 11);
  const Outcome missing =
      outcome_of("--load " + none + " --exit-on-missing-checkpoint --num-layers 2" + common);
  EXPECT_THAT(missing.problem, testing::HasSubstr(none));
  EXPECT_THAT(outcome_of("--pretrained-checkpoint " + none + common).problem,
              testing::HasSubstr(none));
}

// Not in silence: a path that is misspelled would cost a run.
TEST_F(RunSource, IsMissedAloud) {
  const std::string none = scratch_.path("none");
  const auto printed = [&](const std::string& load) {
    return run_of(
        "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --max-position-embeddings 64 " +
        load + common_words(scratch_) + "--eval-iters 0 --exit-interval 1");
  };
  EXPECT_THAT(printed("--load " + none),
              testing::HasSubstr("WARNING: there is no checkpoint in --load " + none));
  EXPECT_THAT(printed(""), testing::Not(testing::HasSubstr("WARNING")));
  // The folder above the run's.
  const std::string run = scratch_.path("logs/today/run");
  fs::create_directories(run);
  printed("--save " + run + " --save-interval 1 ");
  EXPECT_THAT(printed("--load " + scratch_.path("logs")),
              testing::HasSubstr("to stop instead). There is one in " + run + "\n"));
}

// The later of both kinds.
TEST_F(RunSource, MayBeANonPersistentOne) {
  const std::string run = scratch_.path("run");
  const std::string words = "--load " + run + " --save " + run + common_words(scratch_) +
                            "--eval-iters 0 --save-interval 10 --non-persistent-save-interval 2 "
                            "--non-persistent-ckpt-type global ";
  fs::copy(run_fixture("f32_qwen3"), run, fs::copy_options::recursive);
  // A trigger file ends the run without a save.
  std::ofstream(scratch_.path("exit")) << "";
  const auto trigger =
      " --trigger-path " + scratch_.path("") + " --log-interval 9 --exit-trigger exit ";
  EXPECT_EQ(outcome_of(words + trigger).problem, "");
  // It goes once it is obeyed: the next run goes on.
  EXPECT_FALSE(fs::exists(scratch_.path("exit")));
  EXPECT_EQ(figures_in(run_of(words + "--exit-interval 10 ")).begin()->first, 9);
  // It is next to what is loaded, wherever the run saves.
  fs::remove_all(run + "/iter_0000010");
  std::ofstream(run + "/latest_checkpointed_iteration.txt") << 5;
  const std::string elsewhere = words + " --save " + scratch_.path("elsewhere") + " ";
  EXPECT_EQ(figures_in(run_of(elsewhere + "--exit-interval 10 ")).begin()->first, 9);
}

}  // namespace
}  // namespace ferry::test
