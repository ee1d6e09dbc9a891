// What verify() finds, and what it says: with and without a manifest.
#include "ckpt/integrity/verify.h"

#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "tests/integrity/written_folder.h"
#include "tests/support.h"

namespace ferry {
namespace {

using test::WrittenFolder;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> problems(const std::shared_ptr<MemoryFileSystem>& memory,
                                  const std::string& path, const std::string& iteration = {}) {
  VerifyOptions options;
  options.iteration = iteration;
  std::vector<std::string> lines;
  for (const Problem& problem : verify(memory, path, options).problems) {
    lines.push_back(problem.what);
  }
  return lines;
}

void flip(MemoryFileSystem& memory, const std::string& path, size_t at) {
  std::string content = memory.get(path);
  ASSERT_LT(at, content.size());
  content[at] = static_cast<char>(content[at] ^ 1);
  memory.put(path, content);
}

TEST(Verify, CountsWhatItChecked) {
  const WrittenFolder written({true, true});
  const VerifyReport report = verify(written.memory, "model/", {});
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_THAT(report.notes, IsEmpty());
  EXPECT_EQ(report.path, "model");
  EXPECT_EQ(report.format, "hf");
  EXPECT_TRUE(report.has_manifest);
  EXPECT_EQ(report.files, 7);
  EXPECT_EQ(report.tensors, 3);
  EXPECT_EQ(report.digests, 8);  // two headers, three tensors, three small files
  EXPECT_EQ(report.sha256s, 5);
  EXPECT_EQ(report.covered_bytes, report.bytes);
}

TEST(Verify, NamesFileOffsetAndTensor) {
  const WrittenFolder written({true, true});
  const std::string shard = written.path("model-00002-of-00002.safetensors");
  flip(*written.memory, shard, written.memory->get(shard).size() - 1);
  const VerifyReport report = verify(written.memory, "model", {});
  ASSERT_EQ(report.problems.size(), 1u);  // and not its SHA-256, too
  const Problem& problem = report.problems[0];
  EXPECT_EQ(problem.file, "model-00002-of-00002.safetensors");
  EXPECT_EQ(problem.bytes, 40u * 8 * 4);
  EXPECT_EQ(problem.offset, written.memory->get(shard).size() - problem.bytes);
  EXPECT_EQ(problem.holds, "tensor layer.40.weight [0:40, 0:8]");
  EXPECT_THAT(problem.what, AllOf(HasSubstr(shard + " at byte "), HasSubstr(problem.holds)));
}

TEST(Verify, FindsFilesThatAreMissingShorterLongerOrNotNamed) {
  const WrittenFolder written;
  MemoryFileSystem& memory = *written.memory;
  const std::string shard = written.path("model-00001-of-00002.safetensors");
  memory.put(shard, memory.get(shard).substr(0, memory.get(shard).size() - 1));
  memory.put(written.path("empty"), "no more");
  memory.remove_all(written.path("config.json"));
  memory.put(written.path("readme"), "mine");
  memory.put(written.path("inside/readme"), "mine");
  const VerifyReport report = verify(written.memory, "model", {});
  std::vector<std::string> lines;
  for (const Problem& problem : report.problems) lines.push_back(problem.what);
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("bytes, "), HasSubstr("were written"),
                                    HasSubstr("tensor layer.9.weight [0:9, 0:8] is cut off"))));
  EXPECT_THAT(lines, Contains(HasSubstr("model/empty: has 7 bytes, 0 were written")));
  EXPECT_THAT(lines, Contains(HasSubstr("model/config.json: is missing")));
  EXPECT_THAT(lines, testing::SizeIs(4)) << "and the reader's word on the cut shard";
}

