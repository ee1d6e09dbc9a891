#include "tools/launch/scripts.h"

#include <fmt/format.h>

#include <span>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/publish.h"
#include "tools/launch/presets.h"
#include "tools/terminal/text.h"
#include "trainer/arguments/argument_row.h"

namespace ferry::tool {
namespace {

constexpr int64_t kSecondsAfterAFailure = 60;
constexpr double kWaitForWriterSeconds = 2;  // for another process that writes the files

void assign(std::string& text, std::string_view name, std::string_view value) {
  text += fmt::format("{}={}\n", name, shell_word(value));
}

void assign(std::string& text, std::string_view name, bool value) {
  assign(text, name, std::string_view(value ? "true" : "false"));
}

void assign(std::string& text, std::string_view name, int64_t value) {
  assign(text, name, std::string_view(std::to_string(value)));
}

void assign(std::string& text, std::string_view name, const std::vector<std::string>& words) {
  text += fmt::format("{}=(\n", name);
  for (const std::string& word : words) text += fmt::format("  {}\n", shell_word(word));
  text += ")\n";
}

std::vector<std::string> program_words(const LaunchConfiguration& c) {
  std::vector<std::string> words = c.prefix;
  words.push_back(c.program == "ferry" ? c.ferry : c.python);
  if (c.program == "ferry") words.push_back("train");
  return words;
}

// HOST:INSIDE, the experiment's folder among them.
std::vector<std::string> mounts_of(const LaunchConfiguration& c) {
  std::vector<std::string> mounts = c.mounts;
  mounts.push_back(c.folder + ":" + c.folder);
  for (const std::string& mount : mounts) {
    if (mount.find(',') != std::string::npos || mount.find('\n') != std::string::npos) {
      fail(ErrorKind::invalid,
           "container.mounts: '{}' has a comma or a newline, which divide mounts: mount a folder "
           "above it",
           printable(mount));
    }
  }
  return mounts;
}

std::vector<std::string> apptainer_options(const LaunchConfiguration& c) {
  std::vector<std::string> options;
  if (c.gpus_per_node > 0) options.push_back("--nv");
  for (const std::string& mount : mounts_of(c)) options.push_back("--bind=" + mount);
  if (!c.container_folder.empty()) options.push_back("--pwd=" + c.container_folder);
  options.insert(options.end(), c.container_options.begin(), c.container_options.end());
  return options;
}

std::vector<std::string> srun_options(const LaunchConfiguration& c) {
  // Ranks find each other by MASTER_ADDR, whatever MPI there is.
  std::vector<std::string> options{"--mpi=none"};
  if (c.cpus_per_rank > 0) options.push_back(fmt::format("--cpus-per-task={}", c.cpus_per_rank));
  if (c.container == "pyxis") {
    std::string mounts;
    for (const std::string& mount : mounts_of(c)) mounts += (mounts.empty() ? "" : ",") + mount;
    options.push_back("--container-image=" + c.image);
    options.push_back("--container-mounts=" + mounts);
    if (!c.container_folder.empty()) {
      options.push_back("--container-workdir=" + c.container_folder);
    }
  }
  options.insert(options.end(), c.srun_options.begin(), c.srun_options.end());
  return options;
}

// The value that the program gets for an argument; empty: none.
std::string word_after(const std::vector<std::string>& words, const std::string& flag) {
  const ArgumentRow* row = find_flag(flag);
  std::string value;
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    if (!name.starts_with("--") || find_flag(name) != row) continue;
    if (equals != std::string::npos) {
      value = words[i].substr(equals + 1);
    } else if (i + 1 < words.size()) {
      value = words[i + 1];
    }
  }
  return value;
}

}  // namespace

