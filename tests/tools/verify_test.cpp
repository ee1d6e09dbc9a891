// `ferry verify`, and what `ferry convert` writes for it.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const std::string kLlamaRun = std::string(FERRY_FIXTURES) + "/megatron/hot_llama";

struct Verify : Program {
  void convert(const std::string& options) const {
    ASSERT_EQ(ferry("convert " + kLlamaRun + " " + path("hf") + " --to hf " + options).code, 0);
  }
  void flip(const std::string& name, size_t at) const {
    std::string content = read(path(name));
    content.at(at) = static_cast<char>(content[at] ^ 4);
    write(path(name), content);
  }
};

TEST_F(Verify, FindsNothingWrongWithWhatConvertWrote) {
  convert("--integrity sha256");
  const Outcome text = ferry("verify " + path("hf"));
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.err, "");
  EXPECT_THAT(text.out, HasSubstr("no damage found"));
  const json report = json::parse(ferry("verify --json " + path("hf")).out);
  EXPECT_EQ(report.at("covered_bytes"), report.at("bytes"));
  EXPECT_EQ(report.at("tensors"), 39);
  EXPECT_EQ(report.at("sha256s"), 3);
  EXPECT_EQ(report.at("manifest"), true);
  EXPECT_TRUE(report.at("problems").empty());
}

TEST_F(Verify, NamesTheTensorAndExitsWithCorrupt) {
  convert("");
  flip("hf/model.safetensors", 20100);
  const Outcome text = ferry("verify " + path("hf"));
  EXPECT_EQ(text.code, 4);
  EXPECT_THAT(text.out, HasSubstr("at byte 20032: tensor model.layers.0.self_attn.q_proj.weight"));
  EXPECT_THAT(text.err, HasSubstr("1 problem found"));
  const Outcome outcome = ferry("verify --json --threads 1 --memory 8MiB " + path("hf"));
  EXPECT_EQ(outcome.code, 4);
  const json problem = json::parse(outcome.out).at("problems").at(0);
  EXPECT_EQ(problem.at("file"), "model.safetensors");
  EXPECT_EQ(problem.at("offset"), 20032);
  EXPECT_EQ(problem.at("bytes"), 2048);
}

TEST_F(Verify, OfASourceKeepsDamageFromBeingCarriedOn) {
  ASSERT_EQ(ferry("reshard " + kLlamaRun + " " + path("run") + " --tp 1 --pp 1").code, 0);
  const std::string data = "run/iter_0000005/__0_0.distcp";
  flip(data, fs::file_size(path(data)) / 2);
  for (const std::string command : {"reshard ", "convert --to hf "}) {
    const Outcome outcome = ferry(command + "--verify " + path("run") + " " + path("out"));
    EXPECT_EQ(outcome.code, 4) << command;
    EXPECT_THAT(outcome.err, HasSubstr("__0_0.distcp")) << command;
    EXPECT_THAT(outcome.err, HasSubstr("nothing was written")) << command;
    EXPECT_FALSE(fs::exists(path("out"))) << command;
  }
  const Outcome whole = ferry("convert --verify --to hf " + kLlamaRun + " " + path("out"));
  EXPECT_EQ(whole.code, 0) << whole.err;
}

TEST_F(Verify, WithoutAManifestSaysSo) {
  convert("--no-manifest");
  EXPECT_FALSE(fs::exists(path("hf/ferry.manifest.json")));
  EXPECT_FALSE(fs::exists(path("hf/integrity.json")));
  flip("hf/model.safetensors", 20100);
  const Outcome text = ferry("verify " + path("hf"));
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("are under no checksum"));
}

// Whether checksums cover the bytes or not; of what is converted, where values pass through.
TEST_F(Verify, AndConvertSayWhichTensorsHaveNoFiniteValues) {
  convert("--no-manifest");
  const std::string file = path("hf/model.safetensors");
  const Outcome sound = ferry("convert " + path("hf") + " " + path("same") + " --to hf");
  EXPECT_THAT(ferry("verify " + path("hf")).out + sound.out, Not(HasSubstr("NaN or infinite")));
  std::string content = read(file);
  size_t header = 0;
  for (size_t i = 8; i-- > 0;) header = header << 8 | static_cast<unsigned char>(content[i]);
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  const json tensor = json::parse(content.substr(8, header)).at(name);
  ASSERT_EQ(tensor.at("dtype"), "BF16");
  const size_t begin = 8 + header + tensor.at("data_offsets").at(0).get<size_t>();
  for (const auto& [element, bits] :
       {std::pair<size_t, uint16_t>{3, 0x7fc0}, {5, 0x7f80}, {6, 0xff80}}) {
    for (size_t i = 0; i < 2; ++i)
      content[begin + 2 * element + i] = static_cast<char>(bits >> 8 * i);
  }
  write(file, content);
  const std::string note = "1 tensor holds NaN or infinite values: " + name + " (1 NaN, 2 infinite";
  const Outcome verify = ferry("verify --json " + path("hf"));
  EXPECT_EQ(verify.code, 0);
  EXPECT_THAT(verify.out, HasSubstr(note));
  EXPECT_EQ(json::parse(verify.out).at("non_finite").at(0).at("infinite"), 2);
  EXPECT_THAT(ferry("verify --no-values " + path("hf")).out, Not(HasSubstr("NaN")));
  for (const std::string options : {"--to hf", "--to hf --dtype f32", "--to safetensors"}) {
    const Outcome out =
        ferry("convert " + path("hf") + " " + path("out") + " --overwrite " + options);
    EXPECT_EQ(out.code, 0) << out.err;
    EXPECT_THAT(out.out, HasSubstr(note)) << options;
    EXPECT_THAT(ferry("verify " + path("out")).out, HasSubstr(note)) << options;
  }
  // One of them takes its whole block with it.
  const Outcome fp8 =
      ferry("convert " + path("hf") + " " + path("out") + " --overwrite --to hf --quantize fp8");
  EXPECT_THAT(fp8.out, HasSubstr("2 tensors hold NaN or infinite values: " + name));
}

TEST_F(Verify, ChecksRealRuns) {
  EXPECT_EQ(ferry("verify " + kLlamaRun).code, 0);
  EXPECT_EQ(ferry("verify " + kLlamaRun + " --iteration 5").code, 0);
  EXPECT_EQ(ferry("verify " + kLlamaRun + " --iteration 6").code, 3);
  EXPECT_EQ(ferry("verify " + path("nothing")).code, 3);
  EXPECT_EQ(ferry("verify").code, 2);
  EXPECT_EQ(ferry("convert x y --to hf --integrity md5").code, 2);
}

}  // namespace
