// A run's metrics for other programs.
#pragma once

#include <memory>
#include <string>

#include "ckpt/io/file_system.h"
#include "tools/runs/metrics.h"

namespace ferry::tool {

/// A header, and a line for each iteration, with all digits. Missing values are empty.
std::string metrics_csv(const Metrics::Table& table);

/// Writes FILE, which must not be there; "-": standard output.
void export_csv(const std::shared_ptr<const FileSystem>& files, const Metrics::Table& table,
                const std::string& file);
/// A folder that must not be there, with an event file.
void export_tensorboard(const std::shared_ptr<const FileSystem>& files, const Metrics::Table& table,
                        const std::string& folder);
/// The same with Weights & Biases' own files of a run that was offline, by its own Python package;
/// unsupported where that is not there.
void export_wandb(const std::shared_ptr<const FileSystem>& files, const Metrics::Table& table,
                  const std::string& folder, const std::string& name);

}  // namespace ferry::tool
