// Figures in the lines of logs: ferry's own, Megatron-LM's and its forks', and what is no such
// line.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <random>

#include "tests/random_cases.h"
#include "tests/tools/report/training_logs.h"
#include "trainer/log/log_files.h"
#include "trainer/log/progress_log.h"

namespace ferry::tool {
namespace {

using testing::ElementsAre;
using testing::Pair;
using Kind = LogRecord::Kind;

std::map<std::string, double> figures_of(std::string_view line) {
  const LogRecord record = read_log_line(line);
  return {record.figures.begin(), record.figures.end()};
}

// What ferry train prints is what is read.
TEST(LogLines, OfFerry) {
  TrainingLine line = training_line_of(5, 2.5);
  line.date_and_time = "2026-11-22 06:27:19.078448";
  line.teraflops = 1.5;
  line.zeros = 3;
  const LogRecord record = read_log_line(training_line(line));
  EXPECT_EQ(record.kind, Kind::figures);
  EXPECT_EQ(record.iteration, 5);
  EXPECT_EQ(record.planned, 100);
  EXPECT_EQ(record.when, "2026-11-22 06:27:19");
  const auto figures = figures_of(training_line(line));
  EXPECT_EQ(figures.at("lm loss"), 2.5);
  EXPECT_EQ(figures.at("learning_rate"), 1e-3);
  EXPECT_EQ(figures.at("grad_norm"), 0.5);
  EXPECT_EQ(figures.at("milliseconds"), 500);
  EXPECT_EQ(figures.at("teraflops"), 1.5);
  EXPECT_EQ(figures.at("num_zeros"), 3);
  // The same figures, by the same names.
  auto in_json = figures_of(metrics_json(line));
  EXPECT_EQ(in_json.erase("skipped_samples"), 1u);  // in lines only where there are some
  EXPECT_EQ(figures, in_json);
  const std::string validation =
      validation_lines("iteration 40 on validation set", {{"lm loss", 2.25}});
  const std::string middle = validation.substr(validation.find('\n') + 1);
  EXPECT_THAT(figures_of(middle.substr(0, middle.find('\n'))),
              ElementsAre(Pair("lm loss validation", 2.25)));
  EXPECT_EQ(read_log_line(middle).iteration, 40);
  // From a file that was emptied while a run wrote it.
  EXPECT_EQ(
      read_log_line(std::string(100, '\0') + "{\"iteration\": 7, \"lm loss\": 2.5}").iteration, 7);
  EXPECT_THAT(figures_of(validation_json({{"lm loss", 2.25}}, 40, 320)),
              testing::Contains(Pair("lm loss validation", 2.25)));
}

TEST(LogLines, OfMegatronAndItsForks) {
  const auto figures = figures_of(
      "iteration        3/      30 | consumed samples:           24 | consumed tokens: 0.000B | "
      "elapsed time per "
      "iteration (ms): 94.8 | eta: 0:00:02 | tokens/sec/gpu: 2701.5 | learning rate: 6.000000E-04 "
      "| global batch "
      "size:     8 | lm loss: 5.544053E+00 | loss scale: 1.0 | grad norm: 0.557 | number of "
      "skipped iterations:   0 |");
  EXPECT_EQ(figures.at("lm loss"), 5.544053);
  EXPECT_EQ(figures.at("tokens/sec/gpu"), 2701.5);
  EXPECT_EQ(figures.count("eta"), 0u);
  EXPECT_EQ(figures.count("consumed tokens"), 0u);
  // An iteration that was skipped has no loss, and Megatron-LM prints 0.
  EXPECT_EQ(
      figures_of(" iteration 28/ 60 | lm loss: 0.000000E+00 | number of skipped iterations:   1 |")
          .count("lm loss"),
      0u);
  const LogRecord prefixed = read_log_line(
      "[default3]: [2026-11-22 06:29:42.688286] iteration       10/      30 | lm loss: 1.5 |");
  EXPECT_EQ(prefixed.iteration, 10);
  EXPECT_EQ(prefixed.when, "2026-11-22 06:29:42");
  EXPECT_TRUE(
      std::isnan(figures_of("iteration 4/ 9 | lm loss: nan | grad norm: NAN |").at("grad_norm")));
  const LogRecord test = read_log_line(
      " validation loss at iteration 20 on test set | lm loss value: 2.0E+00 | lm loss PPL: "
      "7.4E+00 | ");
  EXPECT_THAT(test.figures, ElementsAre(Pair("lm loss test", 2.0)));
  EXPECT_EQ(read_log_line(
                "  successfully saved checkpoint from iteration      10 to run [ t 1/1, p 1/1 ]")
                .iteration,
            10);
  EXPECT_EQ(read_log_line("  seq_length ...................................... 128").iteration,
            128);
}

TEST(LogLines, OfProgress) {
  const ProgressSave save{100, 1.5, 1.4, 3e15, 1'000'000};
  const LogRecord saved =
      read_log_line(ferry::progress_line(1'700'000'000, "7", 4, saved_message(save, false)));
  EXPECT_EQ(saved.kind, Kind::saved);
  EXPECT_EQ(saved.iteration, 100);
  EXPECT_EQ(saved.when.size(), 19u);
  EXPECT_EQ(read_log_line(ferry::progress_line(1'700'000'000, "7", 4, kJobStarted)).kind,
            Kind::job_began);
  EXPECT_EQ(
      read_log_line(ferry::progress_line(1'700'000'000, "7", 4, saved_message(save, true))).kind,
      Kind::nothing);  // it has only begun
  EXPECT_EQ(
      read_log_line(ferry::progress_line(1'700'000'000, "7", 4, committed_message(100))).iteration,
      100);
}

TEST(LogLines, SayNothingWhereTheyAreNoSuchLines) {
  for (const char* line : {"",
                           " ",
                           "iteration",
                           "iteration  / | a: 1 |",
                           " iteration -4/ 8 | lm loss: 1 |",
                           "iteration 4 of 8",
                           "iteration 99999999999999999999/ 8 | lm loss: 1 |",
                           "{",
                           "{}",
                           "{\"iteration\": \"x\", \"a\": 1}",
                           "{\"iteration\": -1, \"a\": 1}",
                           "{\"iteration\": 18446744073709551615, \"a\": 1}",
                           "[[[[",
                           "{\"iteration\": 1}",
                           "validation loss at ",
                           "validation loss at iteration | x value: 1 |",
                           "iteration 5/ 9 | lm loss: one |",
                           "successfully saved checkpoint from iteration x",
                           "\tJob ID: \t",
                           " seq_length ....",
                           "2026-11-2"}) {
    EXPECT_EQ(read_log_line(line).kind, Kind::nothing) << line;
  }
}

TEST(LogLines, NothingThatStandsInALineIsTooMuch) {
  const std::string seeds[] = {
      training_line(training_line_of(5, 2.5)), metrics_json(training_line_of(5, 2.5)),
      validation_lines("iteration 40 on validation set", {{"lm loss", 2.25}}),
      ferry::progress_line(1'700'000'000, "7", 4, saved_message({}, false))};
  test::for_random_cases(5000, [&](uint64_t number) {
    std::mt19937_64 random(number);
    std::string line = seeds[random() % std::size(seeds)];
    for (uint64_t k = random() % 8; k > 0; --k) {
      line[random() % line.size()] = static_cast<char>(random());
    }
    line.resize(line.size() - random() % 20);
    const LogRecord record = read_log_line(line);
    EXPECT_GE(record.iteration, 0);
    EXPECT_LE(record.figures.size(), 64u);
  });
  std::string many = "iteration 1/ 2 |", deep = "{\"iteration\": 1, \"a\": ";
  for (int i = 0; i < 10'000; ++i) many += fmt::format(" {}: 1 |", i), deep += "[";
  EXPECT_EQ(read_log_line(many).figures.size(), 64u);
  EXPECT_EQ(read_log_line(deep).kind, Kind::nothing);
  EXPECT_THAT(figures_of("iteration 1/ 2 | " + std::string(10'000, 'x') + ": 1 | y: 2 |"),
              ElementsAre(Pair("y", 2)));
}

}  // namespace
}  // namespace ferry::tool
