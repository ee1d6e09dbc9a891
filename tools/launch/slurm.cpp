#include <fmt/format.h>

#include <algorithm>

#include "ckpt/base/error.h"
#include "tools/launch/header_values.h"
#include "tools/launch/presets.h"
#include "tools/launch/scripts.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

// Lines "#SBATCH OPTION", which sbatch reads with a parser of its own, not the shell's.
class SbatchHeader {
 public:
  void add(std::string_view option, const std::string& value) {
    if (!value.empty()) add_line(fmt::format("{}={}", option, value));
  }
  void add_line(const std::string& words) {
    const bool is_plain =
        std::ranges::none_of(words, [](unsigned char c) { return c < 0x20 || c == 0x7F; });
    if (!is_plain || words.find('\\') != std::string::npos) {
      fail(ErrorKind::invalid,
           "the header of a Slurm job cannot say '{}': it has a backslash or control characters",
           printable(words));
    }
    text_ += "#SBATCH " + shell_quoted(words) + "\n";
  }
  std::string take() { return std::move(text_); }

 private:
  // sbatch knows "...", '...' and the backslash, and stops reading at a #.
  static std::string shell_quoted(const std::string& words) {
    constexpr std::string_view kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    if (words.find_first_not_of(kPlain) == std::string::npos) return words;
    std::string quoted = "\"";
    for (const char c : words) {
      if (c == '"') quoted += '\\';
      quoted += c;
    }
    return quoted + "\"";
  }

  std::string text_;
};

// %j and the like stand for something in the names of logs; %% is a percent sign.
std::string log_path(const std::string& folder, const std::string& name) {
  std::string path;
  for (const char c : folder) path += c == '%' ? "%%" : std::string(1, c);
  return path + "/logs/" + name;
}

void check_header(const LaunchConfiguration& c) {
  if (!c.account.empty()) check_slurm_names("slurm.account", c.account);
  if (!c.partition.empty()) check_slurm_names("slurm.partition", c.partition);
  if (!c.qos.empty()) check_slurm_names("slurm.qos", c.qos);
  if (!c.reservation.empty()) check_slurm_names("slurm.reservation", c.reservation);
  if (!c.constraint.empty()) check_slurm_constraint("slurm.constraint", c.constraint);
  if (!c.time.empty()) check_slurm_time("slurm.time", c.time);
  if (!c.memory.empty()) check_slurm_memory("slurm.memory", c.memory);
  for (const std::string& option : c.slurm_options) check_slurm_option(option);
  for (const std::string& option : c.srun_options) {
    if (option.starts_with('-')) continue;
    fail(ErrorKind::invalid, "slurm.srun_options: '{}' is none: --NAME or --NAME=VALUE",
         printable(option));
  }
}

std::string header_of(const LaunchConfiguration& c) {
  SbatchHeader header;
  header.add("--job-name", c.name);
  header.add("--output", log_path(c.folder, "%x-%j.out"));
  header.add("--error", log_path(c.folder, "%x-%j.err"));
  header.add("--account", c.account);
  header.add("--partition", c.partition);
  header.add("--qos", c.qos);
  header.add("--reservation", c.reservation);
  header.add("--constraint", c.constraint);
  header.add("--time", c.time);
  header.add("--nodes", std::to_string(c.nodes));
  header.add("--ntasks-per-node", std::to_string(c.ranks_per_node));
  if (c.gpus_per_node > 0 && c.gpu_option == "gpus-per-node") {
    header.add("--gpus-per-node", std::to_string(c.gpus_per_node));
  } else if (c.gpus_per_node > 0 && c.gpu_option == "gres") {
    header.add("--gres", fmt::format("gpu:{}", c.gpus_per_node));
  }
  if (c.cpus_per_rank > 0) header.add("--cpus-per-task", std::to_string(c.cpus_per_rank));
  header.add("--mem", c.memory);
  if (c.exclusive) header.add_line("--exclusive");
  if (c.signal_seconds > 0) {
    header.add("--signal", fmt::format("{}@{}", c.exit_signal.substr(3), c.signal_seconds));
  }
  // A node that fails ends the job: the next one of the chain goes on, with a log of its own.
  header.add_line("--no-requeue");
  // One job of a name and user at a time; others wait.
  header.add_line("--dependency=singleton");
  for (const std::string& option : c.slurm_options) header.add_line(option);
  return header.take();
}

}  // namespace

std::string slurm_note(const LaunchConfiguration& c) {
  const auto limit = c.time.empty() ? std::nullopt : check_slurm_time("slurm.time", c.time);
  if (!limit || c.signal_seconds < *limit) return "";
  return fmt::format(
      "warning: chain.signal_seconds: {} seconds before the end of a job of {} (slurm.time) are "
      "before it begins: each job saves and ends at once; give a longer time, or fewer seconds",
      c.signal_seconds, c.time);
}

std::vector<LaunchFile> slurm_files(const LaunchConfiguration& c,
                                    const std::vector<std::string>& words, int64_t last_iteration,
                                    const std::string& folder) {
  check_header(c);
  const std::string job = "#!/bin/bash\n" + header_of(c) + "LAUNCH_FOLDER=" + shell_word(folder) +
                          "\n" + std::string(embedded_file("scripts/slurm_job.sh"));
  return {{"settings.sh", settings_text(c, words, last_iteration)},
          script("chain.sh"),
          script("job.sh"),
          script("rank.sh"),
          {"job.sbatch", job},
          script("submit.sh")};
}

}  // namespace ferry::tool
