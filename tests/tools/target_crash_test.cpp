// `ferry convert` and `ferry reshard`, killed, failing or disturbed at every one of their file
// operations, on the real file system, for each format that they write: what was there opens, the
// tracker names a complete checkpoint, nothing unfinished has a final name, and the next run cleans
// up and succeeds. A source that is cut short while it is read, and several at one target.
#include <gmock/gmock.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/integrity/manifest/manifest.h"
#include "ckpt/integrity/verify.h"
#include "ckpt/store/run_folder.h"
#include "convert/model/family.h"
#include "ops/convert.h"
#include "ops/reshard.h"
#include "tests/faults/crash.h"
#include "tests/support.h"

namespace ferry::test {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;

struct Job {
  std::string source, target;
  bool overwrite = false;
  bool manifest = true;
};
using Write = std::function<void(const Job& job)>;

Write reshard_to(ReshardFormat format) {
  return [format](const Job& job) {
    ReshardOptions options;
    options.source = job.source;
    options.target = job.target;
    options.to = format;
    options.only = {"*final_layernorm*"};  // few operations, each of which is a run of its own
    options.write.overwrite = job.overwrite;
    options.write.integrity.manifest = job.manifest;
    options.write.engine.threads = 1;  // the order of operations is the same each time
    reshard(options);
  };
}

Write convert_to(ConvertTarget format) {
  return [format](const Job& job) {
    ConvertOptions options;
    options.source = job.source;
    options.target = job.target;
    options.to = format;
    options.drop_unknown = format != ConvertTarget::hugging_face;  // see make_source()
    options.write.overwrite = job.overwrite;
    options.write.integrity.manifest = job.manifest;
    options.write.engine.threads = 1;  // the order of operations is the same each time
    convert(options);
  };
}

// What stands at the target before.
enum class Before { nothing, another_iteration, the_same };

struct Target {
  const char* name;
  const char* source;  // a fixture, or "hf"
  Write write;
  const char* iteration;  // its folder in the run; empty when the target is not a run
  size_t tensors;
  Before before;
};
void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

class TargetCrash : public testing::TestWithParam<Target> {
 protected:
  TargetCrash() {
    families();  // once, and not in each of the many processes that begin as this one is now
    make_source();
    if (GetParam().before == Before::the_same) make_old();
    test_.prepare = [this] { prepare(); };
    test_.operation = [this] { GetParam().write({source_, target_, true}); };
    test_.check = [this] { check(); };
    test_.check_done = [this] { check_done(); };
    test_.named = folder_.path();
  }

  bool in_run() const { return *GetParam().iteration != '\0'; }
  std::string written(const std::string& target) const {
    return in_run() ? join(target, GetParam().iteration) : target;
  }

  // What the run folder is opened as: the tracker does not go from an iteration to a release.
  std::string tracked() const {
    const bool stays = GetParam().before == Before::another_iteration &&
                       GetParam().iteration == std::string(kReleaseName);
    return stays ? target_ + "/iter_0000003" : written(target_);
  }

  // "hf": a Hugging Face model, which is of one layer, whatever tensors its file has.
  void make_source() const {
    if (GetParam().source != std::string("hf")) {
      fs::copy(fixture(GetParam().source), source_, fs::copy_options::recursive);
      return;
    }
    run_well([this] {
      convert_to(ConvertTarget::hugging_face)({fixture("megatron/hot_llama"), source_});
    });
    const std::string path = source_ + "/config.json";
    auto config = nlohmann::json::parse(read_file(*files_, path, 1 << 20));
    config["num_hidden_layers"] = 1;
    std::ofstream(path) << config;
    write_file(*files_, source_ + "/tokenizer.json", "{}");
  }

  // An earlier target, which differs by one file.
  void make_old() const {
    run_well([this] { GetParam().write({source_, kept_.path("old"), false, false}); });
  }

  // In a child: no thread is left in this process, which forks.
  static void run_well(const std::function<void()>& operation) {
    const Ending ending = run_in_child(operation, {});
    ASSERT_FALSE(ending.failed) << ending.message;
  }

  void prepare() const {
    folder_.clear();
    if (GetParam().before == Before::the_same) {
      fs::copy(kept_.path("old"), target_, fs::copy_options::recursive);
    } else if (GetParam().before == Before::another_iteration) {
      fs::create_directories(target_);
      fs::copy(fixture("megatron/hot_llama/iter_0000005"), target_ + "/iter_0000003");
      write_file(*files_, target_ + "/" + std::string(kTrackerName), "3");
    }
  }

  // What can be opened by its name is whole, and what was there is there.
  void check() const {
    if (!fs::exists(target_)) {
      EXPECT_EQ(GetParam().before, Before::nothing);
      return;
    }
    if (in_run()) expect_good_run(target_);
    if (GetParam().before == Before::another_iteration) {
      EXPECT_NO_THROW(open_checkpoint(files_, target_ + "/iter_0000003"));
    }
    if (fs::exists(written(target_))) {
      expect_whole(written(target_));
    } else {
      EXPECT_EQ(GetParam().before, Before::another_iteration);
    }
  }

