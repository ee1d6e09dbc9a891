// `ferry seal`: manifests of what other programs wrote, and of what was edited.
#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/support.h"
#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::fixture;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Seal : Program {
  // A copy of a fixture, to be changed.
  std::string copied(const std::string& name) const {
    fs::copy(fixture(name), path("copy"), fs::copy_options::recursive);
    return path("copy");
  }
  json sealed(const std::string& arguments) const {
    const Outcome outcome = ferry("seal --json " + arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out);
  }
  json verified(const std::string& checked) const {
    return json::parse(ferry("verify --json " + checked).out);
  }
  static void flip(const std::string& file, size_t at) {
    std::string content = read(file);
    content.at(at) = static_cast<char>(content[at] ^ 4);
    write(file, content);
  }
};

TEST_F(Seal, CoversEveryByteOfWhatOthersWrote) {
  for (const char* name : {"hugging_face/safetensors_shards", "hugging_face/torch_shards",
                           "megatron/hot_llama/iter_0000005", "megatron/llama_legacy_tp2_nodo"}) {
    const std::string copy = copied(name);
    const json report = sealed(copy);
    EXPECT_EQ(report.at("renewed"), false);
    const json check = verified(copy);
    EXPECT_EQ(check.at("covered_bytes"), check.at("bytes")) << name;
    EXPECT_THAT(check.at("problems"), IsEmpty()) << name;
    EXPECT_GT(report.at("tensors"), 0) << name;
    fs::remove_all(copy);
  }
}

TEST_F(Seal, NamesTheTensorOfAFlippedBit) {
  const std::string copy = copied("hugging_face/safetensors_shards");
  sealed(copy);
  const std::string file = copy + "/model-00002-of-00003.safetensors";
  flip(file, fs::file_size(file) - 3);
  EXPECT_THAT(ferry("verify " + copy).out, HasSubstr("tensor "));
  EXPECT_EQ(ferry("verify " + copy).code, 4);
}

// Not even for a moment: the folder may be someone else's.
TEST_F(Seal, ADryRunWritesNothing) {
  const std::string copy = copied("hugging_face/safetensors_shards");
  const auto long_ago = fs::last_write_time(copy) - std::chrono::hours(24);
  fs::last_write_time(copy, long_ago);
  sealed("--dry-run " + copy);
  EXPECT_EQ(fs::last_write_time(copy), long_ago);
}

TEST_F(Seal, ReportsWhatWasEdited) {
  const std::string copy = copied("hugging_face/safetensors_shards");
  sealed(copy);
  write(copy + "/config.json", read(copy + "/config.json") + " ");
  write(copy + "/README.md", "new");
  fs::remove(copy + "/generation_config.json");
  EXPECT_EQ(ferry("verify " + copy).code, 4);
  const std::string manifest = read(copy + "/ferry.manifest.json");
  const json dry = sealed("--dry-run " + copy);
  EXPECT_EQ(read(copy + "/ferry.manifest.json"), manifest);
  const json report = sealed(copy);
  for (const json& each : {dry, report}) {
    EXPECT_EQ(each.at("renewed"), true);
    EXPECT_THAT(each.at("changed"), ElementsAre("config.json"));
    EXPECT_THAT(each.at("added"), ElementsAre("README.md"));
    EXPECT_THAT(each.at("removed"), ElementsAre("generation_config.json"));
  }
  EXPECT_EQ(ferry("verify " + copy).code, 0);
  const json again = sealed(copy);
  EXPECT_THAT(again.at("changed"), IsEmpty());
}

// convert cuts files into other items than seal does.
TEST_F(Seal, KnowsWhatConvertWroteForTheSame) {
  ASSERT_EQ(ferry("convert " + fixture("megatron/hot_llama") + " " + path("hf") + " --to hf").code,
            0);
  const Outcome outcome = ferry("seal " + path("hf"));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("nothing has changed"));
}

