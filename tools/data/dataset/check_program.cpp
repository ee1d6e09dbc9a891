#include "tools/data/dataset/check_program.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

using nlohmann::json;

struct BreachWords {
  const char *kind, *text;
};
// By DatasetBreach.
constexpr BreachWords kBreachWords[kDatasetBreaches] = {
    {"read_again", "is another one when the same process reads it again"},
    {"other_order", "is another one when the same process has read others before"},
    {"other_process", "is another one in another process, which read in another order"}};

std::string more_items(int64_t count) {
  if (count == 1) return "";
  return fmt::format(", and so {} {} more", count == 2 ? "is" : "are", grouped(count - 1));
}

std::vector<std::string> notes_of(const CheckedProgram& checked) {
  std::vector<std::string> notes;
  if (checked.report.one_item) notes.push_back("all items that were read are the same");
  if (!checked.report.one_item && checked.report.kept() && checked.report.epochs > 1 &&
      checked.report.same_in_all_epochs) {
    notes.push_back("items are the same in every epoch: nothing is changed at random");
  }
  return notes;
}

}  // namespace

CheckedProgram check_program(const ProgramCheckOptions& options, const std::atomic<bool>* cancel) {
  std::vector<std::unique_ptr<ProgramDataset>> datasets;
  std::vector<const MultiEpochDataset<ProgramItem>*> copies;
  for (int rank = 0; rank < options.processes; ++rank) {
    LineProgramOptions program;
    program.environment = {fmt::format("RANK={}", rank), fmt::format("LOCAL_RANK={}", rank),
                           fmt::format("WORLD_SIZE={}", options.processes)};
    program.seconds_a_line = options.seconds_a_line;
    program.stop = cancel;
    datasets.push_back(std::make_unique<ProgramDataset>(
        options.command, fmt::format("process {} of the dataset", rank), program));
    copies.push_back(datasets.back().get());
  }
  CheckedProgram checked{
      .command = options.command, .processes = options.processes, .report = {}, .reported = {}};
  checked.report = check_datasets<ProgramItem>(std::move(copies), options.check);
  for (const auto& dataset : datasets) checked.reported.push_back(dataset->reported());
  return checked;
}

size_t problem_count(const CheckedProgram& checked) {
  size_t count = 0;
  for (const auto& broken : checked.report.broken) count += broken.has_value();
  for (const ReportedProblem& reported : checked.reported) count += reported.count > 0;
  return count;
}

std::string to_text(const CheckedProgram& checked) {
  const auto& report = checked.report;
  std::string text =
      fmt::format("{}: {} items, {} of them read in {} epoch{} by {} process{}, {}\n",
                  printable(checked.command), grouped(report.size), grouped(report.items),
                  grouped(report.epochs), report.epochs == 1 ? "" : "s", checked.processes,
                  checked.processes == 1 ? "" : "es",
                  problem_count(checked) == 0 ? "no problem" : "breaks the data contract");
  for (size_t i = 0; i < kDatasetBreaches; ++i) {
    const auto& broken = report.broken[i];
    if (!broken) continue;
    text += fmt::format("  problem: item {} of epoch {} {}{}\n", broken->at.index, broken->at.epoch,
                        kBreachWords[i].text, more_items(broken->count));
    text += fmt::format("    at first:   {}\n", printable(broken->expected.beginning));
    text += fmt::format("    process {}:  {}\n", broken->copy, printable(broken->found.beginning));
  }
  for (size_t rank = 0; rank < checked.reported.size(); ++rank) {
    const ReportedProblem& reported = checked.reported[rank];
    if (reported.count == 0) continue;
    text += fmt::format("  problem: process {} says of item {} of epoch {}: {}{}\n", rank,
                        reported.at.index, reported.at.epoch, printable(reported.text),
                        more_items(reported.count));
  }
  for (const std::string& note : notes_of(checked)) text += "  note: " + note + "\n";
  return text;
}

json to_json(const CheckedProgram& checked) {
  const auto& report = checked.report;
  json problems = json::array();
  for (size_t i = 0; i < kDatasetBreaches; ++i) {
    const auto& broken = report.broken[i];
    if (!broken) continue;
    problems.push_back({{"kind", kBreachWords[i].kind},
                        {"index", broken->at.index},
                        {"epoch", broken->at.epoch},
                        {"process", broken->copy},
                        {"expected", broken->expected.beginning},
                        {"found", broken->found.beginning},
                        {"items", broken->count}});
  }
  for (size_t rank = 0; rank < checked.reported.size(); ++rank) {
    const ReportedProblem& reported = checked.reported[rank];
    if (reported.count == 0) continue;
    problems.push_back({{"kind", "told"},
                        {"index", reported.at.index},
                        {"epoch", reported.at.epoch},
                        {"process", rank},
                        {"text", reported.text},
                        {"items", reported.count}});
  }
  return {{"problems", problem_count(checked)},
          {"dataset",
           {{"command", checked.command},
            {"size", report.size},
            {"items", report.items},
            {"epochs", report.epochs},
            {"processes", checked.processes},
            {"reads", report.reads},
            {"problems", problems},
            {"notes", notes_of(checked)}}}};
}

}  // namespace ferry::tool
