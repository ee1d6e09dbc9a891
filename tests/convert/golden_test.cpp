// Real checkpoints, whole conversions: every byte and the config as they were when transformers
// computed Megatron's logits from them (interop/checkpoints/check_logits.py --golden).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/run.h"
#include "convert/export.h"
#include "tests/convert/support.h"
#include "tests/support.h"

namespace ferry {
namespace {

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(FERRY_FIXTURES "/hf_golden")) {
    names.push_back(file.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string run_folder(const std::string& name) {
  const std::string core = FERRY_FIXTURES "/core/" + name;
  return std::filesystem::exists(core) ? core : FERRY_FIXTURES "/megatron/" + name;
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, ConversionIsUnchanged) {
  const auto golden = test::read_json(FERRY_FIXTURES "/hf_golden/" + GetParam() + ".json");
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), run_folder(GetParam()));
  const Export result = plan_export(checkpoint, {});
  check(result.plan);
  MemoryFileSystem files;
  files.create_folder("out");
  run(result.plan, files, "out", {});
  files.put("out/config.json", result.small_files.front().second);

  EXPECT_EQ(nlohmann::json::parse(files.get("out/config.json")), golden["config"]);
  // Read back through the file's own header, which lists constants too.
  const std::string data = files.get("out/model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, data.data(), sizeof header_bytes);
  const auto header = nlohmann::json::parse(data.substr(8, header_bytes));
  EXPECT_EQ(header.size(), golden["tensors"].size() + 1);  // and "__metadata__"
  for (const auto& [name, expected] : golden["tensors"].items()) {
    ASSERT_TRUE(header.contains(name)) << name;
    EXPECT_EQ(header[name]["dtype"], expected["dtype"].get<std::string>()) << name;
    EXPECT_EQ(header[name]["shape"], expected["shape"]) << name;
    const auto begin = header[name]["data_offsets"][0].get<size_t>();
    const auto end = header[name]["data_offsets"][1].get<size_t>();
    EXPECT_EQ(test::hash_of(data.substr(8 + header_bytes + begin, end - begin)),
              expected["xxh3_128"].get<std::string>())
        << name;
  }
}

TEST_P(Golden, RecogniseDescribesTheModel) {
  const auto golden = test::read_json(FERRY_FIXTURES "/hf_golden/" + GetParam() + ".json");
  const auto& config = golden["config"];
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), run_folder(GetParam()));
  const ModelSummary summary = recognise(checkpoint);
  EXPECT_EQ(summary.family, config["model_type"].get<std::string>());
  EXPECT_TRUE(summary.reasons.empty());
  const bool gpt2 = summary.family == "gpt2";
  EXPECT_EQ(summary.layers, config[gpt2 ? "n_layer" : "num_hidden_layers"]);
  EXPECT_EQ(summary.hidden, config[gpt2 ? "n_embd" : "hidden_size"]);
  EXPECT_EQ(summary.vocab, config["vocab_size"]);
  EXPECT_EQ(summary.padded_vocab, 256);
}

INSTANTIATE_TEST_SUITE_P(Real, Golden, testing::ValuesIn(golden_names()),
                         [](const auto& suite) { return suite.param; });

}  // namespace
}  // namespace ferry