TEST(Verify, DescribesFilesByTheirUseWhereNamesDoNot) {
  const WrittenFolder written;
  written.memory->put(written.path("notes/readme"), "mine");
  const VerifyReport noted = verify(written.memory, "model", {});
  EXPECT_THAT(noted.problems, IsEmpty());
  EXPECT_THAT(noted.notes, Contains("model/notes/readme: ferry.manifest.json does not name it"));

  Manifest manifest = parse_manifest(written.memory->get(written.path(kManifestName)), "m");
  manifest.files.erase(manifest.files.begin());
  written.memory->put(written.path(kManifestName), to_text(manifest));
  EXPECT_THAT(problems(written.memory, "model"),
              ElementsAre("model/model-00001-of-00002.safetensors: ferry.manifest.json does not "
                          "name it"));
}

TEST(Verify, GoesOnWithoutADamagedManifest) {
  const WrittenFolder written({true, true});
  flip(*written.memory, written.path(kManifestName), 100);
  flip(*written.memory, written.path("config.json"), 0);
  EXPECT_THAT(
      problems(written.memory, "model"),
      ElementsAre(HasSubstr("the digest at its end does not match"),
                  HasSubstr("config.json: not JSON"),
                  HasSubstr("config.json: damaged somewhere in its 24 bytes: the SHA-256")));
}

// A hash of a whole file does not show where the damage is, but what may be damaged.
TEST(Verify, ASha256NamesTheTensorsOfTheFile) {
  const WrittenFolder written({false, true});
  const std::string shard = written.path("model-00002-of-00002.safetensors");
  flip(*written.memory, shard, written.memory->get(shard).size() - 1);
  EXPECT_THAT(
      problems(written.memory, "model"),
      ElementsAre(AllOf(HasSubstr("damaged somewhere in its "), HasSubstr("which hold tensor "),
                        HasSubstr("the SHA-256 of integrity.json"))));
}

TEST(Verify, SaysWhatItCannotCheck) {
  const WrittenFolder written({false, false});
  const VerifyReport report = verify(written.memory, "model", {});
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_EQ(report.covered_bytes, 0u);
  EXPECT_THAT(report.notes,
              ElementsAre(HasSubstr("under no checksum (there is no ferry.manifest")));
  flip(*written.memory, written.path("model-00001-of-00002.safetensors"), 8);
  EXPECT_THAT(problems(written.memory, "model"), ElementsAre(HasSubstr("safetensors")));
}

TEST(Verify, WhatCannotBeReadIsReportedAsSuch) {
  EXPECT_THROW(verify(posix_file_system(), test::fixture("no/such"), {}), Error);
  const WrittenFolder written;
  written.memory->put("other/file", "x");
  EXPECT_THROW(verify(written.memory, "other/file", {}), Error) << "unsupported";
}

// A real run, without a manifest: the CRC-32s of its items.
struct Run : testing::Test {
  std::shared_ptr<MemoryFileSystem> memory = std::make_shared<MemoryFileSystem>();
  std::string folder = "run/iter_0000005";

  void SetUp() override { test::copy_tree(test::fixture("megatron/hot_llama"), *memory, "run"); }

  // Position of the elements of the final norm, in __0_0.distcp.
  size_t norm() const {
    const Checkpoint checkpoint = open_checkpoint(memory, "run");
    const Entry& entry = *checkpoint.catalog->find("decoder.final_layernorm.weight");
    return checkpoint.catalog->locator->locate(checkpoint.catalog, entry, entry.chunks[0])
        .extent.offset;
  }
};

TEST_F(Run, IsSound) {
  const VerifyReport report = verify(memory, "run", {});
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_EQ(report.path, folder);
  EXPECT_EQ(report.iteration, 5);
  EXPECT_EQ(report.format, "torch_dist");
  EXPECT_EQ(report.tensors, 9);
  EXPECT_GT(report.crc32s, 70 * 5);
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("are under no checksum")));
}

TEST_F(Run, ItsDamagedTensorIsNamed) {
  const size_t at = norm();
  flip(*memory, folder + "/__0_0.distcp", at + 10);
  const VerifyReport report = verify(memory, "run", {});
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].file, "__0_0.distcp");
  EXPECT_EQ(report.problems[0].offset, at);
  EXPECT_EQ(report.problems[0].bytes, 64u);
  EXPECT_EQ(report.problems[0].holds, "tensor decoder.final_layernorm.weight [0:32]");
  EXPECT_THAT(report.problems[0].what, HasSubstr("the CRC-32 of zip record archive/data/0"));
}

