// `ferry data tokenize`: texts of all kinds to token files, broken ones, parts, and runs that stop.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support.h"
#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

struct Tokenize : Program {
  std::string bytes(const std::string& input, const std::string& more = "") const {
    return "data tokenize --tokenizer-type bytes --input " + input + " --output-prefix " +
           path("o") + " " + more;
  }
  json tokenized(const std::string& input, const std::string& more = "") const {
    const Outcome outcome = ferry(bytes(input, more) + " --json");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out);
  }
  json refused(const std::string& input, int code, const std::string& more = "") const {
    const Outcome outcome = ferry(bytes(input, more) + " --json");
    EXPECT_EQ(outcome.code, code) << outcome.out;
    return json::parse(outcome.out).at("error").at("message");
  }
  std::string in(const std::string& content, const std::string& name = "in.jsonl") const {
    write(path(name), content);
    return path(name);
  }
  // The texts that bytes stand for; '$' for the end of a document.
  std::string text_of(const std::string& prefix) const {
    std::string text;
    const std::string stored = read(path(prefix) + ".bin");
    for (size_t i = 0; i + 1 < stored.size(); i += 2) text += stored[i + 1] ? '$' : stored[i];
    return text;
  }
  std::string pair(const std::string& prefix) const {
    return read(path(prefix) + ".bin") + read(path(prefix) + ".idx");
  }
  std::string many_lines(int count) const {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += "{\"text\": \"document " + std::to_string(i) + std::string(i % 97, 'x') + "\"}\n";
    }
    return text;
  }
};

TEST_F(Tokenize, EachKeyHasFilesOfItsOwn) {
  const json done = tokenized(in("{\"a\":\"x\",\"b\":[\"y\",\"\",\"z\"]}\n{\"b\":\"\",\"a\":\"\"}\n"
                                 "{\"a\":\"u\",\"b\":\"v\"}"),
                              "--json-keys a b --append-eod");
  EXPECT_EQ(text_of("o_a_document"), "x$u$");
  EXPECT_EQ(text_of("o_b_document"), "yz$v$");
  EXPECT_EQ(done.at("outputs").at(1).at("sequences"), 3);  // two of them of the first document
  EXPECT_EQ(done.at("outputs").at(1).at("documents"), 3);
  EXPECT_EQ(done.at("empty_documents"), 2);
  EXPECT_EQ(done.at("characters"), 60);
  EXPECT_EQ(ferry("data check " + path("o_a_document") + " " + path("o_b_document")).code, 0);
}

TEST_F(Tokenize, TextsAndLines) {
  in("one\ntwo\r\n\nthree", "a.txt");
  tokenized(path("a.txt"), "--append-eod");
  EXPECT_EQ(text_of("o_text_document"), "one\ntwo\r\n\nthree$");
  tokenized(path("a.txt"), "--append-eod --input-format lines --overwrite");
  EXPECT_EQ(text_of("o_text_document"), "one$two$three$");
  in("b", "b.txt");
  tokenized("'" + path("") + "*.txt'", "--append-eod --overwrite");
  EXPECT_EQ(text_of("o_text_document"), "one\ntwo\r\n\nthree$b$");
  write(path("list"), "b.txt\na.txt\n");
  tokenized(path("b.txt"), "--input-list " + path("list") + " --input-folder " + path("") +
                               " --append-eod --overwrite");
  EXPECT_EQ(text_of("o_text_document"), "b$b$one\ntwo\r\n\nthree$");
}

TEST_F(Tokenize, SentencesAreLists) {
  const std::string input = in("{\"text\":[\"a\",\"b\"]}\n");
  tokenized(input, "--split-sentences");
  EXPECT_EQ(text_of("o_text_sentence"), "ab");
  in("{\"text\":\"a b\"}\n");
  EXPECT_THAT(refused(input, 4, "--split-sentences --overwrite"),
              HasSubstr("line 1: \"text\" is not a list of sentences"));
  in("One here.", "a.txt");
  EXPECT_THAT(refused(path("a.txt"), 2, "--split-sentences --overwrite"),
              HasSubstr("leave out --split-sentences"));
}

