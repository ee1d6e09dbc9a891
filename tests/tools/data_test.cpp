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
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
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

TEST_F(Data, InspectShowsWhatIsThere) {
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

TEST_F(Data, InspectNotesWhatIsMissing) {
  write(path("d.idx"), read(kA + ".idx"));
  write(path("d.bin"), read(kA + ".bin").substr(0, 1000));
  EXPECT_THAT(ferry("data inspect " + path("d")).out,
              HasSubstr("the index lists 44,127 tokens, but " + path("d") + ".bin holds 500: "));
  EXPECT_THAT(ferry("data inspect " + kA).out, Not(HasSubstr("note:")));
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
              HasSubstr("is outside"));
  EXPECT_THAT(problem(damaged(".idx", kBoundaries + 8, int64_t{401})),
              HasSubstr("document 0 has sequences 0 to 401"));
  EXPECT_THAT(problem(damaged(".idx", 0, 'X')), HasSubstr("does not begin with MMIDIDX"));
  EXPECT_THAT(problem(damaged(".idx", 17, uint8_t{4})), HasSubstr("begins at byte"));
  write(path("d.bin"), read(kA + ".bin") + "xx");
  write(path("d.idx"), read(kA + ".idx"));
  EXPECT_THAT(problem(path("d")), HasSubstr("has 2 bytes after the last sequence"));
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

TEST_F(Data, MergeWantsAllPartsOnce) {
  const auto part = [&](const std::string& number, const std::string& count) {
    for (const char* suffix : {".bin", ".idx"}) {
      fs::create_directories(path("parts"));
      fs::copy_file(kA + suffix, path("parts/c_" + number + "-of-" + count + "_text" + suffix));
    }
  };
  part("00000", "00003");
  part("00002", "00003");
  const auto merge = [&](const std::string& more = "") {
    return ferry("data merge " + path("parts") + " -o " + path("whole") + more);
  };
  EXPECT_EQ(merge().code, 3);
  EXPECT_THAT(merge().err, HasSubstr("number 00001 is not there"));
  EXPECT_EQ(merge(" --allow-missing-parts --dry-run").code, 0);
  part("00001", "00003");
  // What a writer that was killed left is not a pair.
  write(path("parts/.ferry-lock.other_text.idx"), "");
  EXPECT_EQ(merge().code, 0);
  EXPECT_EQ(read(path("whole.bin")), read(kA + ".bin") + read(kA + ".bin") + read(kA + ".bin"));
  for (const char* suffix : {".bin", ".idx"}) {
    fs::copy_file(path("whole") + suffix, path("parts/c_text") + suffix);
  }
  EXPECT_THAT(merge(" --overwrite").err, HasSubstr("as a whole and in parts"));
  for (const char* suffix : {".bin", ".idx"}) fs::remove(path("parts/c_text") + suffix);
  part("00000", "00001");
  EXPECT_THAT(merge(" --overwrite").err, HasSubstr("would be merged twice"));
}

TEST_F(Data, MergeRefusesAnOutputThatIsOrBecomesAnInput) {
  fs::create_directories(path("tokens/sub"));
  for (const char* suffix : {".bin", ".idx"}) {
    fs::copy_file(kA + suffix, path("tokens/a") + suffix);
    fs::copy_file(kB + suffix, path("tokens/b") + suffix);
  }
  const std::string before = read(path("tokens/a.idx"));
  const auto refused = [&](const std::string& inputs, const std::string& output) {
    const Outcome outcome = ferry("data merge --overwrite " + inputs + " -o " + path(output));
    EXPECT_EQ(outcome.code, 2) << inputs << " -o " << output;
    return outcome.err;
  };
  EXPECT_THAT(
      refused(path("tokens/b") + " " + path("tokens/a"), "./tokens/sub/../a.bin"),
      AllOf(HasSubstr("-o " + path("./tokens/sub/../a.bin") + " is the input " + path("tokens/a")),
            HasSubstr("cannot be merged into itself")));
  EXPECT_THAT(refused(path("tokens/"), "tokens/b"),
              HasSubstr("-o " + path("tokens/b") + " is the input " + path("tokens/b")));
  EXPECT_THAT(
      refused(kA + " " + path("tokens/"), "tokens/whole"),
      HasSubstr("-o " + path("tokens/whole") + " is in the input folder " + path("tokens/") + ","));
  fs::create_directory_symlink("tokens", path("link"));
  refused(path("tokens"), "link/whole");
  EXPECT_EQ(read(path("tokens/a.idx")), before);
  EXPECT_FALSE(fs::exists(path("tokens/whole.idx")));
  // The folders below it are none of its own, and pairs that are named stay as many.
  EXPECT_EQ(ferry("data merge " + path("tokens") + " -o " + path("tokens/sub/whole")).code, 0);
  const std::string named = path("tokens/a") + " " + path("tokens/b");
  EXPECT_EQ(ferry("data merge " + named + " -o " + path("tokens/whole")).code, 0);
  EXPECT_EQ(read(path("tokens/whole.idx")), read(path("tokens/sub/whole.idx")));
}

TEST_F(Data, MergeRefusesAPairThatIsNamedTwice) {
  fs::create_directories(path("tokens"));
  for (const char* suffix : {".bin", ".idx"}) {
    fs::copy_file(kA + suffix, path("tokens/a") + suffix);
    fs::copy_file(kA + suffix, path("tokens/the_same") + suffix);  // but another pair
  }
  const std::string a = path("tokens/a"), dotted = path("./tokens/a.idx");
  for (const std::string& inputs : {a + " " + a, dotted + " " + kB + " " + a,
                                    path("tokens") + " " + dotted + " --allow-missing-parts"}) {
    const Outcome outcome = ferry("data merge " + inputs + " -o " + path("whole"));
    EXPECT_EQ(outcome.code, 2) << inputs;
    EXPECT_THAT(outcome.err, HasSubstr("tokens/a is named twice")) << inputs;
  }
  EXPECT_THAT(ferry("data merge " + dotted + " " + a + " -o " + path("whole")).err,
              HasSubstr(a + " is named twice, the first time as " + path("./tokens/a") + ":"));
  EXPECT_EQ(ferry("data merge " + path("tokens") + " -o " + path("whole")).code, 0);
}

TEST_F(Data, MergeRefusesWhatDoesNotFit) {
  const std::string other = damaged(".idx", 17, uint8_t{3});
  EXPECT_EQ(ferry("data merge " + kA + " " + other + " -o " + path("both")).code, 6);
  EXPECT_EQ(
      ferry("data merge " + damaged(".idx", kLengths, int32_t{1}) + " -o " + path("both")).code, 4);
  EXPECT_EQ(ferry("data merge " + kA + " -o " + path("none/both")).code, 3);
  EXPECT_THAT(left(), UnorderedElementsAre("d.bin", "d.idx"));
}

// The tokens of a pair, document by document.
struct Bytes : Data {
  std::vector<std::vector<int>> documents(const std::string& prefix) const {
    std::vector<std::vector<int>> all;
    const int64_t count = data("inspect " + prefix).at("documents");
    for (int64_t i = 0; i < count; ++i) {
      const json seen = data("inspect " + prefix + " --document " + std::to_string(i));
      all.push_back(seen.at("document").at("first_tokens").get<std::vector<int>>());
    }
    return all;
  }
};

TEST_F(Bytes, AFileIsADocument) {
  write(path("a"), std::string("a\n\xff\0", 4));
  write(path("empty"), "");
  write(path("b"), "b");
  const std::string files = path("a") + " " + path("empty") + " " + path("b");
  const json plain = data("bytes " + path("plain") + " " + files);
  EXPECT_EQ(plain.at("output"), path("plain"));
  EXPECT_EQ(plain.at("files").size(), 3u);
  EXPECT_EQ(plain.at("documents"), 2);
  EXPECT_EQ(plain.at("left_out"), 1);
  EXPECT_EQ(plain.at("tokens"), 5);
  EXPECT_EQ(plain.at("vocabulary_size"), 257);
  EXPECT_EQ(plain.at("bytes").get<uint64_t>(),
            fs::file_size(path("plain.bin")) + fs::file_size(path("plain.idx")));
  EXPECT_THAT(documents(path("plain")),
              ElementsAre(ElementsAre('a', '\n', 255, 0), ElementsAre('b')));
  data("bytes --append-eod " + path("ended") + " " + files);
  EXPECT_THAT(documents(path("ended")),
              ElementsAre(ElementsAre('a', '\n', 255, 0, 256), ElementsAre('b', 256)));
  EXPECT_EQ(data("inspect " + path("ended")).at("dtype"), "uint16");
  EXPECT_EQ(data("check " + path("ended") + " --vocab-size 257").at("problems"), 0);
  EXPECT_THAT(ferry("data bytes " + path("t") + " " + path("b")).out,
              HasSubstr("--tokenizer-type NullTokenizer --vocab-size 257"));
}

TEST_F(Bytes, ALineIsADocument) {
  write(path("a"), "one\n\ntwo\n");
  write(path("b"), "three");  // ends without a newline, and is not a line with what follows
  write(path("c"), "4\r\n");
  const json written = data("bytes --lines --append-eod " + path("o") + " " + path("a") + " " +
                            path("b") + " " + path("c"));
  EXPECT_EQ(written.at("documents"), 4);
  EXPECT_EQ(written.at("left_out"), 1);
  EXPECT_THAT(documents(path("o")),
              ElementsAre(ElementsAre('o', 'n', 'e', 256), ElementsAre('t', 'w', 'o', 256),
                          ElementsAre('t', 'h', 'r', 'e', 'e', 256), ElementsAre('4', '\r', 256)));
}

// A file is read in pieces of a mebibyte; lines and documents go on from one to the next.
// A name in brackets is not a list of names.
TEST_F(Bytes, NamesInBracketsAreNames) {
  write(path("[a,b]"), "ab");
  EXPECT_EQ(data("bytes " + path("o") + " '" + path("[a,b]") + "'").at("tokens"), 2);
  std::filesystem::current_path(folder);
  EXPECT_EQ(data("bytes " + path("p") + " '[a,b]'").at("tokens"), 2);
  std::filesystem::current_path("/");
}

TEST_F(Bytes, PiecesLeaveNoTrace) {
  std::string text(3 << 20, 'x');
  for (size_t i = 0; i < text.size(); i += 700'001) text[i] = '\n';
  text[1 << 20] = '\n';
  write(path("a"), text);
  EXPECT_EQ(data("bytes " + path("whole") + " " + path("a")).at("documents"), 1);
  const std::string tokens = read(path("whole.bin"));
  ASSERT_EQ(tokens.size(), 2 * text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    ASSERT_EQ(tokens[2 * i], text[i]) << i;
    ASSERT_EQ(tokens[2 * i + 1], 0) << i;
  }
  const json lines = data("bytes --lines " + path("lines") + " " + path("a"));
  const auto newlines = std::count(text.begin(), text.end(), '\n');
  EXPECT_EQ(lines.at("documents"), newlines);  // the first line is empty, the last has no newline
  EXPECT_EQ(lines.at("left_out"), 1);
  EXPECT_EQ(lines.at("tokens").get<int64_t>(), std::ssize(text) - newlines);
}

TEST_F(Bytes, NothingIsReplacedAndNothingRemains) {
  write(path("a"), "text");
  data("bytes " + path("o") + " " + path("a"));
  const std::string before = read(path("o.bin"));
  EXPECT_EQ(ferry("data bytes " + path("o") + " " + path("a")).code, 2);
  EXPECT_EQ(ferry("data bytes " + path("p") + " " + path("a") + " " + path("none")).code, 3);
  EXPECT_EQ(ferry("data bytes " + path("p") + " " + path("")).code, 2);  // a folder
  EXPECT_EQ(ferry("data bytes " + path("p")).code, 2);
  EXPECT_EQ(ferry("data bytes '' " + path("a")).code, 2);
  EXPECT_THAT(ferry("data bytes " + path("p/") + " " + path("a")).err,
              HasSubstr("p/ names a folder: give the prefix"));
  EXPECT_EQ(ferry("data bytes " + path("none/p") + " " + path("a")).code, 3);
  const Outcome itself = ferry("data bytes --overwrite " + path("o") + " " + path("o.bin"));
  EXPECT_EQ(itself.code, 2);
  EXPECT_THAT(itself.err, HasSubstr("would be replaced by what is made of it"));
  EXPECT_THAT(left(), UnorderedElementsAre("a", "o.bin", "o.idx"));
  EXPECT_EQ(read(path("o.bin")), before);
  write(path("a"), "other");
  EXPECT_EQ(data("bytes --overwrite " + path("o.idx") + " " + path("a")).at("tokens"), 5);
}

}  // namespace
