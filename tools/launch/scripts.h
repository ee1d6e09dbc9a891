// The files of a launch: shell scripts and their settings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/io/file_system.h"
#include "tools/launch/configuration.h"

namespace ferry::tool {

struct LaunchFile {
  std::string name, text;
};

/// The settings of all scripts, as shell variables. Every value is one quoted word, in which the
/// shell expands nothing.
std::string settings_text(const LaunchConfiguration& configuration,
                          const std::vector<std::string>& words, int64_t last_iteration);

/// One of tools/launch/scripts.
LaunchFile script(std::string_view name);

/// For Slurm: job.sbatch, submit.sh and what they use. `folder` is where they will lie. invalid for
/// what the header of a job cannot say.
std::vector<LaunchFile> slurm_files(const LaunchConfiguration& configuration,
                                    const std::vector<std::string>& words, int64_t last_iteration,
                                    const std::string& folder);

/// What is legal there, but not meant; empty: nothing.
std::string slurm_note(const LaunchConfiguration& configuration);

/// For this machine: run.sh and what it uses. invalid for several nodes.
std::vector<LaunchFile> local_files(const LaunchConfiguration& configuration,
                                    const std::vector<std::string>& words, int64_t last_iteration);

/// Writes all of them aside, for a folder with a few cannot be started, then puts each in place in
/// one step, replacing what has its name. The folder is made. busy while another process does so.
void write_launch_files(const std::shared_ptr<const FileSystem>& file_system,
                        const std::string& folder, const std::vector<LaunchFile>& files);

}  // namespace ferry::tool
