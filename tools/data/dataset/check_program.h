// `ferry data check --dataset`: a user's dataset, run in several processes, has to keep to the data
// contract.
#pragma once

#include <atomic>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/data/dataset/program_dataset.h"
#include "trainer/data/epochs/check_datasets.h"

namespace ferry::tool {

struct ProgramCheckOptions {
  std::string command;
  DatasetCheckOptions check;
  int processes = 3;
  double seconds_a_line = 60;
};

struct CheckedProgram {
  std::string command;
  int processes = 0;
  DatasetCheckReport<ProgramItem> report;
  std::vector<ReportedProblem> reported;  // by process
};

/// Starts the processes, with RANK, LOCAL_RANK and WORLD_SIZE as ranks have them, and asks them.
/// Errors as ProgramDataset's and check_datasets()'.
CheckedProgram check_program(const ProgramCheckOptions& options, const std::atomic<bool>* cancel);

/// Kinds of problems found.
size_t problem_count(const CheckedProgram& checked);
std::string to_text(const CheckedProgram& checked);
nlohmann::json to_json(const CheckedProgram& checked);

}  // namespace ferry::tool
