// `ferry data check --dataset`: programs that keep to the data contract, that break it, and that
// are no such programs at all.
#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::Outcome;
using ferry::test::Program;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

struct DatasetPrograms : Program {
  // A shell's script as the dataset, which says that it has 100 items and calls `answer`.
  std::string script(const std::string& answer,
                     const std::string& first = "{\"size\": 100}") const {
    write(path("dataset.sh"), "echo '" + first + "'\nreads=0\nlast=-1\nanswer() { " + answer +
                                  "; }\nwhile read -r line; do\n  index=${line#*: }; "
                                  "index=${index%%,*}\n  epoch=${line##*: }; epoch=${epoch%\\}}\n"
                                  "  reads=$((reads + 1))\n  answer\ndone\n");
    return "data check --dataset 'sh " + path("dataset.sh") + "' ";
  }
  json checked(const std::string& command, int code = 0) const {
    const Outcome outcome = ferry(command + " --json");
    EXPECT_EQ(outcome.code, code) << outcome.err;
    return json::parse(outcome.out);
  }
  json problem(const std::string& answer, const std::string& more = "") const {
    const json report = checked(script(answer) + more, 4);
    EXPECT_EQ(report.at("problems"), 1);
    return report.at("dataset").at("problems").at(0);
  }
  std::string refused(const std::string& command, int code) const {
    const Outcome outcome = ferry(command);
    EXPECT_EQ(outcome.code, code) << outcome.out << outcome.err;
    return outcome.err;
  }
};

constexpr const char* kGood = R"(echo "{\"item\": [$index, $epoch]}")";

TEST_F(DatasetPrograms, ThatKeepToTheContractHaveNoProblem) {
  const json report = checked(script(kGood)).at("dataset");
  EXPECT_EQ(report.at("size"), 100);
  EXPECT_EQ(report.at("reads"), 32 * 2 * 5);
  EXPECT_TRUE(report.at("notes").empty());
  const Outcome text = ferry(script(R"(echo "{\"item\": $index}")") + "--items 5 --epochs 3");
  EXPECT_THAT(text.out, AllOf(HasSubstr("100 items, 5 of them read in 3 epochs by 3 processes, "
                                        "no problem"),
                              HasSubstr("items are the same in every epoch")));
  EXPECT_THAT(ferry(script(R"(echo "{\"item\": 1}")") + "--processes 1").out,
              HasSubstr("all items that were read are the same"));
}

TEST_F(DatasetPrograms, ThatBreakItAreReported) {
  const json again = problem(R"(echo "{\"item\": $((index == 99 ? reads : 0))}")");
  EXPECT_EQ(again.at("kind"), "read_again");
  EXPECT_EQ(again.at("index"), 99);
  EXPECT_EQ(again.at("items"), 2);
  EXPECT_NE(again.at("expected"), again.at("found"));
  const json order =
      problem(R"(echo "{\"item\": $((last > index ? 1 : 0))}"; last=$index)", "--epochs 1");
  EXPECT_EQ(order.at("kind"), "other_order");
  EXPECT_EQ(order.at("process"), 0);
  EXPECT_EQ(problem(R"(echo "{\"item\": $RANK}")").at("kind"), "other_process");
  EXPECT_EQ(problem(R"(echo "{\"item\": $$}")").at("process"), 1);
  const Outcome seeds = ferry(script(R"(echo "{\"item\": $index, \"problem\": \"seeds\"}")") +
                              "--processes 1 --items 3");
  EXPECT_EQ(seeds.code, 4);
  EXPECT_THAT(seeds.out, AllOf(HasSubstr("breaks the data contract"),
                               HasSubstr("process 0 says of item 0 of epoch 0: seeds, and so are "
                                         "17 more")));
}

TEST_F(DatasetPrograms, ThatAreNoneAreRefused) {
  const std::string good = script(kGood);
  EXPECT_THAT(refused("data check --dataset /none/such", 7),
              HasSubstr("could not be started (exit code 127)"));
  EXPECT_THAT(refused("data check --dataset 'exit 3'", 7),
              HasSubstr("ended with exit code 3 instead of answering with the dataset's size"));
  EXPECT_THAT(refused("data check --dataset 'kill -9 $$'", 7), HasSubstr("ended by signal 9"));
  EXPECT_THAT(refused("data check --dataset 'sleep 30' --timeout 0.2", 7),
              HasSubstr("did not answer with the dataset's size within 0.20 s"));
  EXPECT_THAT(refused("data check --dataset 'exec >&-; sleep 30'", 7),
              HasSubstr("closed its standard input or output"));
  for (const char* first : {"hello", "{}", "[1]", "{\"size\": -1}", "{\"size\": 1.5}",
                            "{\"size\": \"x\"}", "{\"size\": 18446744073709551615}", ""}) {
    EXPECT_THAT(refused(script(kGood, first), 4), HasSubstr("process 0 of the dataset")) << first;
  }
  EXPECT_THAT(refused(script(kGood, "{\"size\": 0}"), 2), HasSubstr("without items"));
  EXPECT_THAT(
      refused(script("echo loading >&2; [ $reads -lt 5 ] || exit 9; " + std::string(kGood)), 7),
      AllOf(HasSubstr("loading"), HasSubstr("ended with exit code 9 instead of answering "
                                            "for item ")));
  EXPECT_THAT(
      refused(script("[ $reads -lt 5 ] || sleep 30; " + std::string(kGood)) + "--timeout 0.2", 7),
      HasSubstr("did not answer for item "));
  EXPECT_THAT(refused(script("echo loading"), 4), HasSubstr("with 'loading', which is not a JSON"));
  EXPECT_THAT(refused(script("echo '{\"item\": NaN}'"), 4), HasSubstr("NaN and Infinity"));
  EXPECT_THAT(refused(script("echo '{\"itm\": 1}'"), 4),
              HasSubstr("not a JSON object with \"item\""));
  EXPECT_THAT(refused(script("echo '{\"item\": 1}'; echo '{\"item\": 1}'"), 4),
              HasSubstr("it has to answer each line with one line"));
  // A line that does not end.
  EXPECT_THAT(refused("data check --dataset 'yes | tr -d \"\\n\"'", 8),
              HasSubstr("a line of more than 67.1 MB"));
  EXPECT_THAT(refused(good + "a", 2), HasSubstr("takes neither token files"));
  EXPECT_THAT(refused("data check", 2), HasSubstr("what is to be checked?"));
}

// What a program started itself ends with it, too.
TEST_F(DatasetPrograms, LeaveNothingRunning) {
  const std::string begun = path("begun");
  write(path("d.sh"), "sleep 300 & echo $! >" + begun + "; wait\n");
  refused("data check --dataset 'sh " + path("d.sh") + "' --processes 1 --timeout 0.3", 7);
  const std::string process = read(begun);
  ASSERT_FALSE(process.empty());
  const std::string state = "/proc/" + process.substr(0, process.find('\n')) + "/stat";
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto lives = [&] {
    const std::string stat = read(state);
    return !stat.empty() && stat.find(") Z") == std::string::npos;
  };
  while (lives() && std::chrono::steady_clock::now() < until) ::usleep(10000);
  EXPECT_FALSE(lives());
}

TEST_F(DatasetPrograms, TheExampleIsOne) {
  if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "there is no python3";
  const std::string example = std::string(FERRY_FIXTURES) + "/../../examples/dataset/dataset.py";
  EXPECT_EQ(checked("data check --dataset 'python3 " + example + "'").at("problems"), 0);
}

}  // namespace
