#include "trainer/arguments/launch.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/run_arguments.h"

namespace ferry {
namespace {

struct Launcher {
  std::string_view name;
  // Each set by it alone, or together.
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  const char* proof;  // that it was this launcher, where others set `rank`, too
};

// Kubernetes sets RANK and WORLD_SIZE as well, and may count nodes: torchrun tells local sizes.
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE",
     "SLURM_STEP_NODELIST"},
};

std::optional<int64_t> environment_number(const LaunchEnvironment& environment, const char* name,
                                          int64_t least) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < least ||
      value > RunArguments::kMostRanks) {
    fail(ErrorKind::invalid,
         "environment variable {} is '{}': a whole number from {} to {} is wanted", name, *text,
         least, RunArguments::kMostRanks);
  }
  return value;
}

std::optional<Launch> launch_by(const Launcher& launcher, const LaunchEnvironment& environment) {
  if (!environment(launcher.proof)) return std::nullopt;
  const auto rank = environment_number(environment, launcher.rank, 0);
  const auto size = environment_number(environment, launcher.world_size, 1);
  if (!rank || !size) return std::nullopt;
  if (*rank >= *size) {
    fail(ErrorKind::invalid, "{} says rank {} of {}: {} and {} contradict each other",
         launcher.name, *rank, *size, launcher.rank, launcher.world_size);
  }
  Launch launch;
  launch.launcher = launcher.name;
  launch.rank = *rank;
  launch.world_size = *size;
  launch.local_rank = environment_number(environment, launcher.local_rank, 0).value_or(0);
  launch.local_world_size =
      environment_number(environment, launcher.local_world_size, 1).value_or(1);
  return launch;
}

// "node[03-05,9],other" begins with node03.
std::string first_host(std::string_view nodes) {
  const size_t bracket = nodes.find('[');
  const size_t comma = nodes.find(',');
  if (bracket == std::string_view::npos || comma < bracket) {
    return std::string(nodes.substr(0, comma));
  }
  const size_t end = nodes.find_first_of("-,]", bracket + 1);
  return std::string(nodes.substr(0, bracket)) +
         std::string(nodes.substr(bracket + 1, end == std::string_view::npos
                                                   ? std::string_view::npos
                                                   : end - bracket - 1));
}

std::string coordinator_of(const Launch& launch, const LaunchEnvironment& environment) {
  const auto address = environment("MASTER_ADDR");
  if (address) {
    const auto port = environment_number(environment, "MASTER_PORT", 1);
    return *address + ":" + std::to_string(port.value_or(6000));
  }
  const auto job = environment_number(environment, "SLURM_JOB_ID", 0);
  const auto nodes = environment("SLURM_STEP_NODELIST");
  if (launch.launcher != "Slurm" || !job || !nodes) return {};
  return first_host(*nodes) + ":" + std::to_string(*job % 4096 + 61440);
}

}  // namespace

LaunchEnvironment launch_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* text = std::getenv(name.c_str());
    if (text == nullptr) return std::nullopt;
    return text;
  };
}

Launch detect_launch(const LaunchEnvironment& environment) {
  std::optional<Launch> chosen;
  for (const Launcher& launcher : kLaunchers) {
    const auto launch = launch_by(launcher, environment);
    if (!launch) continue;
    if (!chosen) {
      chosen = launch;
      continue;
    }
    // One task a host that starts others: torchrun under srun.
    const bool starts_others =
        launch->launcher == "Slurm" && chosen->world_size > launch->world_size;
    if (starts_others) continue;
    if (launch->world_size != chosen->world_size || launch->rank != chosen->rank) {
      fail(ErrorKind::invalid,
           "{} says rank {} of {}, {} says rank {} of {}: unset the variables of one of them",
           chosen->launcher, chosen->rank, chosen->world_size, launch->launcher, launch->rank,
           launch->world_size);
    }
  }
  Launch launch = chosen.value_or(Launch());
  if (!launch.is_alone()) launch.coordinator = coordinator_of(launch, environment);
  return launch;
}

}  // namespace ferry
