// Options that several commands have: the same words and the same help for all.
#pragma once

#include <optional>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "tools/terminal/command.h"

namespace ferry::tool {

// What an option's value goes to must outlive the parser.

/// PATH, which must be given.
void add_path(Command& command, std::string& path);
/// --iteration
void add_iteration_option(Command& command, std::string& iteration);
/// --raw
Option add_raw_option(Command& command, bool& raw);
/// --json
void add_json_option(Command& command, bool& json);
/// --progress
void add_progress_option(Command& command, bool& progress);
/// --memory
void add_memory_option(Command& command, uint64_t& memory_bytes);
/// --memory and --threads
void add_engine_options(Command& command, EngineOptions& engine);
/// --dtype
void add_dtype_option(Command& command, std::optional<DType>& dtype);

}  // namespace ferry::tool