TEST_F(Tokenize, CompressedTextsAndPipesAreTheSame) {
  const std::string input = in(many_lines(3000));
  tokenized(input, "--append-eod");
  const std::string expected = pair("o_text_document");
  for (const std::string tool : {"gzip", "zstd -q", "xz"}) {
    ASSERT_EQ(std::system((tool + " -c " + input + " > " + path("c")).c_str()), 0);
    ASSERT_EQ(std::system((tool + " -c " + input + " >> " + path("c")).c_str()), 0);
    tokenized(path("c"), "--append-eod --overwrite");
    const std::string both = text_of("o_text_document");
    EXPECT_EQ(both.substr(0, both.size() / 2), both.substr(both.size() / 2)) << tool;
    // Cut short, it is not text.
    fs::resize_file(path("c"), fs::file_size(path("c")) - 5);
    EXPECT_THAT(refused(path("c"), 4, "--overwrite"), HasSubstr("it is truncated")) << tool;
    EXPECT_EQ(text_of("o_text_document"), both);
  }
  for (const std::string tool : {"gzip", "zstd", "xz"}) {
    ASSERT_EQ(std::system((tool + " -q -c " + input + " > " + path("c")).c_str()), 0);
    std::ofstream(path("c"), std::ios::app) << "garbage\n";
    EXPECT_THAT(refused(path("c"), 4, "--overwrite"),
                HasSubstr("something follows what " + tool + " compressed"));
    // A few bytes, and as many as a header has.
    ASSERT_EQ(std::system((tool + " -q -c " + input + " > " + path("c")).c_str()), 0);
    std::ofstream(path("c"), std::ios::app) << std::string(100, 'g');
    EXPECT_THAT(refused(path("c"), 4, "--overwrite"),
                HasSubstr("something follows what " + tool + " compressed"));
  }
  const Outcome piped = ferry(bytes("-", "--append-eod --overwrite < ") + input);
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(pair("o_text_document"), expected);
  write(path("p"), "PAR1....");
  EXPECT_THAT(refused(path("p"), 4, "--overwrite"), HasSubstr("too few for a Parquet file"));
  EXPECT_THAT(refused("- < " + path("p"), 5, "--overwrite"), HasSubstr("in a pipe"));
  EXPECT_THAT(refused(path("p"), 2, "--input-format lines"), HasSubstr("leave out --input-format"));
  write(path("p"), "BZh91AY");
  EXPECT_THAT(refused(path("p"), 5, "--overwrite"), HasSubstr("bzcat"));
}

TEST_F(Tokenize, RowsOfParquetFilesAreLines) {
  const std::string parquet = std::string(FERRY_FIXTURES) + "/parquet/";
  const json rows = json::parse(read(parquet + "rows.json"));
  std::string lines;
  for (size_t i = 0; i < rows.at("text").size(); ++i) {
    lines += json{{"text", rows.at("text")[i]}, {"title", rows.at("title")[i]}}.dump() + "\n";
  }
  const std::string same = "--append-eod --skip-bad --overwrite --json-keys title text";
  EXPECT_EQ(tokenized(in(lines), same).at("bad_lines"), 29);  // nulls
  const std::string expected = pair("o_text_document") + pair("o_title_document");
  const json done = tokenized(parquet + "arrow_snappy.parquet", same + " --workers 3");
  EXPECT_EQ(pair("o_text_document") + pair("o_title_document"), expected);
  EXPECT_THAT(done.at("first_bad_lines").at(0).at("place"),
              HasSubstr("arrow_snappy.parquet, row 4"));
  EXPECT_THAT(refused(parquet + "arrow_snappy.parquet", 3, "--json-keys txt --overwrite"),
              HasSubstr("it has n, text, title"));
  // A run that stopped at a null goes on.
  fs::remove(path("o_text_document.idx"));
  fs::remove(path("o_title_document.idx"));
  const std::string resumed = "--append-eod --json-keys title text --resume --overwrite ";
  EXPECT_THAT(refused(parquet + "polars.parquet", 4, resumed), HasSubstr("row 4"));
  tokenized(parquet + "polars.parquet", resumed + "--skip-bad");
  EXPECT_EQ(pair("o_text_document") + pair("o_title_document"), expected);
}