TEST_F(Run, RecordsWithoutCrc32AreCounted) {
  std::string data = memory->get(folder + "/__0_0.distcp");
  const size_t at = norm(), directory = data.find("PK\1\2", at);
  for (size_t entry = directory; entry < directory + 1000;) {
    entry = data.find("PK\1\2", entry + 1);
    if (data.compare(entry + 46, 14, "archive/data/0") != 0) continue;
    data.replace(entry + 16, 4, std::string(4, '\0'));
    break;
  }
  data[at] = static_cast<char>(data[at] ^ 1);
  memory->put(folder + "/__0_0.distcp", data);
  const VerifyReport report = verify(memory, "run", {});
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_THAT(report.notes, Contains("1 archives have records without a CRC-32"));
}

TEST_F(Run, MissingAndDamagedMetadataAreFound) {
  memory->remove_all(folder + "/__1_0.distcp");
  EXPECT_THAT(problems(memory, "run"), ElementsAre(HasSubstr("__1_0.distcp")));
  memory->put(folder + "/.metadata", "no pickle");
  EXPECT_THAT(problems(memory, "run"), ElementsAre(HasSubstr(".metadata")));
}

TEST_F(Run, AStaleTrackerIsFound) {
  memory->put("run/latest_checkpointed_iteration.txt", "7");
  EXPECT_THAT(problems(memory, "run"), ElementsAre(HasSubstr("the tracker names iteration 7")));
  EXPECT_THAT(problems(memory, "run", "5"), ElementsAre(HasSubstr("names iteration 7")));
  const VerifyReport report = verify(memory, "run", {});
  EXPECT_EQ(report.iteration, 5);
  EXPECT_THAT(report.notes, Contains(HasSubstr("checked: iter_0000005")));
  EXPECT_THROW(problems(memory, "run", "6"), Error);
  EXPECT_THROW(problems(memory, folder, "5"), Error) << "not a run folder";
  memory->put("run/latest_checkpointed_iteration.txt", "5");
  memory->create_folder("run/iter_0000009");
  EXPECT_THAT(verify(memory, "run", {}).notes, Contains(HasSubstr("iter_0000009 is unfinished")));
}

// There is nothing better to check, and much to report.
TEST_F(Run, AnUnfinishedIterationIsReportedOn) {
  memory->remove_all(folder + "/metadata.json");
  const auto unfinished = HasSubstr("iter_0000005 is unfinished: no metadata.json");
  EXPECT_THAT(problems(memory, "run"),
              AllOf(Contains(HasSubstr("the tracker names iteration 5")), Contains(unfinished)));
  EXPECT_THAT(problems(memory, "run", "5"), Contains(unfinished));
  EXPECT_THAT(problems(memory, folder), Contains(HasSubstr("without metadata.json")));
}

TEST_F(Run, WhatTheSystemDoesNotLetReadIsAProblemAndTheRestIsChecked) {
  class Locked : public MemoryFileSystem {
   public:
    std::shared_ptr<const ReadableFile> open(const std::string& path) const override {
      if (path.ends_with("/__1_0.distcp")) fail(ErrorKind::io, "{}: Permission denied", path);
      return MemoryFileSystem::open(path);
    }
  };
  memory = std::make_shared<Locked>();
  test::copy_tree(test::fixture("megatron/hot_llama"), *memory, "run");
  flip(*memory, folder + "/__0_0.distcp", norm());
  EXPECT_THAT(problems(memory, "run"),
              AllOf(Contains(HasSubstr("Permission denied")),
                    Contains(HasSubstr("tensor decoder.final_layernorm.weight"))));
}

