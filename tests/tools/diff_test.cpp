// `ferry diff` over real checkpoints and what ferry makes of them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace {

using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::HasSubstr;

const std::string kRuns = std::string(FERRY_FIXTURES) + "/megatron/";
const std::string kLlama = kRuns + "hot_llama";

struct Diff : Program {
  void convert(const std::string& from, const std::string& to, const std::string& options) const {
    const Outcome outcome = ferry("convert " + from + " " + path(to) + " " + options);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  // Adds 1 to the little-endian bf16 number at `at` of a file, in its last place.
  void change(const std::string& name, size_t at) const {
    std::string content = read(path(name));
    content.at(at) = static_cast<char>(content[at] ^ 1);
    write(path(name), content);
  }
};

TEST_F(Diff, ARunEqualsItself) {
  const Outcome outcome = ferry("diff " + kLlama + " " + kLlama + "/iter_0000005");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("9 tensors: 9 equal; 126 kB compared"));
  EXPECT_THAT(outcome.out, HasSubstr("0 differ"));
  EXPECT_EQ(ferry("diff -q " + kLlama + " " + kLlama).out, "");
}

TEST_F(Diff, MegatronAndHuggingFaceMeetThroughTheFamily) {
  for (const char* name : {"hot_llama", "hot_gpt2", "hot_mixtral", "hot_deepseek", "hot_apertus",
                           "hot_nemotron3_mtp", "hot_qwen3next_mtp"}) {
    convert(kRuns + name, name, "--to hf");
    for (const bool swap : {false, true}) {
      const std::string run = kRuns + name, hf = path(name);
      const Outcome outcome = ferry("diff --json " + (swap ? hf + " " + run : run + " " + hf));
      EXPECT_EQ(outcome.code, 0) << name << outcome.out << outcome.err;
      const json report = json::parse(outcome.out);
      EXPECT_TRUE(report.at("equal")) << name;
      EXPECT_GT(report.at("tensors").at("equal"), 30) << name;
      EXPECT_THAT(report.at("notes").dump(), HasSubstr("under the names of Hugging Face")) << name;
    }
  }
}

// Its arguments are those of several families, whose names differ.
TEST_F(Diff, ARunIsOfTheFamilyThatItIsComparedWith) {
  const std::string run = kRuns + std::string("hot_qwen3next_mtp");
  convert(run, "qwen3_5", "--to hf --family qwen3_5_moe_text");
  const Outcome outcome = ferry("diff " + run + " " + path("qwen3_5"));
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
}

TEST_F(Diff, NormsThatOtherModulesNameAreTheSame) {
  for (const char* name : {"f32_deepseek", "f32_qwen3moe"}) {
    const std::string run = kRuns + name, other = path(name), folders = path(name) + "_folders";
    ASSERT_EQ(ferry("reshard " + run + " " + other + " --transformer-impl local").code, 0);
    ASSERT_EQ(ferry("reshard " + run + " " + folders + " --to torch").code, 0);
    for (const auto& [a, b] : {std::pair{run, other}, {other, run}, {run, folders}}) {
      const json report = json::parse(ferry("diff --json " + a + " " + b + " --only '*norm*'").out);
      EXPECT_TRUE(report.at("equal")) << a << " " << b;
      EXPECT_THAT(report.at("notes").dump(), HasSubstr("modules look for")) << a << " " << b;
    }
  }
}

