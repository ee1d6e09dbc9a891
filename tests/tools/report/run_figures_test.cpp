// Figures of a whole run: of several jobs and sources, and in memory that is bounded.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tests/tools/report/training_logs.h"
#include "tools/report/training/training_page.h"
#include "trainer/log/log_files.h"
#include "trainer/log/progress_log.h"

namespace ferry::tool {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

std::vector<std::pair<int64_t, double>> points(const RunFigures& run, const std::string& name) {
  std::vector<std::pair<int64_t, double>> all;
  const Series* const series = run.find(name);
  if (series == nullptr) return all;
  for (const SeriesPoint& point : series->points()) all.emplace_back(point.last, point.mean);
  return all;
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

}  // namespace
}  // namespace ferry::tool
