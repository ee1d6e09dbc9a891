// `ferry data mix`, `config`, `dumps` and `show`, and the numbers that the original tools give.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/tools/program.h"
#include "tools/data/mixture/choose_files.h"
#include "tools/data/mixture/dumps.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using namespace ferry::tool;

TEST(ChooseFiles, TakesThemInPythonsOrder) {
  std::vector<std::string> eight{"0", "1", "2", "3", "4", "5", "6", "7"}, four{"0", "1", "2", "3"};
  shuffle_files(eight);
  shuffle_files(four);
  EXPECT_THAT(eight, ElementsAre("1", "3", "2", "4", "5", "6", "0", "7"));
  EXPECT_THAT(four, ElementsAre("1", "2", "0", "3"));
}

// What create_data_mixture.py makes of a0 to a7 (1000, 1100, ...) and b0 to b3 (900, 1200, ...).
TEST(ChooseFiles, KeepsToSharesUntilAFolderRunsOut) {
  const std::vector<std::vector<uint64_t>> bytes{{1100, 1300, 1200, 1400, 1500, 1600, 1000, 1700},
                                                 {1200, 1500, 900, 1800}};
  const ChosenFiles most = choose_files(bytes, {0.8, 0.2});
  EXPECT_THAT(most.counts, ElementsAre(8, 2));
  EXPECT_EQ(most.exhausted, 0u);
  EXPECT_DOUBLE_EQ(static_cast<double>(most.bytes[0]) / static_cast<double>(most.bytes[1]), 4.0);
  const ChosenFiles few = choose_files(bytes, {1 / 5.0, 4 / 5.0});
  EXPECT_THAT(few.counts, ElementsAre(1, 4));
  EXPECT_EQ(few.exhausted, 1u);
  EXPECT_NEAR(static_cast<double>(few.bytes[0]) / 6500.0, 0.1692, 5e-5);
}

