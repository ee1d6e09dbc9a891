// What Megatron-LM made of the same settings: the files of its caches, byte for byte and by name,
// and the samples.
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

#include "tests/io/fault_file_system.h"
#include "tests/trainer/data/corpora.h"
#include "tests/trainer/data/made_up_tokens.h"

namespace ferry {
namespace {

using nlohmann::json;

std::string md5_of_text(const std::string& text) {
  return test::md5_of(std::as_bytes(std::span(text)));
}

std::string md5_of_sample(const Sample& sample) {
  std::string bytes;
  const auto add = [&bytes](const auto& values) {
    const auto view = std::as_bytes(std::span(values));
    bytes.append(reinterpret_cast<const char*>(view.data()), view.size());
  };
  add(sample.tokens), add(sample.labels), add(sample.loss_mask), add(sample.position_ids);
  return md5_of_text(bytes);
}

void expect_samples(const Dataset& dataset, const json& truth, bool with_starts) {
  EXPECT_EQ(dataset.size(), truth.at("size").get<int64_t>());
  Sample sample;
  for (const json& expected : truth.at("samples")) {
    dataset.read(expected.at("index").get<int64_t>(), sample);
    EXPECT_EQ(md5_of_sample(sample), expected.at("md5").get<std::string>())
        << "sample " << expected.at("index") << " begins " << testing::PrintToString(sample.tokens);
    if (with_starts) {
      EXPECT_EQ(sample.document_starts, expected.at("starts").get<std::vector<int32_t>>());
    }
  }
}

void expect_all(const PerSplit<std::shared_ptr<const Dataset>>& datasets, const json& expected) {
  for (const DataSplit split : kSplits) {
    const std::string key(name(split));
    SCOPED_TRACE(key);
    ASSERT_EQ(datasets[split] != nullptr, expected.at("splits").contains(key));
    if (!datasets[split]) continue;
    expect_samples(*datasets[split], expected.at("splits").at(key),
                   expected.at("options").value("reset_attention_mask", false));
  }
}

TEST(MegatronCases, SameFilesAndSamples) {
  const char* more = std::getenv("FERRY_DATA_CASES");  // of tests/interop/run.sh
  std::ifstream lines(more ? more : test::fixture("data/megatron_cases.jsonl"));
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const json expected = json::parse(line);
    SCOPED_TRACE(expected.at("options").dump());
    const auto memory = test::corpora();
    const DataOptions options = test::options_of(expected.at("options"));
    expect_all(open_datasets(memory, options), expected);
    json files;
    for (const std::string& file : memory->list("cache")) {
      files[file] = md5_of_text(memory->get("cache/" + file));
    }
    EXPECT_EQ(files, expected.at("files"));
    // Once more, from the cache alone.
    const auto second = std::make_shared<FaultFileSystem>(memory, 0, ErrorKind::io);
    expect_all(open_datasets(second, options), expected);
    EXPECT_EQ(second->operations(), 0u);
    if (HasFailure()) return;
  }
  EXPECT_GE(cases, 25);
}

// The two runs whose caches are in tests/fixtures/data. Their descriptions name the folder that the
// token files lay in then, which the copies leave out.
constexpr const char* kFolder = "/tmp/ck/data/";

DataOptions options_of_run(const std::vector<std::string>& paths) {
  DataOptions options = test::options_of(
      {{"data_path", paths}, {"vocab_size", 250}, {"eod", 249}, {"split", "99,1,0"}});
  options.samples = {240, 0, 0};  // 30 iterations of 8, none of validation
  options.token_limit = 256;
  return options;
}

void expect_cache_of_run(const std::string& folder, const DataOptions& options) {
  const auto memory = test::corpora(kFolder);
  open_datasets(memory, options);
  const auto disk = posix_file_system();
  const std::string at = test::fixture("data/" + folder);
  EXPECT_EQ(memory->list("cache"), disk->list(at));
  const auto theirs = test::corpora(kFolder);
  for (const std::string& file : disk->list(at)) {
    std::string expected = read_file(*disk, at + "/" + file, 1 << 20);
    for (size_t i = 0; (i = expected.find("\"data/corpus", i)) != std::string::npos; i += 20) {
      expected.replace(i, 6, "\"" + std::string(kFolder));
    }
    EXPECT_EQ(memory->get("cache/" + file), expected) << file;
    theirs->put("cache/" + file, expected);
  }
  const auto reader = std::make_shared<FaultFileSystem>(theirs, 0, ErrorKind::io);
  open_datasets(reader, options);
  EXPECT_EQ(reader->operations(), 0u) << "their cache was not taken";
}

TEST(MegatronCases, CacheOfARunOnOneCorpus) {
  const std::string a = kFolder + std::string(test::kCorpusA);
  expect_cache_of_run("cache_llama_tp2pp2_full", options_of_run({a}));
}

TEST(MegatronCases, CacheOfARunOnABlend) {
  const std::string a = kFolder + std::string(test::kCorpusA);
  const std::string b = kFolder + std::string(test::kCorpusB);
  expect_cache_of_run("cache_llama_fp32_blend", options_of_run({"30", a, "70", b}));
}

}  // namespace
}  // namespace ferry
