// `ferry data` on token files that Megatron-LM's tools wrote, and on damaged ones.
#include <gmock/gmock.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

const std::string kData = std::string(FERRY_FIXTURES) + "/data/";
const std::string kA = kData + "corpus_a_text_document", kB = kData + "corpus_b_text_document";

struct Data : Program {
  json data(const std::string& arguments, int code = 0) const {
    const Outcome outcome = ferry("data " + arguments + " --json");
    EXPECT_EQ(outcome.code, code) << outcome.err;
    return json::parse(outcome.out);
  }
  // A copy of corpus_a, with a number changed.
  template <typename T>
  std::string damaged(const char* suffix, size_t at, T value) const {
    for (const char* each : {".bin", ".idx"}) write(path("d") + each, read(kA + each));
    std::string bytes = read(path("d") + suffix);
    std::memcpy(bytes.data() + at, &value, sizeof value);
    write(path("d") + suffix, bytes);
    return path("d");
  }
  std::string problem(const std::string& prefix, const std::string& more = "") const {
    const json report = data("check " + prefix + " " + more, 4);
    return report.at("datasets").at(0).at("problems").at(0).get<std::string>();
  }
};

// Where the numbers of corpus_a's index begin: 400 sequences and as many documents.
constexpr size_t kLengths = 34, kOffsets = kLengths + 4 * 400, kBoundaries = kOffsets + 8 * 400;

TEST_F(Data, InspectTellsWhatIsThere) {
  const json seen = data("inspect " + kA + ".idx --largest-token --document 3");
  EXPECT_EQ(seen.at("documents"), 400);
  EXPECT_EQ(seen.at("sequences"), 400);
  EXPECT_EQ(seen.at("tokens"), 44127);
  EXPECT_EQ(seen.at("bytes"), 88254);
  EXPECT_EQ(seen.at("dtype"), "uint16");
  EXPECT_EQ(seen.at("largest_token"), 250);
  EXPECT_EQ(seen.at("document").at("number"), 3);
  EXPECT_LE(seen.at("document").at("first_tokens").size(), 64u);
  const json& lengths = seen.at("document_lengths");
  EXPECT_LE(lengths.at("least"), lengths.at("quantiles").at("0.50"));
  EXPECT_LE(lengths.at("quantiles").at("0.50"), lengths.at("most"));
  int64_t documents = 0;
  for (const json& bin : lengths.at("histogram")) documents += bin.at("documents").get<int64_t>();
  EXPECT_EQ(documents, 400);
  EXPECT_TRUE(data("inspect " + kA).at("largest_token").is_null());
  const Outcome text = ferry("data inspect " + kA);
  EXPECT_THAT(text.out, HasSubstr("documents   400\n"));
  EXPECT_THAT(text.out, HasSubstr("tokens      44,127, 88.3 kB\n"));
  EXPECT_EQ(ferry("data inspect " + kA + " --document 400").code, 2);
  EXPECT_EQ(ferry("data inspect " + kData + "nothing").code, 3);
  EXPECT_EQ(ferry("data").code, 2);
}

TEST_F(Data, CheckFindsNothingInSoundFiles) {
  const json report = data("check " + kData + " --vocab-size 251");
  EXPECT_EQ(report.at("problems"), 0);
  EXPECT_EQ(report.at("datasets").size(), 2u);
  EXPECT_EQ(report.at("datasets").at(0).at("tokens"), 44127);
}

TEST_F(Data, CheckNamesWhatIsWrong) {
  EXPECT_THAT(problem(kA, "--vocab-size 250"),
              HasSubstr("is 250, and the vocabulary has 0 to 249"));
  EXPECT_THAT(problem(kA, "--vocab-size 250"), HasSubstr("400 tokens are so in all"));
  EXPECT_THAT(problem(damaged(".idx", kLengths, int32_t{-4})),
              HasSubstr("sequence 0 has -4 tokens"));
  EXPECT_THAT(problem(damaged(".idx", kOffsets + 8, int64_t{4})),
              HasSubstr("sequence 1 begins at byte 4"));
  EXPECT_THAT(problem(damaged(".idx", kLengths + 4 * 399, int32_t{90000})),
              HasSubstr("lies outside"));
  EXPECT_THAT(problem(damaged(".idx", kBoundaries + 8, int64_t{401})),
              HasSubstr("document 0 has sequences 0 to 401"));
  EXPECT_THAT(problem(damaged(".idx", 0, 'X')), HasSubstr("does not begin with MMIDIDX"));
  EXPECT_THAT(problem(damaged(".idx", 17, uint8_t{4})), HasSubstr("begins at byte"));
  write(path("d.bin"), read(kA + ".bin") + "xx");
  write(path("d.idx"), read(kA + ".idx"));
  EXPECT_THAT(problem(path("d")), HasSubstr("has 2 bytes behind the last sequence"));
  fs::remove(path("d.bin"));
  EXPECT_THAT(problem(path("") + " " + kA), HasSubstr("d.bin does not exist"));
}

TEST_F(Data, EmptyDocumentsAreNoted) {
  // Document 0 has two sequences, and document 1 none.
  const json report = data("check " + damaged(".idx", kBoundaries + 8, int64_t{2}));
  EXPECT_THAT(report.at("datasets").at(0).at("notes").get<std::vector<std::string>>(),
              ElementsAre("document 1 is empty"));
}

TEST_F(Data, MergePutsDocumentsOneAfterAnother) {
  const json planned = data("merge " + kB + " " + kA + " -o " + path("both") + " --dry-run");
  EXPECT_THAT(left(), IsEmpty());
  const json merged = data("merge " + kB + " " + kA + ".bin -o " + path("both"));
  EXPECT_THAT(left(), UnorderedElementsAre("both.bin", "both.idx"));
  EXPECT_EQ(merged.at("documents"), 550);
  EXPECT_EQ(planned.at("bytes"), merged.at("bytes"));
  EXPECT_EQ(merged.at("bytes").get<uint64_t>(),
            fs::file_size(path("both.bin")) + fs::file_size(path("both.idx")));
  EXPECT_EQ(read(path("both.bin")), read(kB + ".bin") + read(kA + ".bin"));
  EXPECT_EQ(data("check " + path("both")).at("problems"), 0);
  // By name, and in place of what is there.
  EXPECT_EQ(ferry("data merge " + kB + " " + kA + " -o " + path("both")).code, 2);
  data("merge " + kB + " " + kA + " --sort --overwrite -o " + path("both"));
  EXPECT_EQ(read(path("both.bin")), read(kA + ".bin") + read(kB + ".bin"));
  data("merge " + kData + " -o " + path("folder"));
  EXPECT_EQ(read(path("folder.idx")), read(path("both.idx")));
}

TEST_F(Data, MergeRefusesWhatDoesNotFit) {
  const std::string other = damaged(".idx", 17, uint8_t{3});
  EXPECT_EQ(ferry("data merge " + kA + " " + other + " -o " + path("both")).code, 6);
  EXPECT_EQ(
      ferry("data merge " + damaged(".idx", kLengths, int32_t{1}) + " -o " + path("both")).code, 4);
  EXPECT_EQ(ferry("data merge " + kA + " -o " + path("none/both")).code, 3);
  EXPECT_THAT(left(), UnorderedElementsAre("d.bin", "d.idx"));
}

}  // namespace
