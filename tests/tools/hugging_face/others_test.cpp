// What is not read is named, with the next step. fixtures/other_programs:
// tests/interop/fixtures/make_other_fixtures.py.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support.h"
#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::fixture;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

struct Others : Program {
  void expect_named(const std::string& what, const std::string& words, const std::string& step) {
    for (const std::string command : {"inspect ", "verify "}) {
      const Outcome outcome = ferry(command + what);
      EXPECT_EQ(outcome.code, 5) << command << what << ": " << outcome.err;
      EXPECT_THAT(outcome.err, AllOf(HasSubstr(words), HasSubstr(step)));
    }
  }
  std::string put(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    write(path(name), content);
    return path(name);
  }
};

TEST_F(Others, FilesAreKnownByTheirFirstBytes) {
  const std::string zeros(100, '\0');
  expect_named(put("x", "GGUF\3" + zeros), "GGUF file of llama.cpp", "that it was made from");
  expect_named(put("x.bin", "\x89HDF\r\n\x1a\n" + zeros), "TensorFlow (HDF5)", "from_tf=True");
  expect_named(put("x.onnx", "\x08\x08\x12\x07pytorch" + zeros), "ONNX", "that it was made from");
  expect_named(put("flax_model.msgpack", "\x81\xa5" + zeros), "Flax", "from_flax=True");
  expect_named(fixture("other_programs/script.pt"), "TorchScript", "torch.jit.load");
}

TEST_F(Others, FoldersAreKnownByWhatTheyHold) {
  expect_named(fs::path(put("ggufs/a-q4.gguf", "GGUF")).parent_path(), "a-q4.gguf", "llama.cpp");
  expect_named(fs::path(put("tf/tf_model.h5", "")).parent_path(), "TensorFlow", "from_tf=True");
  expect_named(fs::path(put("saved/saved_model.pb", "")).parent_path(), "SavedModel", "convert");
  expect_named(fs::path(put("steps/model.ckpt.data-00000-of-00001", "")).parent_path(),
               "checkpoint of TensorFlow", "safetensors");
  expect_named(fs::path(put("jax/manifest.ocdbt", "")).parent_path(), "Orbax", "restore");
  expect_named(fs::path(put("engine/rank0.engine", "")).parent_path(), "TensorRT-LLM", "convert");
  expect_named(fs::path(put("bins/adapter_config.json", "{}")).parent_path(), "PEFT", "merge");
}

TEST_F(Others, AnAdapterIsNoModel) {
  const std::string adapter = fixture("other_programs/adapter");
  const Outcome seen = ferry("inspect " + adapter);
  EXPECT_EQ(seen.code, 0);
  EXPECT_THAT(seen.out, HasSubstr("adapter of PEFT (LoRA and the like) for someone/base-8b"));
  for (const std::string to : {"hf", "torch_dist"}) {
    const Outcome outcome = ferry("convert " + adapter + " " + path("out") + " --to " + to);
    EXPECT_EQ(outcome.code, 5);
    EXPECT_THAT(outcome.err, HasSubstr("merge_and_unload"));
  }
}

TEST_F(Others, AModelOfNoFamilyIsReportedWithItsShape) {
  fs::copy(fixture("fp8_blocks/model"), path("model"));
  json config = {{"model_type", "gemma9"},
                 {"architectures", {"Gemma9ForCausalLM"}},
                 {"text_config",
                  {{"num_hidden_layers", 26},
                   {"hidden_size", 1152},
                   {"num_attention_heads", 4},
                   {"head_dim", 256}}}};
  write(path("model/config.json"), config.dump());
  const Outcome seen = ferry("inspect " + path("model"));
  EXPECT_THAT(seen.out, HasSubstr("model_type 'gemma9' (Gemma9ForCausalLM) is none of the"));
  EXPECT_THAT(seen.out, HasSubstr("26 layers, hidden 1152, 4 heads of 256"));
  const Outcome outcome =
      ferry("convert " + path("model") + " " + path("run") + " --to torch_dist");
  EXPECT_EQ(outcome.code, 5);
  EXPECT_THAT(outcome.err, HasSubstr("(Gemma9ForCausalLM, layers 26, hidden 1152, heads 4)"));
  EXPECT_THAT(outcome.err, HasSubstr("--family NAME"));
}

struct Forced : Others {
  json config;
  void SetUp() override {
    Others::SetUp();
    ASSERT_EQ(
        ferry("convert " + fixture("megatron/hot_llama") + " " + path("hf") + " --to hf").code, 0);
    config = json::parse(read(path("hf/config.json")));
    config["model_type"] = "my_llama";
    config["sparkle"] = 3;
    save();
  }
  void save() const { write(path("hf/config.json"), config.dump()); }
  Outcome convert(const std::string& family) const {
    return ferry("convert " + path("hf") + " " + path("run") +
                 " --overwrite --to torch_dist --family " + family);
  }
};

TEST_F(Forced, FamilyReadsAModelOfAnotherType) {
  const Outcome refused = convert("llama");
  EXPECT_EQ(refused.code, 5);
  EXPECT_THAT(refused.err, HasSubstr("--ignore-member sparkle leaves it out"));
  const Outcome outcome = convert("llama --ignore-member sparkle");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("sparkle (3) is ignored"));
  ASSERT_EQ(ferry("convert " + path("run") + " " + path("back") + " --to hf").code, 0);
  EXPECT_EQ(ferry("diff " + path("hf") + " " + path("back")).code, 0);
}

TEST_F(Forced, MembersAreIgnoredOnlyWhereConfigJsonIsRead) {
  const std::string command = "convert " + path("hf") + " " + path("run");
  const Outcome outcome = ferry(command + " --to hf --ignore-member sparkle");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--ignore-member is for a config.json that is read"));
}

TEST_F(Forced, FamilyIsRefusedWhereItDoesNotFit) {
  config.erase("sparkle");
  save();
  EXPECT_THAT(convert("qwen3").err, HasSubstr("tensors are not those of family qwen3"));
  config["embedding_multiplier"] = 12.0;
  save();
  EXPECT_THAT(convert("llama").err, HasSubstr("embedding_multiplier is 12"));
  config["embedding_multiplier"] = 1.0;
  config["model_type"] = "qwen2";
  save();
  EXPECT_THAT(convert("llama").err, HasSubstr("model_type is 'qwen2', not 'llama'"));
}

TEST_F(Forced, UnknownFamiliesHaveNearNames) {
  EXPECT_THAT(convert("lama").err, HasSubstr("family lama is unknown; near it are llama;"));
  EXPECT_THAT(convert("qwen").err, HasSubstr("near it are qwen2, "));
  EXPECT_THAT(convert("zzzzzz").err, HasSubstr("family zzzzzz is unknown; the families are"));
}

}  // namespace