// What prepare_dumps.py does.
TEST(Dumps, AreOfAboutOneSize) {
  EXPECT_THAT(balance_dumps({1000, 2000, 4000, 5000}, 2),
              ElementsAre(ElementsAre(3u, 0u), ElementsAre(2u, 1u)));
  EXPECT_THAT(balance_dumps({5, 5, 5}, 3),
              ElementsAre(ElementsAre(0u), ElementsAre(1u), ElementsAre(2u)));
  EXPECT_EQ(dump_count(149'999'999'999, 10, {}), 1u);
  EXPECT_EQ(dump_count(150'000'000'000, 10, {}), 2u);
  EXPECT_EQ(dump_count(1, 3, 8), 3u);
  EXPECT_THAT(filter_paths({"a/en", "b/fr", "c/de_removed", "d/de"}, {"de", "en"}, {"_removed"}),
              ElementsAre("d/de", "a/en"));
}

struct Mixtures : Program {
  // A pair of so many tokens, each a byte of text.
  void pair(const std::string& prefix, int tokens) const {
    fs::create_directories(fs::path(path(prefix)).parent_path());
    write(path("t.txt"), std::string(static_cast<size_t>(tokens), 'x'));
    const Outcome made = ferry("data bytes " + path(prefix) + " " + path("t.txt"));
    EXPECT_EQ(made.code, 0) << made.err;
    fs::remove(path("t.txt"));
  }
  json data(const std::string& arguments, int code = 0) const {
    const Outcome outcome = ferry("data " + arguments + " --json");
    EXPECT_EQ(outcome.code, code) << outcome.err;
    return json::parse(outcome.out);
  }
  void SetUp() override {
    Program::SetUp();
    for (int i = 0; i < 8; ++i) pair("a/sub/a" + std::to_string(i), 500 + 50 * i);
    for (int i = 0; i < 4; ++i) pair("b/b" + std::to_string(i), 450 + 150 * i);
  }
};

TEST_F(Mixtures, LinksLeadToTheFiles) {
  const std::string folders =
      "--folders " + path("a") + "/ " + path("b") + " --output " + path("m");
  const json planned = data("mix " + folders + " --weights 4 1 --dry-run");
  EXPECT_FALSE(fs::exists(path("m")));
  const json mixed = data("mix " + folders + " --weights 4 1");
  EXPECT_EQ(mixed.at("exhausted"), 0);
  EXPECT_EQ(mixed.at("folders").at(0).at("files"), 8);
  EXPECT_EQ(mixed.at("folders").at(1).at("prefixes"), (json{"b1", "b2"}));
  EXPECT_EQ(planned.at("folders"), mixed.at("folders"));
  EXPECT_EQ(data("check " + path("m/b")).at("problems"), 0);
  EXPECT_EQ(read(path("m/dataset_mixture_summary.txt")),
            "Dataset mixture created in " + path("m") +
                " | 10 files ([8, 2]) | 0.0 TB | 0.0 Billion Tokens (x2 if Vocab < 65536) | "
                "Resulting mixture is {'" +
                path("m/a") + "': 0.8, '" + path("m/b") + "': 0.2}");
  // From another folder, by relative paths: links still lead somewhere.
  const std::string relative = "cd " + folder.string() + " && " + FERRY_PROGRAM +
                               " data mix --folders a b --weights 1 4 --output r > /dev/null";
  ASSERT_EQ(std::system(relative.c_str()), 0);
  EXPECT_EQ(data("check " + path("r/b")).at("datasets").size(), 4u);
  EXPECT_EQ(fs::file_size(path("r/a/sub/a1.bin")), 1100u);
}

TEST_F(Mixtures, RefusesWhatDoesNotFit) {
  const std::string to = " --output " + path("m");
  EXPECT_THAT(ferry("data mix --folders " + path("a") + " --weights 1 2" + to).err,
              HasSubstr("2 weights are given for 1"));
  EXPECT_THAT(ferry("data mix --folders " + path("a") + " --weights=-1" + to).err,
              HasSubstr("is not a positive number"));
  EXPECT_THAT(ferry("data mix --folders " + path("none") + " --weights 1" + to).err,
              HasSubstr("is not a folder"));
  EXPECT_THAT(
      ferry("data mix --folders " + path("a") + " --weights 1 --overwrite --output " + path("b"))
          .err,
      HasSubstr("is not a mixture"));
  fs::remove(path("a/sub/a3.idx"));
  EXPECT_THAT(ferry("data mix --folders " + path("a") + " --weights 1" + to).err,
              HasSubstr("sub/a3.bin has no a3.idx;"));
  fs::create_directory(path("empty"));
  EXPECT_THAT(ferry("data mix --folders " + path("empty") + " --weights 1" + to).err,
              HasSubstr("no .bin file"));
  // Folders of one name stay apart, and links in a circle end.
  fs::create_directory(path("c"));
  fs::create_directory_symlink("../b", path("c/b"));
  fs::create_directory_symlink("..", path("b/up"));
  fs::remove_all(path("a"));
  const json mixed = data("mix --folders " + path("b") + " " + path("c/b") + " --weights 1 1" + to);
  EXPECT_EQ(mixed.at("folders").at(1).at("name"), "b_2");
}

TEST_F(Mixtures, ConfigListsPrefixesByName) {
  EXPECT_EQ(ferry("data config " + path("b") + "/").out,
            path("b/b0") + " " + path("b/b1") + " " + path("b/b2") + " " + path("b/b3") + "\n");
  const Outcome both = ferry("data config '" + path("b") + ", " + path("a/sub/a0") + "' --lines");
  EXPECT_EQ(both.out, path("b/b0") + "\n" + path("b/b1") + "\n" + path("b/b2") + "\n" +
                          path("b/b3") + "\n" + path("a/sub/a0") + "\n");
  const json blend =
      data("config " + path("b") + " " + path("a/sub/a0") + " --weights 3 1").at("datasets");
  EXPECT_DOUBLE_EQ(blend.at(0).at("weight"), 3 * 450.0 / 2700);
  EXPECT_DOUBLE_EQ(blend.at(4).at("weight"), 1.0);
  EXPECT_EQ(blend.at(3).at("tokens"), 900);
  EXPECT_EQ(ferry("data config " + path("none")).code, 3);
  // A line of words cannot say where such a name ends.
  fs::rename(path("b"), path("a b"));
  const std::string blank = "data config '" + path("a b") + "' ";
  EXPECT_EQ(ferry(blank).code, 2);
  EXPECT_THAT(ferry(blank + "--lines").out, HasSubstr(path("a b/b0") + "\n"));
}

TEST_F(Mixtures, DumpsAreLists) {
  fs::create_directories(path("raw/x"));
  for (int i = 1; i <= 5; ++i) {
    write(path("raw/x/f" + std::to_string(i) + ".jsonl"), std::string(1000u * i, ' '));
  }
  const std::string make = "dumps " + path("raw") + " --output " + path("work") + " --n-dumps 2";
  const json dumps = data(make + " --filter-out f3").at("dumps");
  EXPECT_EQ(dumps.at(0).at("bytes"), 6000);
  EXPECT_EQ(read(path("work/dumps/paths_file_0.txt")), "x/f5.jsonl\nx/f1.jsonl\n");
  EXPECT_EQ(read(path("work/dumps/paths_file_1.txt")), "x/f4.jsonl\nx/f2.jsonl\n");
  EXPECT_EQ(fs::file_size(path("work/raw-dataset-link/x/f5.jsonl")), 5000u);
  EXPECT_EQ(ferry("data " + make).code, 2);
  EXPECT_EQ(ferry("data " + make + " --overwrite --filter-in none").code, 3);
  EXPECT_THAT(ferry("data " + make + " --overwrite").out,
              HasSubstr("[ Dump 0 | 0.00 GB | 3 Files | ~0.00 hours to tokenize (@20 s per GB)]"));
}

TEST_F(Mixtures, ShowDecodes) {
  write(path("t.jsonl"), "{\"text\":\"first\"}\n{\"text\":\"second\"}\n{\"text\":\"\"}\n");
  ASSERT_EQ(ferry("data tokenize --tokenizer-type bytes --input " + path("t.jsonl") +
                  " --append-eod --output-prefix " + path("t"))
                .code,
            0);
  const json shown =
      data("show " + path("t_text_document") + " --tokenizer-type bytes --from 1").at("documents");
  EXPECT_THAT(shown.at(0).at("text").get<std::string>(), testing::StartsWith("second"));
  EXPECT_EQ(shown.at(0).at("length"), 7);
  EXPECT_EQ(shown.at(1).at("length"), 0);
  EXPECT_THAT(ferry("data show " + path("t_text_document")).out,
              HasSubstr("document 0: 6 tokens\n102 105 114 115 116 256\n"));
  EXPECT_EQ(ferry("data show " + path("t_text_document") + " --from 3").code, 2);
  // Ids of another tokenizer are not passed over.
  const std::string other =
      "data show " + path("t_text_document") +
      " --count 1 --tokenizer-type SentencePieceTokenizer --tokenizer-model " + FERRY_FIXTURES +
      "/tokenizers/spm-char.model";
  EXPECT_THAT(ferry(other).out, HasSubstr("<id 105><id 114><id 115><id 116><id 256>"));
  EXPECT_THAT(ferry(other).err,
              HasSubstr("warning: 5 of the ids shown are outside the tokenizer's "
                        "vocabulary of 0 to 103, the first in document 0, token 1: "
                        "105"));
  EXPECT_EQ(json::parse(ferry(other + " --json 2>/dev/null").out)
                .at("documents")
                .at(0)
                .at("outside_vocabulary"),
            json::parse("[1, 2, 3, 4, 5]"));
  const json sample = data("show " + path("a/sub/a0") +
                           " --samples --seq-length 16 --count 2 --tokenizer-type bytes")
                          .at("samples");
  EXPECT_EQ(sample.at(0).at("text"), "xxxxxxxxxxxxxxxx");
}

}  // namespace