TEST_F(Tokenize, TheOrderIsTheTexts) {
  const std::string input = in(many_lines(20000));
  tokenized(input, "--workers 1");
  const std::string expected = pair("o_text_document");
  for (const char* workers : {"2", "3", "16"}) {
    tokenized(input, std::string("--overwrite --workers ") + workers);
    EXPECT_EQ(pair("o_text_document"), expected) << workers;
  }
  tokenized(input, "--overwrite --partitions 4 --keep-sequential-samples");
  EXPECT_EQ(pair("o_text_document"), expected);
}

TEST_F(Tokenize, PartitionsDealLinesInTurn) {
  tokenized(in("{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"c\"}\n{\"text\":\"d\"}\n"),
            "--partitions 3");
  EXPECT_EQ(text_of("o_text_document"), "adbc");
  EXPECT_THAT(ferry("data tokenize --tokenizer-type bytes --input " + path("in.jsonl") +
                    " --output-prefix " + path("p") + " --partitions 3 --dry-run")
                  .out,
              HasSubstr("from 1 file, 52 B"));
}

TEST_F(Tokenize, PartsMergeToTheWhole) {
  const std::string input =
      in(many_lines(40)) + " " + in("", "empty.jsonl") + " " + in(many_lines(10), "b.jsonl");
  tokenized(input, "--append-eod");
  for (int count : {1, 2, 7, 60}) {
    fs::create_directory(path("parts"));
    for (int k = 0; k < count; ++k) {
      const std::string part = std::to_string(k) + "/" + std::to_string(count);
      ASSERT_EQ(ferry("data tokenize --tokenizer-type bytes --append-eod --input " + input +
                      " --output-prefix " + path("parts/p") + " --part " + part)
                    .code,
                0);
    }
    ASSERT_EQ(ferry("data merge --overwrite " + path("parts") + " -o " + path("m")).code, 0);
    EXPECT_EQ(pair("m"), pair("o_text_document")) << count;
    fs::remove_all(path("parts"));
  }
  ASSERT_EQ(::setenv("SLURM_ARRAY_TASK_ID", "3", 1), 0);
  ::setenv("SLURM_ARRAY_TASK_MIN", "1", 1);
  ::setenv("SLURM_ARRAY_TASK_COUNT", "4", 1);
  EXPECT_EQ(tokenized(input, "--part auto").at("part"), (json{{"number", 2}, {"count", 4}}));
  ::unsetenv("SLURM_ARRAY_TASK_ID");
  ::unsetenv("SLURM_ARRAY_TASK_MIN");
  ::unsetenv("SLURM_ARRAY_TASK_COUNT");
  EXPECT_THAT(refused(input, 2, "--part auto"), HasSubstr("give --part K/N"));
  for (const char* part : {"4/4", "-1/4", "1", "1/", "a/b", "0/0"}) {
    EXPECT_THAT(refused(input, 2, std::string("--part=") + part), HasSubstr("is neither auto"));
  }
}

TEST_F(Tokenize, BadLinesAreNamedOrCounted) {
  const std::string good = "{\"text\":\"good\"}\n";
  const std::string input = in(good + "\n" + "{\"text\":\"bad\n" + good + "{\"txt\":\"x\"}\n" +
                               "{\"text\":\"\xff\"}\n" + "{\"text\":\"\\ud800\"}\n" + good);
  EXPECT_THAT(refused(input, 4),
              AllOf(HasSubstr("in.jsonl, line 3: a string does not end"), HasSubstr("--skip-bad")));
  EXPECT_THAT(left(), ElementsAre("in.jsonl"));
  const json done = tokenized(input, "--skip-bad");
  EXPECT_EQ(text_of("o_text_document"), "goodgoodgood");
  EXPECT_EQ(done.at("bad_lines"), 4);
  EXPECT_EQ(done.at("blank_lines"), 1);
  EXPECT_THAT(done.at("first_bad_lines").at(1).at("place"), HasSubstr("line 5"));
  // A part knows the lines before it, too.
  EXPECT_THAT(refused(input, 4, "--part 1/2 --overwrite"),
              HasSubstr("in.jsonl, line 6: byte 0xff"));
  EXPECT_THAT(refused(in("\xff", "a.txt"), 4, "--overwrite"), HasSubstr("a.txt: it is not UTF-8"));
}

