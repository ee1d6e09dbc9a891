#include "tools/train/rank_threads.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <thread>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "trainer/checkpoint/staging_memory.h"

namespace ferry::tool {
namespace {

constexpr int kMostThreads = 1024;

// OpenMP's variable may list a number for each level of nested regions.
int parse_threads(std::string_view text) {
  const std::string_view first = text.substr(0, text.find(','));
  int threads = 0;
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), threads);
  if (error != std::errc() || end != first.data() + first.size() || threads < 1 ||
      threads > kMostThreads) {
    fail(ErrorKind::invalid, "OMP_NUM_THREADS is '{}', not a whole number from 1 to {}", text,
         kMostThreads);
  }
  return threads;
}

// "HOST\n0 1 2 "
std::string text_of(const ProcessCores& process) {
  std::string text = process.host + "\n";
  for (const int core : process.cores) text += std::to_string(core) + " ";
  return text;
}

ProcessCores process_of(const std::string& text) {
  const size_t end_of_host = text.find('\n');
  ProcessCores process{text.substr(0, end_of_host), {}};
  const char* next = text.data() + end_of_host + 1;
  const char* const end = text.data() + text.size();
  for (int core = 0; next < end; ++next) {
    next = std::from_chars(next, end, core).ptr;
    process.cores.insert(core);
  }
  return process;
}

// Hosts of all processes, by rank.
std::vector<std::string> hosts_of(Group& processes) {
  return together(processes, [] { return host_name(); });
}

}  // namespace

ProcessCores process_cores() {
  ProcessCores process{host_name(), {}};
  std::array<cpu_set_t, 16> allowed{};
  if (::sched_getaffinity(0, sizeof allowed, allowed.data()) == 0) {
    for (int core = 0; core < static_cast<int>(sizeof allowed) * 8; ++core) {
      if (CPU_ISSET_S(core, sizeof allowed, allowed.data())) process.cores.insert(core);
    }
  } else {
    const auto count = static_cast<int>(std::thread::hardware_concurrency());
    for (int core = 0; core < count; ++core) process.cores.insert(core);
  }
  return process;
}

int share_of_cores(std::span<const ProcessCores> processes, int own) {
  const ProcessCores& process = processes[static_cast<size_t>(own)];
  double share = 0;
  for (const int core : process.cores) {
    const auto sharers =
        std::count_if(processes.begin(), processes.end(), [&](const ProcessCores& other) {
          return other.host == process.host && other.cores.contains(core);
        });
    share += 1 / static_cast<double>(sharers);
  }
  return std::max(1, static_cast<int>(share + 1e-6));
}

int rank_threads(Group& processes, int ranks, const char* omp_num_threads) {
  int threads = 0;
  const std::vector<std::string> all = together(processes, [&] {
    if (omp_num_threads != nullptr && *omp_num_threads != '\0')
      threads = parse_threads(omp_num_threads);
    return text_of(process_cores());
  });
  if (threads > 0) return threads;
  std::vector<ProcessCores> cores;
  for (const std::string& one : all) cores.push_back(process_of(one));
  return std::max(1, share_of_cores(cores, processes.rank()) / ranks);
}

int number_on_host(Group& processes) {
  const std::vector<std::string> hosts = hosts_of(processes);
  const auto own = hosts.begin() + processes.rank();
  return static_cast<int>(std::count(hosts.begin(), own, *own));
}

int processes_on_host(Group& processes) {
  const std::vector<std::string> hosts = hosts_of(processes);
  return static_cast<int>(
      std::count(hosts.begin(), hosts.end(), hosts[static_cast<size_t>(processes.rank())]));
}

}  // namespace ferry::tool
