#include "ckpt/group/mpi/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

std::optional<int> number(const char* text) {
  int value = 0;
  if (!text || std::from_chars(text, text + std::strlen(text), value).ec != std::errc()) return {};
  return value;
}

}  // namespace

Environment process_environment() {
  return [](const char* variable) { return std::getenv(variable); };
}

std::vector<Launcher> launchers(const Environment& environment) {
  constexpr struct {
    const char* name;
    const char* variable;
    const char* proof;  // that it was this launcher, where others set the variable, too
    const char* rank;   // which it always sets with it; null: another may
    int least_rank;     // from which on there are several
  } kSizes[] = {
      {"mpirun", "OMPI_COMM_WORLD_SIZE", nullptr, "OMPI_COMM_WORLD_RANK", 0},
      {"mpiexec", "PMI_SIZE", nullptr, "PMI_RANK", 0},
      {"srun", "SLURM_STEP_NUM_TASKS", nullptr, "SLURM_PROCID", 1},  // a batch script's: 0
      {"torchrun", "WORLD_SIZE", "LOCAL_WORLD_SIZE", nullptr, 0}};
  std::vector<Launcher> found;
  for (const auto& [name, variable, proof, rank, least_rank] : kSizes) {
    const std::optional<int> processes = number(environment(variable));
    if (proof && !environment(proof)) continue;
    if (rank && !processes && number(environment(rank)).value_or(-1) >= least_rank) {
      fail(ErrorKind::invalid,
           "the environment has {}={}, but no {} says how many processes {} started; set it, or "
           "unset {} where one process is meant to run",
           rank, environment(rank), variable, name, rank);
    }
    if (processes && *processes > 0) found.push_back({name, variable, *processes});
  }
  if (!found.empty()) return found;
  // PMIx gives the rank alone.
  const std::optional<int> rank = number(environment("PMIX_RANK"));
  if (rank && *rank >= 0) found.push_back({"a launcher of PMIx", "PMIX_RANK", *rank + 1, true});
  return found;
}

bool started_several(const std::vector<Launcher>& launchers) {
  return std::any_of(launchers.begin(), launchers.end(), [](const Launcher& launcher) {
    return launcher.processes > 1 || launcher.at_least;
  });
}

void check_group_size(const std::vector<Launcher>& launchers, int group_size,
                      const std::string& what_to_do) {
  const bool agreed =
      std::any_of(launchers.begin(), launchers.end(), [&](const Launcher& launcher) {
        return launcher.processes == group_size ||
               (launcher.at_least && launcher.processes < group_size);
      });
  // Started by one process of another launcher each, torchrun's would all be alone.
  const auto torchrun = std::ranges::find(launchers, "torchrun", &Launcher::name);
  const bool is_alone_of_many =
      group_size == 1 && torchrun != launchers.end() && torchrun->processes > 1;
  if (launchers.empty() || (agreed && !is_alone_of_many)) return;
  const Launcher& first = is_alone_of_many ? *torchrun : launchers.front();
  fail(ErrorKind::unsupported,
       "{} started {}{} processes, as {} says, but they make groups of {}, each of which would do "
       "all the work. {}. Where one alone is meant to run, unset {}",
       first.name, first.at_least ? "at least " : "", first.processes, first.variable, group_size,
       what_to_do, first.variable);
}

void require_one_process(const std::string& command) {
  check_group_size(launchers(process_environment()), 1, command + " is for one process");
}

}  // namespace ferry