TEST_F(Seal, RenewsIntegrityJson) {
  ASSERT_EQ(ferry("convert " + fixture("megatron/hot_llama") + " " + path("hf") +
                  " --to hf --integrity sha256")
                .code,
            0);
  write(path("hf/config.json"), "{}");
  EXPECT_EQ(ferry("verify " + path("hf")).code, 4);
  const json report = sealed(path("hf"));
  EXPECT_EQ(report.at("sha256"), true);
  const json check = verified(path("hf"));
  EXPECT_THAT(check.at("problems"), IsEmpty());
  EXPECT_GT(check.at("sha256s"), 0);
}

TEST_F(Seal, DoesNotSealDamage) {
  const std::string copy = copied("megatron/hot_llama");
  const std::string file = copy + "/iter_0000005/__0_0.distcp";
  flip(file, 704);  // elements of the first item
  const Outcome outcome = ferry("seal " + copy);
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.err, HasSubstr("nothing was sealed"));
  EXPECT_FALSE(fs::exists(copy + "/iter_0000005/ferry.manifest.json"));
}

TEST_F(Seal, RefusesAFile) {
  const Outcome outcome = ferry("seal " + fixture("hugging_face/every_dtype/model.safetensors"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("give the folder"));
}

// As huggingface_hub lays it out.
struct HubCache : Seal {
  std::string model, snapshot;
  void SetUp() override {
    Seal::SetUp();
    model = path("models--a--b");
    snapshot = model + "/snapshots/c0ffee";
    for (const char* inside : {"/refs", "/blobs", "/snapshots/c0ffee"}) {
      fs::create_directories(model + inside);
    }
    write(model + "/refs/main", "c0ffee");
    // sha256sum of fixtures/fp8_blocks/bf16/model.safetensors
    add("model.safetensors", kBlob);
    add("model.safetensors.index.json", "0123456789012345678901234567890123456789");
  }
  void add(const std::string& name, const std::string& blob) const {
    fs::copy(fixture("fp8_blocks/bf16/" + name), model + "/blobs/" + blob);
    fs::create_symlink("../../blobs/" + blob, snapshot + "/" + name);
  }
  static constexpr const char* kBlob =
      "7b501f2329546fa141dd14282f10c804677b256f2f6dbfe78871bc266636a9cc";
};

TEST_F(HubCache, IsOpenedAtTheSnapshotOfMain) {
  const json report = json::parse(ferry("inspect --json " + model).out);
  EXPECT_EQ(report.at("format"), "hf");
  EXPECT_EQ(report.at("path"), snapshot);
  ASSERT_EQ(ferry("convert " + model + " " + path("out") + " --to hf").code, 0);
  EXPECT_EQ(fs::is_symlink(path("out/model.safetensors")), false);
}

TEST_F(HubCache, IsHeldAgainstTheNamesOfItsBlobs) {
  json check = verified(model);
  EXPECT_EQ(check.at("sha256s"), 1);
  EXPECT_THAT(check.at("problems"), IsEmpty());
  flip(model + "/blobs/" + kBlob, 100000);
  const Outcome outcome = ferry("verify " + model);
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.out, HasSubstr("the SHA-256 that the blob is named by"));
}

TEST_F(HubCache, WithoutMainTakesItsOnlySnapshot) {
  fs::remove_all(model + "/refs");
  EXPECT_EQ(ferry("inspect " + model).code, 0);
  fs::create_directory(model + "/snapshots/beef");
  const Outcome several = ferry("inspect " + model);
  EXPECT_EQ(several.code, 2);
  EXPECT_THAT(several.err, HasSubstr("beef, c0ffee"));
}

TEST_F(HubCache, SaysWhatIsMissing) {
  write(model + "/refs/main", "abc\n");
  EXPECT_THAT(ferry("inspect " + model).err, HasSubstr("names the commit abc"));
  write(model + "/refs/main", "../..");
  EXPECT_EQ(ferry("inspect " + model).code, 4);
  fs::remove_all(model + "/refs");
  fs::remove_all(snapshot);
  EXPECT_THAT(ferry("inspect " + model).err, HasSubstr("without a snapshot"));
}

}  // namespace
