#include "ckpt/group/tcp/meeting_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr int kMostMeetingRanks = 1 << 20;
constexpr int kMostPort = 65535;

int meeting_number(const char* variable, const char* text, int least, int most) {
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [last, error] = std::from_chars(text, end, value);
  if (error != std::errc() || last != end || value < least || value > most) {
    fail(ErrorKind::invalid, "{} is '{}', not a whole number from {} to {}", variable, text, least,
         most);
  }
  return value;
}

// Addresses of IPv6 have several colons.
std::string meeting_host(std::string_view host) {
  if (host.find_first_of(" \t\r\n,") != std::string_view::npos) {
    fail(ErrorKind::invalid,
         "MASTER_ADDR is '{}': it must be one name or address, that of rank 0's host (hostname -I "
         "lists several)",
         host);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (std::ranges::count(host, ':') == 1 || host.find('/') != std::string_view::npos) {
    fail(ErrorKind::invalid,
         "MASTER_ADDR is '{}': it must be a name or an address alone; the port goes into "
         "MASTER_PORT",
         host);
  }
  return std::string(host);
}

using EnvironmentOf = std::function<const char*(const char* variable)>;

// Whether an MPI started several processes, or may have: PMIx says the rank alone.
bool has_mpi_processes(const EnvironmentOf& environment) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* const size = environment(variable)) return std::string_view(size) != "1";
  }
  const char* const tasks = environment("SLURM_STEP_NUM_TASKS");
  const bool is_one_task = tasks != nullptr && std::string_view(tasks) == "1";
  return environment("PMIX_RANK") != nullptr && !is_one_task;
}

// The four variables, all of which are there or none. A variable without a value is one that a
// script forgot.
struct MeetingVariables {
  explicit MeetingVariables(const EnvironmentOf& environment) {
    std::string there, missing;
    const auto look_up = [&](const char* variable, bool is_needed = true) {
      const char* const value = environment(variable);
      const bool is_given = value != nullptr && *value != '\0';
      if (is_given) there += fmt::format("{}{}={}", there.empty() ? "" : ", ", variable, value);
      if (!is_given && is_needed) missing += (missing.empty() ? "" : ", ") + std::string(variable);
      return is_given ? value : nullptr;
    };
    host = look_up("MASTER_ADDR"), port = look_up("MASTER_PORT");
    rank = look_up("RANK"), size = look_up("WORLD_SIZE");
    look_up("LOCAL_RANK", false), look_up("LOCAL_WORLD_SIZE", false);
    are_there = missing.empty();
    if (are_there || there.empty()) return;
    if (size != nullptr && std::string_view(size) == "1" &&
        (rank == nullptr || std::string_view(rank) == "0")) {
      return;  // one process, as it is
    }
    const char* const of_slurm = environment("SLURM_PROCID") == nullptr
                                     ? ""
                                     : " (of srun's tasks, RANK is $SLURM_PROCID and WORLD_SIZE "
                                       "$SLURM_NTASKS)";
    fail(ErrorKind::invalid,
         "the environment has {}, but not {}: ranks that are processes find each other by "
         "MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, and without one of them each would train "
         "the whole run alone; set what is missing{}, or unset the others for a run in this "
         "process",
         there, missing, of_slurm);
  }

  const char *host = nullptr, *port = nullptr, *rank = nullptr, *size = nullptr;
  bool are_there = false;
};

}  // namespace

std::optional<MeetingPlace> meeting_place(const EnvironmentOf& environment) {
  // What started torchrun's agents says nothing of its processes.
  const char* const torchrun = environment("TORCHELASTIC_RUN_ID");
  if (torchrun == nullptr && has_mpi_processes(environment)) return std::nullopt;
  const MeetingVariables given(environment);
  if (!given.are_there) return std::nullopt;
  MeetingPlace place;
  place.size = meeting_number("WORLD_SIZE", given.size, 1, kMostMeetingRanks);
  place.rank = meeting_number("RANK", given.rank, 0, place.size - 1);
  if (place.size == 1) return std::nullopt;
  place.port = meeting_number("MASTER_PORT", given.port, 1, kMostPort);
  place.host = meeting_host(given.host);
  const char* const agent_listens = environment("TORCHELASTIC_USE_AGENT_STORE");
  if (agent_listens != nullptr && std::string_view(agent_listens) == "True") {
    place.port += place.port < kMostPort ? 1 : -1;
  }
  if (torchrun != nullptr) {
    place.job = fmt::format("TORCHELASTIC_RUN_ID={} ", torchrun);
  } else {
    for (const char* variable : {"SLURM_JOB_ID", "SLURM_STEP_ID", "JOB"}) {
      const char* const value = environment(variable);
      if (value != nullptr) place.job += fmt::format("{}={} ", variable, value);
    }
  }
  return place;
}

}  // namespace ferry
