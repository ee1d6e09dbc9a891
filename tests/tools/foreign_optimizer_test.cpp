// `ferry convert --optimizer` of what other programs saved with PyTorch's distributed checkpoints.
// tests/interop/checkpoints/check_foreign.py compares more of them with what these programs load.
#include <cstring>
#include <map>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "tests/support.h"
#include "tests/tools/program.h"

namespace ferry::tool {
namespace {

using test::fixture;
using test::Outcome;
using testing::HasSubstr;

class ForeignOptimizer : public test::Program {
 protected:
  static std::map<std::string, std::vector<float>> tensors_of(const std::string& run) {
    const Checkpoint checkpoint = open_checkpoint(posix_file_system(), run);
    std::map<std::string, std::vector<float>> tensors;
    for (const Entry& entry : checkpoint.catalog->entries) {
      const std::string bytes = read_tensor(checkpoint.catalog, entry, 1 << 20);
      auto& tensor = tensors[entry.name];
      if (entry.dtype != DType::f32) continue;
      tensor.resize(bytes.size() / sizeof(float));
      std::memcpy(tensor.data(), bytes.data(), bytes.size());
    }
    return tensors;
  }
};

// Its moments were made of the weights: -w / 2 and w * w. Queries and keys have rows in another
// order there, and so have their moments.
TEST_F(ForeignOptimizer, TorchtitansMomentsGoWithTheirWeights) {
  const Outcome outcome = ferry("convert " + fixture("foreign/titan_dcp") + " " + path("run") +
                                " --to torch_dist --optimizer --tp 1 --pp 1");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(std::filesystem::exists(path("run/iter_0000007")));
  const auto tensors = tensors_of(path("run"));
  size_t weights = 0;
  for (const auto& [name, weight] : tensors) {
    if (name.starts_with("optimizer.")) continue;
    ++weights;
    const auto& first = tensors.at("optimizer.state.exp_avg." + name);
    const auto& second = tensors.at("optimizer.state.exp_avg_sq." + name);
    ASSERT_EQ(first.size(), weight.size());
    ASSERT_EQ(second.size(), weight.size());
    for (size_t i = 0; i < weight.size(); ++i) {
      ASSERT_EQ(first[i], weight[i] * -0.5F) << name << " " << i;
      ASSERT_EQ(second[i], weight[i] * weight[i]) << name << " " << i;
    }
  }
  EXPECT_EQ(weights, 9u);
  // The weights are those of the model by way of a Hugging Face folder.
  ASSERT_EQ(ferry("convert " + fixture("foreign/titan_dcp") + " " + path("hf") + " --to hf").code,
            0);
  ASSERT_EQ(ferry("convert " + path("hf") + " " + path("alone") + " --to torch_dist").code, 0);
  for (const auto& [name, weight] : tensors_of(path("alone"))) {
    EXPECT_EQ(weight, tensors.at(name)) << name;
  }
}

TEST_F(ForeignOptimizer, TorchtitansLastCompleteStepIsRead) {
  const std::filesystem::path run = path("titan");
  std::filesystem::copy(fixture("foreign/titan_dcp"), run,
                        std::filesystem::copy_options::recursive);
  std::filesystem::copy(run / "step-7", run / "step-10");
  std::filesystem::create_directory(run / "step-20");
  const auto opened = [&] { return ferry("inspect --json " + run.string()).out; };
  EXPECT_THAT(opened(), HasSubstr("titan/step-10\""));
  std::filesystem::remove(run / "step-10" / ".metadata");
  EXPECT_THAT(opened(), HasSubstr("titan/step-7\""));
  EXPECT_THAT(ferry("inspect " + run.string() + " --iteration 5").err,
              HasSubstr("holds no step 5; there are step-7"));
}

// One folder with all that PyTorch loads of Accelerate's two.
TEST_F(ForeignOptimizer, ReshardToDcpJoinsModelAndOptimizer) {
  const std::string source = fixture("foreign/training/accelerate_fsdp");
  ASSERT_EQ(ferry("reshard " + source + " " + path("dcp") + " --to dcp").code, 0);
  const auto joined = tensors_of(path("dcp"));
  for (const std::string part : {"/pytorch_model_fsdp_0", "/optimizer_0"}) {
    for (const auto& [name, tensor] : tensors_of(source + part)) {
      EXPECT_EQ(tensor, joined.at(name)) << name;
    }
  }
  EXPECT_EQ(joined.size(), 84u);
  EXPECT_EQ(ferry("diff " + source + " " + path("dcp")).code, 0);
}

// What FSDP writes next to weights that were gathered, or merged later.
TEST_F(ForeignOptimizer, ADcpNextToAHuggingFaceModelGoesAlong) {
  const std::string source = fixture("foreign/training/accelerate_fsdp");
  ASSERT_EQ(ferry("convert " + source + " " + path("hf") + " --to hf").code, 0);
  std::filesystem::copy(source + "/optimizer_0", path("hf/optimizer_0"));
  for (const std::string& from : {source, path("hf")}) {
    const Outcome outcome = ferry("convert " + from + " " + path("run") +
                                  " --overwrite --to torch_dist --optimizer --dtype fp32");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    std::filesystem::rename(path("run"), path(from == source ? "joined" : "apart"));
  }
  const auto joined = tensors_of(path("joined"));
  EXPECT_EQ(joined.size(), 36u);
  EXPECT_EQ(joined, tensors_of(path("apart")));
}

TEST_F(ForeignOptimizer, AnOptimizerThatCountsIsNamed) {
  const Outcome outcome =
      ferry("convert " + fixture("foreign/lightning.ckpt") + " " + path("run") +
            " --to torch_dist --optimizer --config " + fixture("foreign/model"));
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("without --optimizer the model alone is written"));
}

}  // namespace
}  // namespace ferry::tool