  void check_done() const {
    check();
    expect_clean(folder_.path());
    expect_clean(target_);
    EXPECT_TRUE(fs::exists(join(written(target_), std::string(kManifestName))));
    EXPECT_EQ(open_checkpoint(files_, target_).path, tracked());
    const Checkpoint iteration = open_checkpoint(files_, written(target_));
    EXPECT_EQ(iteration.catalog->entries.size(), GetParam().tensors);
  }

  void expect_whole(const std::string& path) const {
    try {
      const VerifyReport report = verify(files_, path, {});
      for (const Problem& problem : report.problems) ADD_FAILURE() << problem.what;
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }

  const std::shared_ptr<const FileSystem> files_ = posix_file_system();
  const CrashFolder kept_, folder_;  // what stays, and what each strike begins with anew
  const std::string source_ = kept_.path("source"), target_ = folder_.path("target");
  CrashCase test_;
};

class TargetFaults : public TargetCrash {};
class TargetTogether : public TargetCrash {};

TEST_P(TargetCrash, Killed) { EXPECT_GT(kill_at_every_operation(test_), 30u); }

TEST_P(TargetFaults, Failing) {
  EXPECT_GT(fail_at_every_operation(test_, ENOSPC, true), 30u);
  EXPECT_GT(fail_at_every_operation(test_, EIO, false), 30u);
}

TEST_P(TargetFaults, ShortCountsAndInterruptionsAreContinued) {
  EXPECT_GT(disturb_every_operation(test_, Fault::short_count), 30u);
  EXPECT_GT(disturb_every_operation(test_, Fault::interrupt), 30u);
}

TEST_P(TargetFaults, FilesThatShrinkWhileTheyAreRead) {
  const std::string whole = kept_.path("whole");
  fs::rename(source_, whole);
  test_.prepare = [&] {
    prepare();
    fs::remove_all(source_);
    fs::copy(whole, source_, fs::copy_options::recursive);
  };
  test_.named = source_;
  EXPECT_GT(shrink_at_every_read(test_, "/source/"), 10u);
}

TEST_P(TargetTogether, OneOfSeveralAtOneTargetWins) {
  const auto write_once = [this] { GetParam().write({source_, target_}); };
  for (int round = 0; round < 5 && !HasFailure(); ++round) {
    prepare();
    int done = 0;
    for (const Ending& ending :
         run_together(std::vector<std::function<void()>>(4, write_once), {})) {
      done += ending.failed ? 0 : 1;
      if (ending.failed) {
        EXPECT_THAT(ending.message, AnyOf(HasSubstr("is being "), HasSubstr("exists")));
      }
    }
    EXPECT_EQ(done, 1);
    check_done();
  }
}

// Each format once.
const Target kFormats[] = {
    {"reshard_torch_dist", "megatron/hot_llama", reshard_to(ReshardFormat::torch_dist),
     "iter_0000005", 1, Before::another_iteration},
    {"reshard_torch", "megatron/llama_tp2dp2_dpr", reshard_to(ReshardFormat::torch), "iter_0000005",
     4, Before::another_iteration},
    {"reshard_dcp", "megatron/hot_llama", reshard_to(ReshardFormat::dcp), "", 1, Before::nothing},
    {"convert_hf", "megatron/hot_llama", convert_to(ConvertTarget::hugging_face), "", 39,
     Before::nothing},
    {"convert_torch_dist", "hf", convert_to(ConvertTarget::torch_dist), "release", 9,
     Before::another_iteration},
    {"convert_torch", "hf", convert_to(ConvertTarget::torch), "release", 9,
     Before::another_iteration},
};
// And each way to put a target in place.
const Target kPlaces[] = {
    {"a_new_run", "megatron/hot_llama", reshard_to(ReshardFormat::torch_dist), "iter_0000005", 1,
     Before::nothing},
    {"a_replaced_iteration", "hf", convert_to(ConvertTarget::torch_dist), "release", 9,
     Before::the_same},
    {"a_replaced_model", "megatron/hot_llama", convert_to(ConvertTarget::hugging_face), "", 39,
     Before::the_same},
};
std::string name_of(const testing::TestParamInfo<Target>& each) { return each.param.name; }

INSTANTIATE_TEST_SUITE_P(Formats, TargetCrash, testing::ValuesIn(kFormats), name_of);
INSTANTIATE_TEST_SUITE_P(Places, TargetCrash, testing::ValuesIn(kPlaces), name_of);
INSTANTIATE_TEST_SUITE_P(Formats, TargetFaults, testing::ValuesIn(kFormats), name_of);
INSTANTIATE_TEST_SUITE_P(Formats, TargetTogether, testing::ValuesIn(kFormats), name_of);
INSTANTIATE_TEST_SUITE_P(Places, TargetTogether, testing::Values(kPlaces[0]), name_of);

}  // namespace
}  // namespace ferry::test
