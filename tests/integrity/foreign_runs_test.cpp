// verify() and seal() of runs of other programs, and of paths that are not a checkpoint.
#include <gmock/gmock.h>

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/integrity/verify.h"
#include "tests/support.h"

namespace ferry {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

using test::fixture;

class ForeignRun : public testing::Test {
 protected:
  VerifyReport check(const std::string& path, const std::string& iteration = "") {
    VerifyOptions options;
    options.iteration = iteration;
    return verify(memory_, path, options);
  }
  std::optional<ErrorKind> kind_of(const std::string& path, const std::string& iteration = "") {
    try {
      check(path, iteration);
    } catch (const Error& error) {
      return error.kind();
    }
    return std::nullopt;
  }
  void flip_last(const std::string& path) {
    std::string content = memory_->get(path);
    const size_t at = content.size() / 2;
    content[at] = static_cast<char>(content[at] ^ 1);
    memory_->put(path, content);
  }
  void make_verl() {
    test::copy_tree(fixture("foreign/verl/fsdp2"), *memory_, "run");
    memory_->put("run/latest_checkpointed_iteration.txt", "1");
  }
  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
};

TEST_F(ForeignRun, VerlsStepIsVerifiedAndSealed) {
  make_verl();
  const VerifyReport report = check("run");
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_EQ(report.path, "run/global_step_1/actor");
  EXPECT_EQ(report.iteration, 1);
  EXPECT_EQ(check("run", "1").path, report.path);
  EXPECT_EQ(kind_of("run", "2"), ErrorKind::not_found);
  EXPECT_EQ(seal(memory_, "run", {}).path, report.path);
  EXPECT_TRUE(check("run").has_manifest);
  const std::string rank = report.path + "/model_world_size_2_rank_1.pt";
  flip_last(rank);
  EXPECT_THAT(check("run").problems, Not(IsEmpty()));
}

TEST_F(ForeignRun, AStepIsVerifiedWithAllItsParts) {
  const std::string from = fixture("foreign/training/accelerate_fsdp");
  test::copy_tree(from + "/pytorch_model_fsdp_0", *memory_, "run/step_10/policy/weights");
  test::copy_tree(from + "/optimizer_0", *memory_, "run/step_10/policy/optimizer");
  EXPECT_THAT(check("run").problems, IsEmpty());
  EXPECT_EQ(check("run").path, "run/step_10");
  flip_last("run/step_10/policy/optimizer/__0_0.distcp");
  EXPECT_THAT(check("run").problems, SizeIs(1));
}

TEST_F(ForeignRun, AnArchivesRecordsAreChecked) {
  test::copy_tree(fixture("wild/nemo1"), *memory_, "x");
  const VerifyReport sound = check("x/llama.nemo");
  EXPECT_THAT(sound.problems, IsEmpty());
  EXPECT_GT(sound.crc32s, 5);
  EXPECT_LE(sound.covered_bytes, sound.bytes);
  EXPECT_EQ(check("x").crc32s, sound.crc32s);
  EXPECT_EQ(seal(memory_, "x", {}).files, 1);
  EXPECT_THAT(check("x").problems, IsEmpty());
  memory_->remove_all("x/ferry.manifest.json");
  flip_last("x/llama.nemo");
  EXPECT_THAT(check("x").problems, SizeIs(1));
  EXPECT_THAT(check("x/llama.nemo").problems, SizeIs(1));
}

TEST_F(ForeignRun, AWrongPathIsNotDamage) {
  make_verl();
  EXPECT_EQ(kind_of("run/global_step_2"), ErrorKind::not_found);
  memory_->put("empty/x", "");
  memory_->remove_all("empty/x");
  EXPECT_EQ(kind_of("empty"), ErrorKind::not_found);
  memory_->put("folder/notes.txt", "text");
  EXPECT_EQ(kind_of("folder"), ErrorKind::unsupported);
  test::copy_tree(fixture("dcp/old"), *memory_, "above/inside");
  EXPECT_EQ(kind_of("above"), ErrorKind::not_found);
  EXPECT_EQ(kind_of("s3://bucket/run"), ErrorKind::unsupported);
  memory_->remove_all("above/inside/.metadata");  // which was one
  EXPECT_THAT(check("above/inside").problems, Not(IsEmpty()));
}

}  // namespace
}  // namespace ferry
