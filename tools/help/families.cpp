#include "tools/help/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "convert/export.h"
#include "convert/families/judges.h"
#include "convert/model/family.h"
#include "convert/recognise.h"

namespace ferry::tool {
namespace {

constexpr std::string_view kOfRuns = "runs, with logits, of";
constexpr std::string_view kOfModels = "models from transformers loaded by";

struct FamilyLine {
  std::string name, class_name, of_runs, of_models;
};

std::vector<FamilyLine> family_lines() {
  std::vector<FamilyLine> lines;
  for (const std::string& name : export_families()) {
    FamilyLine line = {name, find_family(name)->class_name, "", ""};
    if (const Judges* judges = judges_of(name)) {
      line.of_runs = judges->of_runs;
      line.of_models = judges->of_models;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

std::string families_table(bool markdown) {
  std::vector<FamilyLine> lines = family_lines();
  for (FamilyLine& line : lines) {
    if (line.of_runs.empty()) line.of_runs = "-";
    if (line.of_models.empty()) line.of_models = "-";
  }
  std::string text;
  if (markdown) {
    text = fmt::format("| family | transformers class | {} | {} |\n|---|---|---|---|\n", kOfRuns,
                       kOfModels);
    for (const FamilyLine& line : lines) {
      text += fmt::format("| `{}` | {} | {} | {} |\n", line.name, line.class_name, line.of_runs,
                          line.of_models);
    }
    return text;
  }
  size_t names = 0, classes = 0;
  size_t runs = kOfRuns.size();
  for (const FamilyLine& line : lines) {
    names = std::max(names, line.name.size());
    classes = std::max(classes, line.class_name.size());
    runs = std::max(runs, line.of_runs.size());
  }
  const auto row = [&](std::string_view name, std::string_view of, std::string_view of_runs,
                       std::string_view of_models) {
    text += fmt::format("{:{}}  {:{}}  {:{}}  {}\n", name, names, of, classes, of_runs, runs,
                        of_models);
  };
  row("family", "transformers class", kOfRuns, kOfModels);
  for (const FamilyLine& line : lines) {
    row(line.name, line.class_name, line.of_runs, line.of_models);
  }
  text +=
      "\nTensors come back from Megatron bit for bit, except norms that one side stores less 1, "
      "where\n"
      "one had to be rounded. The last two columns say by which programs logits were compared: "
      "they\n"
      "differ by at most 8e-6 of their mean size (gated delta nets: 1e-4,\n"
      "apertus: 3e-3). -: none. docs/families.md says what is mapped and how this is checked.\n";
  return text;
}

std::string families_json() {
  nlohmann::json all = nlohmann::json::array();
  for (const FamilyLine& line : family_lines()) {
    all.push_back({{"family", line.name},
                   {"class", line.class_name},
                   {"runs_judged_by", line.of_runs},
                   {"models_judged_by", line.of_models}});
  }
  return all.dump(2) + "\n";
}

}  // namespace ferry::tool