TEST_F(Tokenize, RefusesWhatDoesNotFit) {
  const std::string input = in("{\"text\":\"" + std::string(2000, 'x') + "\"}\n");
  EXPECT_THAT(refused(input, 8, "--max-line 1kB"), HasSubstr("the limit of --max-line"));
  EXPECT_THAT(refused(path("none"), 3), HasSubstr("does not exist"));
  EXPECT_THAT(refused("'" + path("*.none") + "'", 3), HasSubstr("no file fits"));
  EXPECT_THAT(refused(path(""), 2), HasSubstr("is a folder"));
  EXPECT_THAT(refused("-", 2, "--resume"), HasSubstr("standard input is not a regular file"));
  EXPECT_THAT(refused(in("", "a.txt"), 2, "--json-keys a b"), HasSubstr("several keys"));
  EXPECT_THAT(refused(input, 2, "--json-keys a/b"), HasSubstr("file's name"));
  EXPECT_EQ(ferry(bytes(input, "--tokenizer-type none")).code, 2);
  tokenized(input);
  EXPECT_THAT(refused(input, 2), HasSubstr("exists"));
  EXPECT_EQ(ferry(bytes(input, "--overwrite --dry-run")).code, 0);
  EXPECT_THAT(left(), UnorderedElementsAre("in.jsonl", "a.txt", "o_text_document.bin",
                                           "o_text_document.idx"));
}

TEST_F(Tokenize, WarnsOfWhatIsLegalAndSeldomMeant) {
  const std::string input = in(many_lines(3));
  const Outcome twice = ferry(bytes(input + " " + folder.string() + "/./in.jsonl"));
  EXPECT_EQ(twice.code, 0);
  EXPECT_THAT(twice.err, HasSubstr("is named twice: its texts are written twice"));
  EXPECT_THAT(ferry(bytes(input, "--overwrite")).err, Not(HasSubstr("twice")));
  const Outcome empty = ferry(bytes(in("\n\n", "empty.jsonl"), "--overwrite"));
  EXPECT_EQ(empty.code, 0);
  EXPECT_THAT(empty.out,
              AllOf(HasSubstr("the inputs hold no document"), Not(HasSubstr("to train on it"))));
  EXPECT_THAT(
      ferry(bytes(in("{\"text\": \"\"}\n", "none.jsonl"), "--overwrite")).out,
      AllOf(HasSubstr("warning: no document has a token"), Not(HasSubstr("to train on it"))));
  const std::string address = refused("s3://bucket/in.jsonl", 5, "--overwrite");
  EXPECT_THAT(address, HasSubstr("give it through a pipe"));
}

TEST_F(Tokenize, FilesOfOtherKindsAreNamed) {
  const std::string input = in(many_lines(3));
  EXPECT_THAT(ferry("data inspect " + input).err, HasSubstr("ferry data tokenize makes of texts"));
  ASSERT_EQ(ferry(bytes(input)).code, 0);
  EXPECT_THAT(ferry("data show " + folder.string()).err,
              HasSubstr("is a folder; give one of the 1 pairs in it: " + path("o_text_document")));
  EXPECT_EQ(ferry("data show " + path("o_text_document.bin")).code, 0);
  EXPECT_THAT(ferry("data tokenize --input " + input + " --output-prefix " + path("p") +
                    " --tokenizer-type HuggingFaceTokenizer --tokenizer-model org/model")
                  .err,
              HasSubstr("for a model on a hub"));
}

TEST_F(Tokenize, TheTypeIsShownAndMayBeChosen) {
  EXPECT_EQ(tokenized(in("{\"text\":\"ab\"}\n")).at("dtype"), "uint16");
  EXPECT_EQ(tokenized(path("in.jsonl"), "--dtype int32 --overwrite").at("dtype"), "int32");
  EXPECT_EQ(fs::file_size(path("o_text_document.bin")), 8u);
}

