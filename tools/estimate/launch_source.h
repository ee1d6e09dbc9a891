// Launch configurations and presets as what an estimate is about.
#pragma once

#include <string>

#include "ckpt/io/file_system.h"
#include "tools/estimate/estimate_source.h"
#include "trainer/arguments/argument_row.h"

namespace ferry::tool {

/// Whether an argument says something of a model's or a run's size: not where things lie, nor when.
bool is_of_size(const ArgumentRow& row);

/// A launch configuration, or arguments as --yaml-cfg takes them.
void read_yaml(EstimateSource& source, const std::string& path, const FileSystem& files);

/// Of `ferry launch`.
bool is_preset(const std::string& name);
void read_preset(EstimateSource& source, const std::string& name, const FileSystem& files);

}  // namespace ferry::tool