TEST_F(Diff, VocabularyPaddingIsNoDifference) {
  convert(kLlama, "hf", "--to hf");
  const Outcome outcome = ferry("diff " + kLlama + " " + path("hf"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("model.embed_tokens.weight: rows from 250 on, which only A has, are "
                        "padding of a vocabulary of 250"));
}

TEST_F(Diff, MissingRowsOfTheVocabularyAreADifference) {
  convert(kLlama, "hf", "--to hf");
  convert(kLlama, "cut", "--to hf --vocab-size 100 --force");
  convert(kLlama, "tensors", "--to safetensors");
  convert(path("cut"), "plain", "--to safetensors");
  const std::string with[] = {path("hf"), kLlama, path("tensors")};
  for (const std::string& whole : with) {
    for (const bool swap : {false, true}) {
      const std::string cut = path("cut");
      const Outcome outcome = ferry("diff " + (swap ? cut + " " + whole : whole + " " + cut));
      EXPECT_EQ(outcome.code, 1) << whole;
      EXPECT_EQ(outcome.err, "");
    }
  }
  const std::string bare = path("hf/model.safetensors") + " " + path("plain/model.safetensors");
  const Outcome unknown = ferry("diff --json " + bare);
  EXPECT_EQ(unknown.code, 1);
  EXPECT_EQ(json::parse(unknown.out).at("tensors").at("shape"), 2);
  EXPECT_THAT(unknown.out, HasSubstr("neither side has its size"));
  EXPECT_THAT(ferry("diff " + path("hf") + " " + path("cut")).out,
              HasSubstr("rows from 100 on, which only A has, are not padding: the vocabulary has "
                        "250"));
}

TEST_F(Diff, DtypesCanBeLetDiffer) {
  convert(kLlama, "bf16", "--to safetensors");
  convert(kLlama, "f32", "--to safetensors --dtype fp32");
  convert(path("f32"), "f16", "--to safetensors --dtype fp16");
  EXPECT_EQ(ferry("diff -q --ignore-dtype " + path("bf16") + " " + path("f32")).code, 0);
  const std::string rounded = path("bf16") + " " + path("f16");
  EXPECT_EQ(ferry("diff -q --tolerance 1 " + rounded).code, 1);
  EXPECT_EQ(ferry("diff -q --ignore-dtype --tolerance 1 " + rounded).code, 0);
  EXPECT_EQ(ferry("diff -q --ignore-dtype --relative-tolerance 1 " + rounded).code, 0);
}

TEST_F(Diff, ComparesWhatIsAskedFor) {
  const std::string both = kLlama + " " + kLlama;
  const auto count = [&](const std::string& options) {
    return json::parse(ferry("diff --json " + both + options).out).at("tensors").at("equal");
  };
  EXPECT_EQ(count(""), 9);
  EXPECT_EQ(count(" --only '*norm*' --only '*qkv.weight'"), 4);
  EXPECT_EQ(count(" --drop '*norm*' --drop '*qkv.weight'"), 5);
  EXPECT_EQ(count(" --only '*norm*' --drop '*final*'"), 2);
  EXPECT_EQ(ferry("diff " + both + " --drop '*'").code, 3);
  EXPECT_EQ(ferry("diff " + both + " --drop nothing").code, 3);
}

// A set of letters is not a list of patterns.
TEST_F(Diff, PatternsInBracketsStayWhole) {
  const std::string both = "diff --json " + kLlama + " " + kLlama;
  const auto equal = [&](const std::string& only) {
    return json::parse(ferry(both + " --only " + only).out).at("tensors").at("equal");
  };
  EXPECT_EQ(equal("'[de]*[st]'"), 8);
  EXPECT_EQ(equal("'[,e]*[st]' '[d]*[t]'"), 8);
}

TEST_F(Diff, ComparesIterationsOfARun) {
  std::filesystem::create_directory(path("run"));
  std::filesystem::copy(kLlama + "/iter_0000005", path("run/iter_0000005"));
  std::filesystem::copy(kRuns + "hot_qwen2/iter_0000005", path("run/iter_0000006"));
  const std::string both = path("run") + " " + path("run");
  EXPECT_EQ(ferry("diff -q " + both + " --iteration 5").code, 0);
  EXPECT_EQ(ferry("diff -q " + both + " --iteration 6,6").code, 0);
  EXPECT_EQ(ferry("diff -q " + both + " --iteration 5,6").code, 1);
  EXPECT_EQ(ferry("diff -q " + path("run") + " " + kLlama + "/iter_0000005 --iteration 5").code, 0);
  EXPECT_EQ(ferry("diff " + both + " --iteration 7").code, 3);
  convert(kLlama, "hf", "--to hf");
  EXPECT_EQ(ferry("diff -q " + path("hf") + " " + path("run") + " --iteration 5").code, 0);
  EXPECT_EQ(ferry("diff -q " + path("hf") + " " + path("hf") + " --iteration 5").code, 2);
}

// The same tensors, in an archive with other storages.
TEST_F(Diff, TensorsInObjectsAreComparedByTheirElements) {
  const std::string run = kRuns + "llama_legacy_tp2_nodo";
  const Outcome written = ferry("reshard " + run + " " + path("again") + " --to torch");
  ASSERT_EQ(written.code, 0) << written.err;
  const Outcome outcome = ferry("diff --json " + run + " " + path("again"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json report = json::parse(outcome.out);
  for (const json& object : report.at("objects").at("differing")) {
    EXPECT_NE(object.at("name").get<std::string>(), "optimizer") << object;
  }
}

TEST_F(Diff, ShowsHowMuchValuesDiffer) {
  convert(kLlama, "a", "--to safetensors");
  convert(kLlama, "b", "--to safetensors");
  const std::string file = read(path("b/model.safetensors"));
  uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  const json info = json::parse(file.substr(8, header)).at("decoder.final_layernorm.weight");
  change("b/model.safetensors", 8 + header + info.at("data_offsets").at(0).get<size_t>() + 2 * 4);
  const Outcome text = ferry("diff " + path("a") + " " + path("b"));
  EXPECT_EQ(text.code, 1);
  EXPECT_EQ(text.err, "");
  EXPECT_THAT(text.out, HasSubstr("differs    decoder.final_layernorm.weight  BF16 [32]: 1 of 32 "
                                  "elements differ, at most by "));
  EXPECT_THAT(text.out, HasSubstr("first at [4]: "));
  EXPECT_THAT(text.out, HasSubstr("8 equal, 1 of other values"));
  const json report = json::parse(ferry("diff --json " + path("a") + " " + path("b")).out);
  EXPECT_EQ(report.at("equal"), false);
  const json values = report.at("differing").at(0).at("values");
  EXPECT_EQ(values.at("differing"), 1);
  EXPECT_EQ(values.at("first").at(0), 4);
  EXPECT_GT(values.at("max_absolute"), 0);
  const std::string both = path("a") + " " + path("b");
  EXPECT_EQ(ferry("diff -q " + both).code, 1);
  EXPECT_EQ(ferry("diff -q " + both + " --tolerance 0.1").code, 0);
  EXPECT_EQ(ferry("diff -q " + both + " --tolerance 1e-9").code, 1);
  EXPECT_EQ(ferry("diff -q " + both + " --only '*layers*'").code, 0);
  EXPECT_EQ(ferry("diff -q " + both + " --memory 8MiB --threads 3").code, 1);
}

TEST_F(Diff, ShowsWhatIsMissingOrOfAnotherForm) {
  convert(kLlama, "bf16", "--to safetensors");
  convert(kLlama, "f32", "--to safetensors --dtype fp32");
  const json cast = json::parse(ferry("diff --json " + path("bf16") + " " + path("f32")).out);
  EXPECT_EQ(cast.at("tensors").at("dtype"), 9);
  EXPECT_EQ(cast.at("differing").at(0).at("values").at("differing"), 0);
  EXPECT_EQ(cast.at("differing").at(0).at("b").at("dtype"), "F32");

  const Outcome other = ferry("diff --json " + kLlama + " " + kRuns + "hot_mixtral");
  EXPECT_EQ(other.code, 1) << other.err;
  const json report = json::parse(other.out);
  EXPECT_GT(report.at("tensors").at("only_in_a"), 0);
  EXPECT_GT(report.at("tensors").at("only_in_b"), 0);
  EXPECT_THAT(report.at("objects").at("differing").dump(),
              HasSubstr("expert_model_parallel_size: 1 / 2"));
}

// The optimizer too, whatever its layout: the same run, saved again by Megatron-LM, has other
// layouts of it, and these two have the same layout with other sizes of buckets.
TEST_F(Diff, SortsAndShowsTheLargestDifference) {
  const std::string both = kLlama + " " + kRuns + "hot_qwen2 ";
  const json plain = json::parse(ferry("diff --json " + both).out);
  const json sorted = json::parse(ferry("diff --json --sort difference " + both).out);
  double largest = 0, last = std::numeric_limits<double>::infinity();
  for (const json& tensor : sorted.at("differing")) {
    if (tensor.at("values").is_null()) {
      EXPECT_EQ(last, std::numeric_limits<double>::infinity());  // what is on one side comes first
      continue;
    }
    const double difference = tensor.at("values").at("max_absolute");
    EXPECT_LE(difference, last);
    last = difference;
    largest = std::max(largest, difference);
  }
  EXPECT_EQ(sorted.at("largest_difference").at("max_absolute"), largest);
  EXPECT_EQ(sorted.at("largest_difference"), plain.at("largest_difference"));
  EXPECT_EQ(sorted.at("differing").size(), plain.at("differing").size());
  EXPECT_NE(sorted.at("differing"), plain.at("differing"));
  const json by_size = json::parse(ferry("diff --json --sort size " + both).out);
  EXPECT_EQ(by_size.at("differing").at(0).at("name"), "decoder.layers.mlp.linear_fc1.weight");
  EXPECT_THAT(ferry("diff " + both).out, HasSubstr("\nlargest difference 0.162 (relative 2), of "
                                                   "decoder.layers.mlp.linear_fc1.weight\n"));
  EXPECT_TRUE(json::parse(ferry("diff --json " + kLlama + " " + kLlama).out)
                  .at("largest_difference")
                  .is_null());
}

TEST_F(Diff, NamesObjectsOnOneSide) {
  const std::string both = kLlama + " " + kRuns + "hot_qwen2 ";
  const json objects = json::parse(ferry("diff --json " + both).out).at("objects");
  const std::string text = ferry("diff " + both).out;
  ASSERT_FALSE(objects.at("only_in_a").empty());
  for (const json& name : objects.at("only_in_a")) {
    EXPECT_THAT(text, HasSubstr("\n  only in A  " + name.get<std::string>() + "\n"));
  }
}

TEST_F(Diff, ComparesOptimizersAcrossLayouts) {
  const std::string run = kRuns + "llama_tp2dp2_dpr";
  convert(run, "tensors", "--to safetensors --optimizer");
  const Outcome outcome = ferry("diff " + run + " " + path("tensors"));
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("36 tensors: 36 equal"));
}

TEST_F(Diff, CompressedRunsAreTheSame) {
  const std::string run = kRuns + "llama_tp2dp2_dpr";
  for (const char* options : {"--compress zstd", "--compress zstd:1 --to dcp --tp 1"}) {
    const Outcome written = ferry("reshard " + run + " " + path("z") + " --overwrite " + options);
    EXPECT_EQ(written.code, 0) << written.err;
    EXPECT_EQ(ferry("verify " + path("z")).code, 0);
    const Outcome outcome = ferry("diff " + run + " " + path("z"));
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    std::filesystem::remove_all(path("z"));
  }
  EXPECT_EQ(ferry("reshard " + run + " " + path("z") + " --to torch --compress zstd").code, 2);
  convert(kLlama, "hf", "--to hf");
  convert(path("hf"), "new", "--to torch_dist --tp 2 --compress zstd");
  EXPECT_EQ(ferry("diff " + path("hf") + " " + path("new")).code, 0);
  EXPECT_EQ(ferry("verify " + path("new")).code, 0);
  EXPECT_EQ(ferry("convert " + kLlama + " " + path("no") + " --to hf --compress zstd").code, 2);
}

TEST_F(Diff, TroubleHasItsOwnCodes) {
  EXPECT_EQ(ferry("diff " + kLlama).code, 2);
  EXPECT_EQ(ferry("diff " + kLlama + " " + kLlama + " --tolerance -1").code, 2);
  for (const char* tolerance : {"nan", "inf", "abc", "''", "1e999"}) {
    const Outcome outcome = ferry("diff " + kLlama + " " + kLlama + " --tolerance " + tolerance);
    EXPECT_EQ(outcome.code, 2) << tolerance;
    EXPECT_THAT(outcome.err, HasSubstr("is not a number from 0 on"));
  }
  EXPECT_EQ(ferry("diff " + kLlama + " " + path("nothing")).code, 3);
  EXPECT_EQ(ferry("diff " + kLlama + " " + kLlama + " --only nothing").code, 3);
  write(path("cut.safetensors"), "\x08");
  EXPECT_EQ(ferry("diff " + kLlama + " " + path("cut.safetensors")).code, 4);
}

}  // namespace