TEST_F(Tokenize, TakesSentencePieceModels) {
  const std::string model = ferry::test::fixture("tokenizers/spm-bpe-bytes.model");
  for (const char* type :
       {"SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer"}) {
    const Outcome outcome =
        ferry(std::string("data tokenize --append-eod --json --overwrite ") + "--tokenizer-type " +
              type + " --tokenizer-model " + model + " --input " + in("{\"text\":\"the the\"}\n") +
              " --output-prefix " + path("o"));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(json::parse(outcome.out).at("tokenizer"), StartsWith("SentencePiece's BPE of "));
    EXPECT_TRUE(read(path("o_text_document.bin")).ends_with(std::string("\2\0", 2)));  // </s>
  }
}

TEST_F(Tokenize, LogsAsPreprocessDataDoes) {
  const Outcome outcome = ferry(bytes(in(many_lines(2500)), "--log-interval 1000 --workers 1"));
  EXPECT_THAT(outcome.out, StartsWith("Processing data with 1 workers.\nOpening " +
                                      path("in.jsonl") + "\nTime to startup: "));
  EXPECT_THAT(outcome.err, testing::MatchesRegex(
                               "Processed 1000 documents .[0-9.e+]+ docs/s, [0-9.e+-]+ MB/s..\n"
                               "Processed 2000 documents .[0-9.e+]+ docs/s, [0-9.e+-]+ MB/s..\n"));
}

// A run that was stopped at a bad line goes on when the line is let be.
TEST_F(Tokenize, GoesOnWhereItStopped) {
  const std::string input = in(many_lines(30000) + "broken\n" + many_lines(5000));
  tokenized(input, "--skip-bad --append-eod");
  const std::string expected = pair("o_text_document");
  for (const char* suffix : {".bin", ".idx"}) fs::remove(path("o_text_document") + suffix);
  EXPECT_THAT(refused(input, 4, "--append-eod --resume"), HasSubstr("line 30001"));
  EXPECT_THAT(left(), UnorderedElementsAre("in.jsonl", "o.unfinished"));
  EXPECT_THAT(refused(input, 2, "--append-eod --skip-bad"), HasSubstr("give --resume"));
  EXPECT_THAT(refused(input, 6, "--skip-bad --resume"), HasSubstr("other '--append-eod'"));
  const json done = tokenized(input, "--append-eod --skip-bad --resume");
  EXPECT_EQ(done.at("resumed"), true);
  EXPECT_EQ(done.at("bad_lines"), 1);
  EXPECT_EQ(pair("o_text_document"), expected);
  EXPECT_THAT(left(), Not(Contains(HasSubstr("unfinished"))));
}

// Killed at moments spread over the time that a whole run takes on this machine.
TEST_F(Tokenize, GoesOnAfterBeingKilled) {
  const std::string input = in(many_lines(60000));
  const auto start = std::chrono::steady_clock::now();
  tokenized(input, "--append-eod --json-keys text");
  const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - start;
  const std::string expected = pair("o_text_document");
  int killed = 0;
  for (int part = 1; part <= 12; ++part) {
    for (const char* suffix : {".bin", ".idx"}) fs::remove(path("o_text_document") + suffix);
    for (int attempt = 0; attempt < 3; ++attempt) {
      const pid_t child =
          begin_ferry(bytes(input, "--append-eod --resume --resume-interval 0.001"));
      std::this_thread::sleep_for(whole * part / 12);
      ::kill(child, SIGKILL);
      const int status = end_of(child);
      killed += status != 0;
      if (status == 0) break;
      // No index stands under its name before all is there.
      if (fs::exists(path("o_text_document.idx"))) {
        EXPECT_EQ(pair("o_text_document"), expected);
      }
    }
    if (!fs::exists(path("o_text_document.idx"))) tokenized(input, "--append-eod --resume");
    EXPECT_EQ(pair("o_text_document"), expected);
    for (const std::string& name : left()) EXPECT_THAT(name, Not(StartsWith(".ferry-partial")));
    fs::remove_all(path("o.unfinished"));
  }
  EXPECT_GT(killed, 0);
}

