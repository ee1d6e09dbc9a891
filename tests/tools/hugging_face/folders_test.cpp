// `ferry convert` of Hugging Face folders as people have them: files that no list knows, shards
// without config.json, a language model inside a larger one.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support.h"
#include "tests/tools/hugging_face/broken_folder.h"
#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::fixture;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::HasSubstr;

struct Folders : Program {
  void SetUp() override {
    Program::SetUp();
    const std::string run = fixture("megatron/hot_llama");
    ASSERT_EQ(ferry("convert " + run + " " + path("hf") + " --to hf --no-manifest").code, 0);
  }
  Outcome convert(const std::string& from, const std::string& to, const std::string& rest) const {
    const Outcome outcome = ferry("convert " + path(from) + " " + path(to) + " " + rest);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
  void expect_equal(const std::string& a, const std::string& b) const {
    const Outcome outcome = ferry("diff " + path(a) + " " + path(b));
    EXPECT_EQ(outcome.code, 0) << outcome.out;
  }
  // The tensors of `hf` with other names, "OLD=NEW", in a folder of its own.
  void rename_into(const std::string& name, const std::string& renames) const {
    const Outcome outcome = ferry("reshard " + path("hf") + " " + path("renamed-" + name) +
                                  " --to dcp --rename '" + renames + "'");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    convert("renamed-" + name, name, "--to safetensors --no-manifest");
  }
};

const char* const kFiles[] = {
    "tiktoken.model", "bpe.model",     "encoder.json",          "vocab.bpe",
    "README.md",      "modeling_x.py", "processor_config.json", "a.unheard-of"};

TEST_F(Folders, AllThatIsNoWeightsGoesToMegatronAndBack) {
  for (const char* name : kFiles) write(path("hf/") + name, name);
  fs::create_directories(path("hf/additional_chat_templates"));
  write(path("hf/additional_chat_templates/tool.jinja"), "{{ tool }}");
  fs::create_directories(path("hf/checkpoint-5"));
  write(path("hf/checkpoint-5/trainer_state.json"), "{}");
  const Outcome there = convert("hf", "run", "--to torch_dist");
  EXPECT_THAT(there.out, HasSubstr("checkpoint-5/"));
  convert("run", "back", "--to hf");
  convert("hf", "again", "--to hf");
  convert("hf/model.safetensors", "from-file", "--to hf --config " + path("hf"));
  for (const std::string out : {"back", "again", "from-file"}) {
    for (const char* name : kFiles) EXPECT_EQ(read(path(out + "/" + name)), name) << out;
    EXPECT_EQ(read(path(out + "/additional_chat_templates/tool.jinja")), "{{ tool }}") << out;
    EXPECT_FALSE(fs::exists(path(out + "/checkpoint-5"))) << out;
    expect_equal("hf", out);
  }
}

TEST_F(Folders, AnotherTokenizerReplacesTheModelsOwn) {
  write(path("hf/tiktoken.model"), "old");
  write(path("hf/README.md"), "own");
  fs::create_directories(path("tok"));
  write(path("tok/tokenizer.json"), "{}");
  write(path("tok/README.md"), "other");
  convert("hf", "out", "--to hf --tokenizer " + path("tok"));
  EXPECT_FALSE(fs::exists(path("out/tiktoken.model")));
  EXPECT_EQ(read(path("out/tokenizer.json")), "{}");
  EXPECT_EQ(read(path("out/README.md")), "own");
}

TEST_F(Folders, WeightsWithoutConfigTakeAnother) {
  fs::create_directories(path("config"));
  fs::rename(path("hf/config.json"), path("config/config.json"));
  const std::string config = " --config " + path("config");
  convert("hf", "out", "--to hf" + config);
  EXPECT_EQ(read(path("out/config.json")), read(path("config/config.json")));
  expect_equal("hf", "out");
  convert("hf", "run", "--to torch_dist" + config);
  const Outcome outcome = ferry("convert " + path("hf") + " " + path("no") + " --to torch_dist");
  EXPECT_THAT(outcome.err, HasSubstr("--config DIR"));
}

TEST_F(Folders, OptionsNameAndChooseTensorsOfAFolder) {
  rename_into("renamed", "model.norm.weight=model.last_norm.weight");
  fs::copy(path("hf/config.json"), path("renamed/config.json"));
  convert("renamed", "out", "--to hf --rename 'model.last_norm.*=model.norm.*'");
  expect_equal("hf", "out");
  convert("renamed", "run", "--to torch_dist --only '*' --rename 'model.last_norm.*=model.norm.*'");
  EXPECT_NE(ferry("convert " + path("renamed") + " " + path("no") + " --to hf --only 'x.*'").code,
            0);
}

TEST_F(Folders, TheLanguageModelOfALargerOneComesBack) {
  json text = json::parse(read(path("hf/config.json")));
  for (const std::string prefix : {"language_model.", "thinker."}) {
    rename_into(prefix, "*=" + prefix + "*");
    const json inner = {{"text_config", text}};
    const json config = prefix == "thinker." ? json{{"thinker_config", inner}} : inner;
    json whole = config;
    whole["model_type"] = "seeing";
    write(path(prefix + "/config.json"), whole.dump());
    const Outcome there = convert(prefix, prefix + "run", "--to torch_dist");
    convert(prefix + "run", prefix + "back", "--to hf --fill-from " + path(prefix));
    expect_equal(prefix, prefix + "back");
    convert("hf", prefix + "filled", "--to hf --fill-from " + path(prefix));
    expect_equal(prefix, prefix + "filled");
  }
}

// The names of codes and scales are none of the family's.
TEST_F(Folders, AQuantisedLanguageModelOfALargerOneIsRead) {
  for (const std::string form : {"fp8", "mxfp4"}) {
    convert("hf", form, "--to hf --no-manifest --quantize " + form);
    const std::string whole = form + "-whole", weights = path(whole) + "/model.safetensors";
    fs::copy(path(form), path(whole));
    ferry::test::Shard shard(weights);
    json header;
    for (const auto& [name, tensor] : shard.header.items()) {
      const bool is_inside = name.starts_with("model.");
      header[is_inside ? "model.language_model." + name.substr(6) : name] = tensor;
    }
    shard.header = header;
    shard.save(weights);
    const json text = json::parse(read(path(form + "/config.json")));
    json config = {{"model_type", "seeing"}, {"text_config", text}};
    config["quantization_config"] = text.at("quantization_config");
    write(path(whole + "/config.json"), config.dump());
    convert(form, form + "-run", "--to torch_dist");
    convert(whole, whole + "-run", "--to torch_dist");
    expect_equal(form + "-run", whole + "-run");
  }
}

}  // namespace
