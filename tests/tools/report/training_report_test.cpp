// `ferry report --training`: lines of logs, figures of runs, pages about them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "ckpt/base/error.h"
#include "tests/io/memory_file_system.h"
#include "tests/random_cases.h"
#include "tests/tools/program.h"
#include "tools/report/training/chart.h"
#include "tools/report/training/run_sources.h"
#include "tools/report/training/training_page.h"
#include "trainer/log/log_files.h"
#include "trainer/log/log_lines.h"
#include "trainer/log/progress_log.h"

namespace ferry::tool {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using Kind = LogRecord::Kind;

std::map<std::string, double> figures_of(std::string_view line) {
  const LogRecord record = read_log_line(line);
  return {record.figures.begin(), record.figures.end()};
}

TrainingLine training_line_of(int64_t iteration, double loss) {
  TrainingLine line;
  line.iteration = iteration;
  line.train_iterations = 100;
  line.consumed_samples = 8 * iteration;
  line.milliseconds = 500;
  line.learning_rate = 1e-3;
  line.batch_size = 8;
  line.losses = {{"lm loss", loss}};
  line.gradient_norm = 0.5;
  return line;
}

std::string log_of(int64_t first, int64_t last, double loss) {
  std::string log = "[before the start of training step] datetime: 2026-11-22 06:27:16.000001 \n";
  for (int64_t i = first; i <= last; ++i) log += training_line(training_line_of(i, loss)) + "\n";
  return log;
}

RunFigures run_of(const std::map<std::string, std::string>& files, const std::string& paths) {
  MemoryFileSystem memory;
  for (const auto& [name, content] : files) memory.put(name, content);
  return read_run_figures(memory, paths);
}

std::vector<std::pair<int64_t, double>> points(const RunFigures& run, const std::string& name) {
  std::vector<std::pair<int64_t, double>> all;
  const Series* const series = run.find(name);
  if (series == nullptr) return all;
  for (const SeriesPoint& point : series->points()) all.emplace_back(point.last, point.mean);
  return all;
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

TEST(SeriesOfFigures, KeepsEachValueOfAShortRun) {
  Series series;
  series.add(1, 4);
  series.add(2, 2);
  series.add(2, 3);  // given again: the later one
  series.add(3, NAN);
  series.add(4, INFINITY);
  ASSERT_EQ(series.points().size(), 2u);
  EXPECT_TRUE(series.is_exact());
  EXPECT_EQ(series.last(), 3);
  EXPECT_EQ(series.most(), 4);
  EXPECT_EQ(series.iteration_of_least(), 2);
  EXPECT_EQ(series.not_finite(), 2);
  EXPECT_EQ(series.first_not_finite(), 3);
  EXPECT_EQ(series.latest(), INFINITY);
  series.forget_from(2);
  EXPECT_EQ(series.last(), 4);
  EXPECT_EQ(series.latest(), 4);
}

TEST(SeriesOfFigures, IsNoLongerThanAPageNeeds) {
  Series series;
  const int64_t count = 1'000'000;
  for (int64_t i = 1; i <= count; ++i)
    series.add(i, i == 700'001 ? 1e6 : static_cast<double>(i % 10));
  EXPECT_LE(series.points().size(), Series::kMostPoints);
  EXPECT_GE(series.points().size(), Series::kMostPoints / 2);
  EXPECT_FALSE(series.is_exact());
  EXPECT_EQ(series.most(), 1e6);  // no spike is lost
  EXPECT_EQ(series.least(), 0);
  int64_t values = 0, next = 1;
  for (const SeriesPoint& point : series.points()) {
    EXPECT_EQ(point.first, next);
    EXPECT_LE(point.least, point.mean);
    values += point.count, next = point.last + 1;
  }
  EXPECT_EQ(values, count);
  EXPECT_EQ(next, count + 1);
  EXPECT_NEAR(total(series), 4.5 * count + 1e6, 10);
  series.forget_from(500'000);
  EXPECT_EQ(series.points().back().last, 499'999);
  series.add(500'000, 1);
  EXPECT_EQ(series.points().back().last, 500'000);
}

TEST(RunFigures, AreOfTheLaterJobWhereIterationsRepeat) {
  const RunFigures run = run_of({{"a", log_of(1, 12, 5)}, {"b", log_of(11, 11, 4)}}, "a,b");
  EXPECT_EQ(run.restarts.size(), 1u);
  EXPECT_EQ(run.restarts[0].iteration, 11);
  EXPECT_EQ(run.restarts[0].replaced_until, 12);
  EXPECT_EQ(run.restarts[0].when, "2026-11-22 06:27:16");
  const auto losses = points(run, "lm loss");
  ASSERT_EQ(losses.size(), 11u);  // 12 was of the job that is given up
  EXPECT_EQ(losses[9], (std::pair<int64_t, double>(10, 5)));
  EXPECT_EQ(losses[10], (std::pair<int64_t, double>(11, 4)));
  EXPECT_EQ(run.last, 11);
  EXPECT_EQ(run.planned, 100);
  EXPECT_THAT(points(run, "samples_per_second"), testing::Contains(Pair(11, 16)));

  // A job that goes on where the one before ended is a restart, too; a repeated line is not.
  EXPECT_EQ(
      run_of({{"a", log_of(1, 5, 5)}, {"b", log_of(6, 7, 4)}}, "a,b").restarts[0].replaced_until,
      0);
  const std::string line = training_line(training_line_of(3, 5)) + "\n";
  EXPECT_THAT(run_of({{"a", line + line}}, "a").restarts, IsEmpty());
}

TEST(RunFigures, OfOneRunFromSeveralSources) {
  std::string log = "  seq_length ........... 64\n" + log_of(2, 4, 5) + "garbage\n";
  log += validation_lines("iteration 4 on validation set", {{"lm loss", 5.5}});
  log += "  successfully saved checkpoint from iteration       4 to run\n";
  log += "[exiting program at iteration 4] datetime: 2026-11-22 06:27:21.619611 \n";
  log.pop_back();  // the last line has no end
  std::string metrics;
  for (int64_t i = 1; i <= 4; ++i) metrics += metrics_json(training_line_of(i, 5.0625));
  const RunFigures run =
      run_of({{"run/a.log", log},
              {"run/m.jsonl", metrics},
              {"run/other.txt", "iteration 9/ 9 | lm loss: 1 |"},
              {"run/progress.txt", ferry::progress_line(1'700'000'000, "", 1, kJobStarted)},
              {"run/latest_checkpointed_iteration.txt", "4"}},
             "run");
  EXPECT_THAT(run.sources, ElementsAre("run/a.log", "run/m.jsonl", "run/progress.txt"));
  // Losses of iterations, not averages between log lines.
  EXPECT_THAT(points(run, "lm loss"),
              ElementsAre(Pair(1, 5.0625), Pair(2, 5.0625), Pair(3, 5.0625), Pair(4, 5.0625)));
  EXPECT_THAT(points(run, "lm loss validation"), ElementsAre(Pair(4, 5.5)));
  EXPECT_THAT(points(run, "tokens_per_second"), testing::Contains(Pair(4, 8 * 64 / 0.5)));
  EXPECT_THAT(run.restarts, IsEmpty());
  EXPECT_THAT(run.saves, ElementsAre(Pair(4, "")));
  EXPECT_THAT(run.exits, ElementsAre("2026-11-22 06:27:21 exiting program at iteration 4"));
  EXPECT_THROW(run_of({{"a", "nothing\n"}}, "a"), Error);
  EXPECT_THROW(run_of({{"a", log}}, "a,b"), Error);
}

TEST(RunFigures, MemoryIsBoundedWhateverALogHolds) {
  std::string log(3 << 20, 'x');  // one line that is longer than any
  log += "\n" + std::string(1000, '\0') + "\n";
  for (int i = 0; i < 3000; ++i)
    log += fmt::format("iteration {}/ 9 | loss {}: 1 | lm loss: nan |\n", 3000 - i, i);
  for (int i = 0; i < 20'000; ++i)
    log += fmt::format("successfully saved checkpoint from iteration {} to x\n", i);
  const RunFigures run = run_of({{"a", log}}, "a");
  EXPECT_EQ(run.series.size(), 64u);
  EXPECT_EQ(run.restarts.size(), 1000u);
  EXPECT_EQ(run.saves.size(), 10'000u);
  EXPECT_EQ(run.notes.size(), 3u);
  EXPECT_LT(training_page({run}).size(), 200'000u);
  EXPECT_NO_THROW(training_json({run}).dump());
}

TEST(TrainingChart, RoundNumbersForItsAxes) {
  EXPECT_THAT(ticks({0, 10}, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks({1, 10'000, true}, 5), ElementsAre(1, 10, 100, 1000, 10'000));
  for (const double low : {-1e308, -1.0, 0.0, 1e-300, 1e15}) {
    for (const double width : {0.0, 1e-300, 1e-3, 1e300}) {
      EXPECT_LE(ticks({low, low + width}, 5).size(), 12u);
    }
  }
}

TEST(TrainingChart, ShowsTheUsualAndSaysWhatItCuts) {
  Series series;
  series.add(1, 60);
  for (int64_t i = 2; i < 200; ++i) series.add(i, 1 + 0.001 * static_cast<double>(i));
  const ValueRange range = value_range({{&series, 0, false, ""}});
  EXPECT_TRUE(range.is_cut);
  EXPECT_LT(range.high, 3);
  Series wide;
  for (int64_t i = 0; i < 20; ++i) wide.add(i, std::pow(2.0, static_cast<double>(i)));
  EXPECT_TRUE(value_range({{&wide, 0, false, ""}}).is_log);
  Series flat;
  flat.add(4, 0);
  const std::string svg = chart_svg({"flat", {{&flat, 0, true, "f"}}, {}, {}}, 0);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, HasSubstr("<circle"));
  Series huge;
  huge.add(0, -1.7e308);
  huge.add(INT64_MAX, 1.7e308);
  const std::string hostile = chart_svg({"huge", {{&huge, 0, false, "h"}}, {}, {}}, 0);
  EXPECT_THAT(hostile, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
}

// One value that went astray does not flatten the others, in runs of any length.
TEST(TrainingChart, OneDivergedValueDoesNotFlattenTheRest) {
  const auto range_with = [](int64_t count, double astray, double from = 1) {
    Series series;
    for (int64_t i = 0; i < count; ++i) {
      series.add(i, i == count / 2 ? astray : from + 0.01 * static_cast<double>(i));
    }
    return value_range({{&series, 0, false, ""}});
  };
  for (const int64_t count : {5, 10, 40, 400}) {
    const ValueRange above = range_with(count, 1e30);
    EXPECT_TRUE(above.is_cut && !above.is_log) << count;
    EXPECT_LE(above.high, 1 + 0.01 * static_cast<double>(count)) << count;
    const ValueRange below = range_with(count, -1e30);
    EXPECT_TRUE(below.is_cut_below) << count;
    EXPECT_GE(below.low, 1) << count;
    EXPECT_TRUE(range_with(count, 1e-30, 0.5).is_cut_below) << count;
  }
  EXPECT_FALSE(range_with(40, 1.2).is_cut);
  // Among powers of ten, too.
  Series powers;
  for (int64_t i = 0; i < 100; ++i) powers.add(i, std::pow(10, i % 5));
  powers.add(100, 1e200);
  const ValueRange range = value_range({{&powers, 0, false, ""}});
  EXPECT_TRUE(range.is_log && range.is_cut);
  EXPECT_LE(range.high, 1.01e4);
}

// A short run may be elsewhere than the long ones: all of it is shown.
TEST(TrainingChart, ShortLinesAreSeen) {
  Series shortest, longest;
  for (int64_t i = 1; i <= 10; ++i) shortest.add(i, 50 + static_cast<double>(i));
  for (int64_t i = 1; i <= 200; ++i) longest.add(i, 2 + 0.001 * static_cast<double>(i));
  Chart chart{"two", {{&shortest, 0, false, "short"}, {&longest, 1, false, "long"}}, {}, {}};
  chart.unit = "nats a token";
  EXPECT_FALSE(value_range(chart.lines).is_cut);
  const std::string svg = chart_svg(chart, 0);
  EXPECT_LT(svg.find("<title>long"), svg.find("<title>short"));  // it is not painted over
  EXPECT_NE(svg.find("<circle", svg.find("<title>short")), std::string::npos);
  EXPECT_THAT(svg, AllOf(HasSubstr(">iteration</text>"), HasSubstr(">nats a token</text>")));
  chart.window = {1, 10};
  const std::string zoomed = chart_svg(chart, 1);
  EXPECT_THAT(zoomed, AllOf(HasSubstr(">10</text>"), Not(HasSubstr(">100</text>"))));
}

TEST(TrainingPage, ShowsTheBeginningWhereARunIsShort) {
  const RunFigures a = run_of({{"a", log_of(1, 200, 5)}}, "a");
  const RunFigures b = run_of({{"b", log_of(1, 10, 4)}}, "b");
  EXPECT_THAT(training_page({a, b}), HasSubstr("lm loss, iterations 1 to 10"));
  EXPECT_THAT(training_page({a, a}), Not(HasSubstr("lm loss, iterations")));
  EXPECT_THAT(training_page({a}), Not(HasSubstr("lm loss, iterations")));
  const std::string diverged = log_of(1, 10, 4) + " iteration 11/ 100 | lm loss: nan |\n";
  const std::string page = training_page({run_of({{"c", diverged}}, "c")});
  const json series = training_json({run_of({{"c", diverged}}, "c")}).at("runs").at(0).at("series");
  EXPECT_TRUE(series.at("lm loss").at("last").is_null());
  EXPECT_EQ(series.at("lm loss").at("least"), 4);
  EXPECT_TRUE(page.find("1 NaN or infinite, the first at iteration 11") != std::string::npos);
  EXPECT_TRUE(page.find("<td>nan</td>") != std::string::npos);  // the last loss
}

TEST(TrainingPage, PutsRunsSideBySideAndNamesAreText) {
  const RunFigures a = run_of({{"a", log_of(1, 12, 5) + log_of(11, 20, 4)}}, "a");
  RunFigures b = run_of({{"b", "iteration 3/ 9 | <script>: 1 | lm loss: 2 |\n"}}, "b");
  b.name = "<b>";
  const std::string page = training_page({a, b});
  EXPECT_THAT(page, AllOf(HasSubstr("default-src 'none'"), HasSubstr("lm loss over iterations"),
                          HasSubstr("restart at iteration 11"), HasSubstr("&lt;b&gt;"),
                          HasSubstr("1 to 20 of 100"), HasSubstr("up to 12 are done again")));
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("<b>, "))));
}

struct TrainingReport : test::Program {};

TEST_F(TrainingReport, OfMegatronsLog) {
  const std::string log = std::string(FERRY_FIXTURES) + "/megatron_logs/llama_tp2pp2_full.log";
  const test::Outcome outcome = ferry("report --training --json " + log);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json run = json::parse(outcome.out).at("runs").at(0);
  EXPECT_EQ(run.at("last_iteration"), 5);
  EXPECT_EQ(run.at("planned_iterations"), 30);
  EXPECT_GT(run.at("series").at("lm loss").at("last"), 5.0);
  EXPECT_TRUE(run.at("series").contains("tokens_per_second"));
  EXPECT_EQ(run.at("series").at("learning_rate").at("values").back(), 1e-3);

  const std::string page = path("t.html");
  EXPECT_EQ(ferry("report --training " + log + " " + log + " -o " + page).code, 0);
  EXPECT_THAT(read(page), HasSubstr("class=\"line\""));
  EXPECT_EQ(ferry("report --training " + log + " -o " + page).code, 2);
  EXPECT_EQ(ferry("report --training " + log + " --overwrite -o " + page).code, 0);
  EXPECT_EQ(ferry("report --training " + log + " -o -").out, read(page));
}

TEST_F(TrainingReport, OfARunFolder) {
  const std::string run = std::string(FERRY_FIXTURES) + "/megatron/hot_llama";
  const json saved = json::parse(ferry("report --training --json " + run).out).at("runs").at(0);
  EXPECT_EQ(saved.at("saves").at(0).at("iteration"), 5);
  EXPECT_EQ(saved.at("saves").at(0).at("on_disk"), true);
  EXPECT_EQ(ferry("report --training " + run + " -o " + path("t.html")).code, 0);
}

TEST_F(TrainingReport, RefusesWhatHasNoMeaning) {
  const std::string run = std::string(FERRY_FIXTURES) + "/megatron/hot_llama";
  EXPECT_EQ(ferry("report --json " + run).code, 2);
  EXPECT_EQ(ferry("report --training " + run).code, 2);
  EXPECT_EQ(ferry("report --training --json " + run + " -o " + path("a")).code, 2);
  EXPECT_EQ(ferry("report " + run + " " + run + " -o " + path("a")).code, 2);
  EXPECT_EQ(ferry("report --training " + run + " --raw -o " + path("a")).code, 2);
  EXPECT_EQ(ferry("report --training " + path("none") + " -o " + path("a")).code, 3);
  write(path("empty.log"), "");
  EXPECT_EQ(ferry("report --training " + path("empty.log") + " -o " + path("a")).code, 3);
  EXPECT_THAT(left(), ElementsAre("empty.log"));
}

}  // namespace
}  // namespace ferry::tool