TEST_F(Tokenize, AStopLeavesNothing) {
  const std::string input = in(many_lines(10));
  // Standard input that never ends.
  const std::string endless = "(cat " + input + "; sleep 5) | timeout -s INT 1 " + FERRY_PROGRAM +
                              " " + bytes("-") + " > /dev/null 2>" + path("err");
  EXPECT_NE(std::system(endless.c_str()), 0);
  EXPECT_THAT(read(path("err")), HasSubstr("stopped"));
  EXPECT_THAT(left(), UnorderedElementsAre("in.jsonl", "err"));
  // A FIFO that nobody writes to: one signal is enough.
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  const std::string waiting = "timeout -k 15 -s INT 1 " + std::string(FERRY_PROGRAM) + " " +
                              bytes(path("fifo")) + " > /dev/null 2>" + path("err");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NE(std::system(waiting.c_str()), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_THAT(read(path("err")), HasSubstr("stopped by a signal"));
  EXPECT_THAT(left(), UnorderedElementsAre("in.jsonl", "err", "fifo"));
}

TEST_F(Tokenize, WaitsForOneWhoWritesToAFifo) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  const std::string writer = "(sleep 0.5; echo '{\"text\": \"late\"}' > " + path("fifo") + ") &";
  ASSERT_EQ(std::system(writer.c_str()), 0);
  tokenized(path("fifo"));
  EXPECT_EQ(text_of("o_text_document"), "late");
}

// What it prints last can be pasted as it is.
TEST_F(Tokenize, PrintsTheTokenizerForTraining) {
  const std::string tokenizers = std::string(FERRY_FIXTURES) + "/tokenizers/";
  in(many_lines(300));
  fs::create_directories(path("model"));
  fs::copy_file(tokenizers + "hf-llama3.json", path("model/tokenizer.json"));
  const std::string all[] = {
      "bytes",
      "HuggingFaceTokenizer --tokenizer-model " + path("model/tokenizer.json"),
      "HuggingFaceTokenizer --tokenizer-model " + path("model"),
      "HuggingFaceTokenizer --tokenizer-model " + tokenizers + "hf-llama2.json",
      "Llama2Tokenizer --tokenizer-model " + tokenizers + "spm-bpe.model",
      "TikTokenizer --tiktoken-pattern r50k --tokenizer-model " + tokenizers +
          "tiktoken-gpt2.tiktoken",
      "GPT2BPETokenizer --vocab-file " + tokenizers + "gpt2/encoder.json --merge-file " +
          tokenizers + "gpt2/vocab.bpe"};
  for (const std::string& tokenizer : all) {
    const Outcome written =
        ferry("data tokenize --overwrite --input " + path("in.jsonl") + " --output-prefix " +
              path("o") + " --tokenizer-type " + tokenizer);
    ASSERT_EQ(written.code, 0) << written.err;
    const std::string mark = "to train on it: ";
    const size_t at = written.out.find(mark);
    ASSERT_NE(at, std::string::npos) << written.out;
    const std::string options = written.out.substr(at + mark.size());
    const Outcome trained = ferry(
        "train --dry-run --device cpu --num-layers 1 --hidden-size 32 --num-attention-heads 4 "
        "--seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --lr 1e-3 "
        "--train-iters 2 --split 1,0,0 --eval-iters 0 " +
        options.substr(0, options.find('\n')));
    EXPECT_EQ(trained.code, 0) << options << trained.err;
  }
}

TEST_F(Tokenize, AFullDiskLeavesNothing) {
  const std::string input = in(many_lines(60000));
  const std::string command = "bash -c 'ulimit -f 256; trap \"\" XFSZ; exec " +
                              std::string(FERRY_PROGRAM) + " " + bytes(input) + "' 2>" +
                              path("err") + " >/dev/null";
  EXPECT_NE(std::system(command.c_str()), 0);
  EXPECT_THAT(read(path("err")), HasSubstr("cannot write"));
  EXPECT_THAT(left(), UnorderedElementsAre("in.jsonl", "err"));
}

}  // namespace