std::string settings_text(const LaunchConfiguration& c, const std::vector<std::string>& words,
                          int64_t last_iteration) {
  std::string text =
      "# shellcheck shell=bash disable=SC2034,SC2054\n"
      "# Written by ferry launch, read by the scripts next to it.\n";
  assign(text, "NAME", c.name);
  assign(text, "FOLDER", c.folder);
  assign(text, "PROGRAM_KIND", c.program);
  assign(text, "PROGRAM", program_words(c));
  assign(text, "PROGRAM_FILE", c.program == "ferry" ? c.ferry : c.python);
  assign(text, "PROGRAM_SCRIPT", c.script);
  // A job that copied it has set it already.
  text += fmt::format("CODE_FOLDER=${{CODE_FOLDER:-{}}}\n", shell_word(c.code));
  assign(text, "BACK_UP_CODE", c.back_up_code);
  assign(text, "ARGUMENTS", words);
  assign(text, "LAST_ITERATION", last_iteration);
  assign(text, "SAVE_FOLDER", word_after(words, "--save"));
  assign(text, "TRIGGER_FOLDER", word_after(words, "--trigger-path"));
  assign(text, "NODES", c.nodes);
  assign(text, "RANKS_PER_NODE", c.ranks_per_node);
  text += fmt::format("MASTER_PORT=${{MASTER_PORT:-{}}}\n", c.master_port);
  assign(text, "REQUEUE", c.requeue);
  assign(text, "MOST_FAILURES", c.most_failures);
  assign(text, "EXIT_SIGNAL", c.exit_signal.substr(3));
  assign(text, "SECONDS_AFTER_A_FAILURE", kSecondsAfterAFailure);
  assign(text, "SRUN_OPTIONS", srun_options(c));
  assign(text, "CONTAINER_KIND", c.container);
  assign(text, "CONTAINER_IMAGE", c.image);
  assign(text, "CONTAINER_OPTIONS", apptainer_options(c));
  assign(text, "NCCL_LOGS", c.nccl_logs);
  assign(text, "NSYS", c.nsys);
  assign(text, "MEMORY_LOGS", c.memory_logs);
  assign(text, "MEMORY_LOG_SECONDS", c.memory_log_seconds);
  assign(text, "WANDB_PROJECT", c.wandb_project);
  // Megatron-LM wants its kernels to begin in the order in which they were queued.
  if (c.program == "megatron") text += "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
  if (c.cpus_per_rank > 0) text += fmt::format("export OMP_NUM_THREADS={}\n", c.cpus_per_rank);
  for (const auto& [name, value] : c.environment) {
    text += fmt::format("export {}={}\n", name, shell_word(value));
  }
  return text;
}

LaunchFile script(std::string_view name) {
  return {std::string(name), std::string(embedded_file("scripts/" + std::string(name)))};
}

std::vector<LaunchFile> local_files(const LaunchConfiguration& c,
                                    const std::vector<std::string>& words, int64_t last_iteration) {
  if (c.nodes != 1) {
    fail(ErrorKind::invalid, "ranks.nodes: {} machines, and a local launch has this one", c.nodes);
  }
  if (c.container == "pyxis") {
    fail(ErrorKind::invalid, "container.kind: pyxis is a part of Slurm; here, apptainer or none");
  }
  return {{"settings.sh", settings_text(c, words, last_iteration)},
          script("chain.sh"),
          script("job.sh"),
          script("rank.sh"),
          script("ranks.sh"),
          script("run.sh")};
}

void write_launch_files(const std::shared_ptr<const FileSystem>& file_system,
                        const std::string& folder, const std::vector<LaunchFile>& files) {
  make_folders(*file_system, folder);
  std::vector<NewFile> written;
  for (const LaunchFile& file : files) {
    written.push_back({file.name, {std::as_bytes(std::span(file.text))}});
  }
  const WriteLock lock(file_system, join(folder, files.front().name),
                       {.wait_seconds = kWaitForWriterSeconds});
  publish_files(*file_system, lock, folder, written, Existing::replace);
}

}  // namespace ferry::tool
