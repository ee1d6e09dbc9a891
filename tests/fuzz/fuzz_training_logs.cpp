// An input is the output of a run: a log, JSON lines, a progress.txt, or all of them in one
// file. Any bytes are drawn, or refused for holding nothing of a run. What is drawn has numbers
// alone, in iterations that rise, and is the same when it is read a second time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/fuzz/finding.h"
#include "tests/fuzz/mutator.h"
#include "tests/io/memory_file_system.h"
#include "tools/report/training/run_sources.h"
#include "tools/report/training/training_page.h"

namespace ferry::test {
namespace {

using tool::NamedSeries;
using tool::RunFigures;
using tool::SeriesPoint;

const std::vector<std::string> kNumbers = {"5",
                                           "6",
                                           "7",
                                           "100",
                                           "0",
                                           "-1",
                                           "1",
                                           "2.5E+00",
                                           "1.000000E-04",
                                           "nan",
                                           "-NAN",
                                           "inf",
                                           "1e308",
                                           "-1e308",
                                           "1e-320",
                                           "1e999",
                                           "9223372036854775807",
                                           "9223372036854775808",
                                           "18446744073709551615",
                                           "",
                                           "null",
                                           "x",
                                           "0x10",
                                           "\"7\"",
                                           "[1]",
                                           "true"};
const std::vector<std::string> kNames = {"lm loss",
                                         "grad norm",
                                         "learning rate",
                                         "loss scale",
                                         "global batch size",
                                         "elapsed time per iteration (ms)",
                                         "number of skipped iterations",
                                         "number of nan iterations",
                                         "load_balancing_loss",
                                         "<script>alert(1)</script>",
                                         "\"\\\xff\x01&",
                                         "",
                                         "iteration"};
const std::vector<std::string> kDates = {"2026-11-22 06:27:19.621619",
                                         "2026-11-22 06:27:20",
                                         "1900-00-00 99:99:99",
                                         "9999-99-99 00:00:00.",
                                         "",
                                         "-"};

class LogMutator final : public Mutator {
 public:
  explicit LogMutator(const std::vector<std::string>& corpus) {
    for (const std::string& log : corpus) {
      for (size_t at = 0; at < log.size() && lines_.size() < 2000;) {
        const size_t end = std::min(log.find('\n', at), log.size());
        lines_.push_back(log.substr(at, end - at));
        at = end + 1;
      }
    }
    lines_.emplace_back("plain text");
  }

  std::string input(Random& random) const override {
    std::string text;
    uint64_t iteration = random.below(4);
    for (uint64_t count = 1 + random.below(random.one_in(20) ? 3000 : 12); count > 0; --count) {
      iteration = random.one_in(12) ? random.below(10) : iteration + 1;
      text += line(iteration, random);
      if (!random.one_in(100)) text += '\n';
    }
    for (uint64_t damage = random.one_in(3) ? 1 + random.below(4) : 0; damage > 0; --damage) {
      text[random.below(text.size())] = static_cast<char>(random.below(256));
    }
    if (random.one_in(20)) text.resize(random.below(text.size()));
    return text;
  }

 private:
  static std::string number(uint64_t iteration, Random& random) {
    return random.one_in(8) ? random.pick(kNumbers) : std::to_string(iteration);
  }

  std::string line(uint64_t iteration, Random& random) const {
    const std::string at = number(iteration, random);
    switch (random.below(8)) {
      case 0:
        return random.pick(lines_);
      case 1:
        return fmt::format(" validation loss at iteration {}{} | {} value: {} | PPL: {} | ", at,
                           random.one_in(2) ? " on test set" : "", random.pick(kNames),
                           number(iteration, random), random.pick(kNumbers));
      case 2:
        return fmt::format("{{\"iteration\": {}, \"lm loss\": {}, \"{}\": {}}}", at,
                           number(iteration, random), random.pick(kNames), random.pick(kNumbers));
      case 3:
        return fmt::format("{}\tJob ID: 7\t# GPUs: 2\tSaved checkpoint\tIteration: {}",
                           random.pick(kDates), at);
      case 4:
        return fmt::format("  [{}] successfully saved checkpoint from iteration {} to x",
                           random.pick(kDates), at);
      case 5:
        return fmt::format("[before the start of training step] datetime: {}\n  seq_length ... {}",
                           random.pick(kDates), random.pick(kNumbers));
      default:
        return training_line(at, iteration, random);
    }
  }

  static std::string training_line(const std::string& at, uint64_t iteration, Random& random) {
    std::string text = fmt::format(" [{}] iteration {}/ {} |", random.pick(kDates), at,
                                   number(iteration + 100, random));
    text += fmt::format(" lm loss: {} |", number(iteration, random));
    for (uint64_t count = random.below(4); count > 0; --count) {
      text += fmt::format(" {}: {} |", random.pick(kNames), random.pick(kNumbers));
    }
    return text;
  }

  std::vector<std::string> lines_;
};

void check(const NamedSeries& all) {
  for (const auto& [name, series] : all) {
    int64_t last = -1;
    for (const SeriesPoint& point : series.points()) {
      if (point.first <= last || point.last < point.first) finding(name + ": iterations fall");
      last = point.last;
      if (point.count < 1) finding(name + ": a point of no value");
      if (!std::isfinite(point.mean) || !(point.least <= point.most)) {
        finding(name + ": a point of no number");
      }
    }
  }
}

// Names in a page have no quotation marks, so that these are attributes of drawings.
void check_coordinates(const std::string& page) {
  for (const std::string attribute :
       {" d=\"", " cx=\"", " cy=\"", " x=\"", " y=\"", " x1=\"", " y1=\"", " y2=\""}) {
    for (size_t at = page.find(attribute); at != std::string::npos;
         at = page.find(attribute, at + 1)) {
      const size_t begin = at + attribute.size();
      const std::string value = page.substr(begin, page.find('"', begin) - begin);
      if (value.find('n') != std::string::npos) finding("a drawing has" + attribute + value);
    }
  }
}

std::string drawn(const std::string& bytes) {
  MemoryFileSystem files;
  files.put("/run.log", bytes);
  const RunFigures run = tool::read_run_figures(files, "/run.log");
  if (run.lines_used > run.lines) finding("more lines are used than there are");
  check(run.series);
  const std::string page = tool::training_page({run, run});
  if (page.find("<script>alert") != std::string::npos) finding("a name became a script");
  check_coordinates(page);
  const auto replace = nlohmann::json::error_handler_t::replace;
  return page + tool::training_json({run}).dump(-1, ' ', false, replace);
}

}  // namespace

std::unique_ptr<Mutator> make_mutator(const std::vector<std::string>& corpus, size_t) {
  return std::make_unique<LogMutator>(corpus);
}

}  // namespace ferry::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry::test;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  succeeds("training logs", [&] {
    if (drawn(bytes) != drawn(bytes)) finding("the same log is drawn in two ways");
  });
  return 0;
}
