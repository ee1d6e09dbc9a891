// Reads what is on disk of a run: logs, metrics, progress.txt, its folder.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/io/file_system.h"
#include "tools/report/training/run_figures.h"

namespace ferry::tool {

/// `paths`: one path, or several of one run between commas, in the order of its jobs. A file is a
/// log of Megatron-LM or ferry, of any size, JSON lines of --metrics-json, or a progress.txt. A
/// folder gives its iterations, progress.txt, and its files whose names end in .log, .out or
/// .jsonl, by name; an experiment folder of `ferry launch` its logs and its run. Time is the files'
/// size, memory is bounded. `read` is called with the bytes read, and may throw. not_found
/// where nothing of a run is there.
RunFigures read_run_figures(const FileSystem& file_system, const std::string& paths,
                            const std::function<void(uint64_t)>& read = {});

/// Where an experiment folder of `ferry launch` has its logs, if it has any, and its run; empty
/// where `path` is none.
std::vector<std::string> parts_of_experiment(const FileSystem& file_system,
                                             const std::string& path);

/// Whether a folder's file of this name is one of those.
bool is_run_source(std::string_view name);
/// The files that read_run_figures() reads, in its order.
std::vector<std::string> run_source_files(const FileSystem& file_system, const std::string& paths);
/// What each line of them says, in their order.
void read_run_records(const FileSystem& file_system, const std::string& paths,
                      const std::function<void(const LogRecord&)>& take);

/// Bytes that read_run_figures() reads.
uint64_t bytes_of_run_figures(const FileSystem& file_system, const std::string& paths);

}  // namespace ferry::tool
