// `ferry report --training`: lines of logs, figures of runs, pages about them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <iterator>
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
