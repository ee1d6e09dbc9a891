// Run folders: which iteration is opened, and what is said when none can be.
#include "ckpt/store/run_folder.h"

#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() { memory_->create_folder("run"); }

  void put_complete(const std::string& name) {
    memory_->put("run/" + name + "/.metadata", "x");
    memory_->put("run/" + name + "/metadata.json", "{}");
  }
  void put_tracker(const std::string& content) {
    memory_->put("run/latest_checkpointed_iteration.txt", content);
  }
  RunFolder read() { return read_run_folder(*memory_, "run"); }
  std::string chosen(std::string_view requested = "") {
    note_.clear();
    const RunFolder run = read();
    return choose_iteration(run, requested, &note_).name;
  }
  std::string message(ErrorKind kind, std::string_view requested = "") {
    try {
      const std::string name = chosen(requested);
      ADD_FAILURE() << "chose " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return {};
  }

  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
  std::string note_;
};

TEST_F(RunFolderTest, TrackerDecides) {
  put_complete("iter_0000005");
  put_complete("iter_0000010");
  put_tracker("5\n");
  EXPECT_EQ(chosen(), "iter_0000005");
  EXPECT_THAT(note_, HasSubstr("iter_0000010"));
  put_tracker("  10 ");
  EXPECT_EQ(chosen(), "iter_0000010");
  EXPECT_EQ(note_, "");
}

TEST_F(RunFolderTest, ReleaseAndWideIterations) {
  put_complete("release");
  put_complete("iter_123456789");
  put_tracker("release");
  EXPECT_EQ(chosen(), "release");
  EXPECT_EQ(chosen("123456789"), "iter_123456789");
  EXPECT_EQ(chosen("iter_123456789"), "iter_123456789");
  EXPECT_EQ(chosen("release"), "release");
}

TEST_F(RunFolderTest, IterationsAreSortedByNumber) {
  put_complete("iter_0000020");
  put_complete("iter_100");
  put_complete("release");
  put_complete("iter_0000003");
  std::vector<std::string> names;
  for (const IterationFolder& folder : read().iterations) names.push_back(folder.name);
  EXPECT_THAT(names, testing::ElementsAre("iter_0000003", "iter_0000020", "iter_100", "release"));
}

TEST_F(RunFolderTest, RequestedIterationMustBeThere) {
  put_complete("iter_0000005");
  put_tracker("5");
  EXPECT_THAT(
      message(ErrorKind::not_found, "7"),
      AllOf(HasSubstr("7"), HasSubstr("Complete there: 5"), HasSubstr("options.iteration=5")));
  EXPECT_THAT(message(ErrorKind::not_found, "release"), HasSubstr("release"));
  for (const char* wrong : {"latest", "-5", "5x", "0x5", "99999999999999999999", "iter_", "5 "}) {
    EXPECT_THAT(message(ErrorKind::invalid, wrong), HasSubstr("options.iteration")) << wrong;
  }
}

TEST_F(RunFolderTest, FaultyTrackers) {
  put_complete("iter_0000005");
  put_complete("iter_0000010");
  const auto advice = AllOf(HasSubstr("Complete there: 5, 10"), HasSubstr("options.iteration=10"));
  EXPECT_THAT(message(ErrorKind::not_found), AllOf(HasSubstr("no latest_"), advice));
  put_tracker("");
  EXPECT_THAT(message(ErrorKind::corrupt), AllOf(HasSubstr("is empty"), advice));
  put_tracker("1\x01\x80 2");
  EXPECT_THAT(message(ErrorKind::corrupt), AllOf(HasSubstr("'1?? 2'"), advice));
  put_tracker("-5");
  EXPECT_THAT(message(ErrorKind::corrupt), HasSubstr("'-5'"));
  put_tracker(std::string(1 << 20, '5'));
  EXPECT_THAT(message(ErrorKind::corrupt), HasSubstr("too long"));
  put_tracker("15");
  EXPECT_THAT(message(ErrorKind::not_found), AllOf(HasSubstr("15, which is not there"), advice));
  put_tracker("release");
  EXPECT_THAT(message(ErrorKind::not_found), AllOf(HasSubstr("release"), advice));
}

