// Estimates for launch configurations and presets.
#pragma once

#include <span>
#include <string>

#include "ckpt/io/file_system.h"
#include "estimate/source.h"

namespace ferry::tool {

/// Whether `name` is a launch configuration's file, or a preset of `ferry launch`.
bool is_launch(const std::string& name, const FileSystem& files);

/// As read_estimate_source().
EstimateSource read_launch_source(const std::string& name, std::span<const std::string> words,
                                  const FileSystem& files);

}  // namespace ferry::tool