// A tensor, and an object without which the optimizer's state has no meaning.
TEST_F(Run, ADamagedObjectDoesNotHideOtherDamage) {
  memory = std::make_shared<MemoryFileSystem>();
  test::copy_tree(test::fixture("megatron/llama_tp2dp2_dpr"), *memory, "run");
  const std::string file = folder + "/__1_0.distcp";
  memory->put(file, memory->get(folder + "/__0_0.distcp"));
  const VerifyReport report = verify(memory, "run", {});
  EXPECT_GT(report.crc32s, 500);
  EXPECT_GT(report.problems.size(), 1u);
}

TEST(VerifyLegacy, LostOptimizerFilesAreProblems) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  test::copy_tree(test::fixture("megatron/llama_legacy_tp2pp2"), *memory, "run");
  memory->remove_all("run/iter_0000005/mp_rank_01_001/distrib_optim.pt");
  const VerifyReport report = verify(memory, "run", {});
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_THAT(report.problems[0].what, HasSubstr("mp_rank_01_001"));
  EXPECT_THAT(report.notes, testing::Each(testing::Not(HasSubstr("mp_rank_01_001"))));
}

// Both readers and the check of the archive find the same damage.
TEST(VerifyLegacy, ATruncatedFileIsReportedOnce) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  test::copy_tree(test::fixture("megatron/llama_legacy_tp2pp2"), *memory, "run");
  const std::string file = "run/iter_0000005/mp_rank_01_001/distrib_optim.pt";
  memory->put(file, memory->get(file).substr(0, 3000));
  EXPECT_THAT(problems(memory, "run"), ElementsAre(HasSubstr(file)));
}

// A name that is damaged names a parameter that is not known, which is not an answer.
TEST(VerifyLegacy, DamagedNamesAreDamage) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  test::copy_tree(test::fixture("megatron/llama_legacy_tp2pp2"), *memory, "run");
  const std::string file = "run/iter_0000005/mp_rank_00_001/model_optim_rng.pt";
  const size_t at = memory->get(file).find("input_layernorm");
  ASSERT_NE(at, std::string::npos);
  flip(*memory, file, at);
  EXPECT_THAT(problems(memory, "run"),
              testing::IsSupersetOf({HasSubstr("CRC-32"), HasSubstr("it is unknown where")}));
}

TEST(VerifyLegacy, RanksFilesAreChecked) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  test::copy_tree(test::fixture("megatron/llama_legacy_tp2pp2"), *memory, "run");
  EXPECT_THAT(problems(memory, "run"), IsEmpty());
  const std::string file = "run/iter_0000005/mp_rank_01_000/model_optim_rng.pt";
  const std::string content = memory->get(file);
  const Checkpoint checkpoint = open_checkpoint(memory, "run", {{}, true});
  const auto at = [&] {
    for (const Entry& entry : checkpoint.catalog->entries) {
      const Extent& extent = entry.chunks[0].extent;
      if (checkpoint.catalog->files[extent.file].path == file) return extent.offset;
    }
    return uint64_t{0};
  }();
  ASSERT_GT(at, 0u);
  flip(*memory, file, at);
  EXPECT_THAT(problems(memory, "run"),
              ElementsAre(AllOf(HasSubstr(file), HasSubstr(": tensor "), HasSubstr("CRC-32"))));
}

TEST(VerifyZstd, StreamsAreDecoded) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  test::copy_tree(test::fixture("dcp_zstd"), *memory, "zstd");
  EXPECT_THAT(problems(memory, "zstd"), IsEmpty());
  for (const std::string& name : memory->list("zstd")) {
    if (!name.ends_with(".distcp")) continue;
    const std::string content = memory->get("zstd/" + name);
    flip(*memory, "zstd/" + name, content.find("\x28\xb5\x2f\xfd"));
    EXPECT_THAT(problems(memory, "zstd"),
                Contains(AllOf(HasSubstr(name), testing::MatchesRegex("(tensor|object) .*"))));
    break;
  }
}

}  // namespace
}  // namespace ferry