TEST_F(RunFolderTest, UnfinishedIterationsAreNamed) {
  put_complete("iter_0000005");
  memory_->put("run/iter_0000010/__0_0.distcp", "x");
  memory_->put("run/iter_0000015/mp_rank_00/model_optim_rng.pt", "x");
  memory_->create_folder("run/iter_0000015/mp_rank_01");
  memory_->create_folder("run/iter_0000020");
  memory_->put("run/iter_0000025/metadata.json", "{}");
  put_tracker("10");
  const std::string text = message(ErrorKind::not_found);
  EXPECT_THAT(text, HasSubstr("10, which is unfinished (neither .metadata nor metadata.json"));
  EXPECT_THAT(text, HasSubstr("15 (no model_optim_rng.pt in mp_rank_01)"));
  EXPECT_THAT(text, HasSubstr("20 (the folder is empty)"));
  EXPECT_THAT(text, HasSubstr("25 (no .metadata)"));
  EXPECT_THAT(text, HasSubstr("Complete there: 5."));
}

// Written between .metadata and metadata.json: Megatron-LM would not know the format.
TEST_F(RunFolderTest, MetadataWithoutItsMarkerIsUnfinishedForMegatronOnly) {
  memory_->put("run/iter_0000005/.metadata", "...common_state/shard_0_1...");
  memory_->put("run/iter_0000010/.metadata", "a plain DCP checkpoint");
  const RunFolder run = read();
  EXPECT_THAT(run.find(5)->unfinished(), HasSubstr("metadata.json"));
  EXPECT_TRUE(run.find(10)->complete());
}

// A run may hold hundreds of plain DCP checkpoints, with .metadata of hundreds of megabytes.
TEST_F(RunFolderTest, ReadsNoMoreMetadataThanItIsAskedFor) {
  class Counting : public MemoryFileSystem {
   public:
    std::shared_ptr<const ReadableFile> open(const std::string& path) const override {
      opened.push_back(path);
      return MemoryFileSystem::open(path);
    }
    mutable std::vector<std::string> opened;
  };
  const auto counting = std::make_shared<Counting>();
  memory_ = counting;
  for (const char* name : {"iter_0000005", "iter_0000010", "iter_0000015", "iter_0000020"}) {
    memory_->put(std::string("run/") + name + "/.metadata", "a plain DCP checkpoint");
  }
  memory_->put("run/iter_0000020/ferry.manifest.json", "the last file of all");
  put_tracker("15");
  EXPECT_EQ(chosen(), "iter_0000015");
  const std::vector<std::string> of_choice = counting->opened;
  EXPECT_THAT(of_choice, testing::ElementsAre("run/latest_checkpointed_iteration.txt",
                                              "run/iter_0000015/.metadata"));
  counting->opened.clear();
  EXPECT_EQ(read().latest()->name, "iter_0000020");
  EXPECT_THAT(counting->opened, testing::ElementsAre("run/latest_checkpointed_iteration.txt"));
}

TEST_F(RunFolderTest, WithoutTrackerTheOnlyCompleteOneIsTaken) {
  put_complete("iter_0000005");
  memory_->put("run/iter_0000010/__0_0.distcp", "x");
  EXPECT_EQ(chosen(), "iter_0000005");
  EXPECT_THAT(note_, HasSubstr("only complete"));
}

TEST_F(RunFolderTest, RecognisesRunFolders) {
  EXPECT_FALSE(is_run_folder(*memory_, "run"));
  memory_->put("run/iter_5", "a file, not a folder");
  EXPECT_FALSE(is_run_folder(*memory_, "run"));
  memory_->create_folder("run/release");
  EXPECT_FALSE(is_run_folder(*memory_, "run"));
  put_complete("release");
  EXPECT_TRUE(is_run_folder(*memory_, "run"));
}

TEST(Tracker, Parses) {
  EXPECT_EQ(parse_tracker("0").state, Tracker::State::iteration);
  EXPECT_EQ(parse_tracker("\t42\r\n").iteration, 42);
  EXPECT_EQ(parse_tracker("release\n").state, Tracker::State::release);
  for (const char* garbage : {"", " ", "Release", "1 2", "+1", "1e3", "9223372036854775808"}) {
    EXPECT_EQ(parse_tracker(garbage).state, Tracker::State::unreadable) << garbage;
  }
}

}  // namespace
}  // namespace ferry
