// Options that several commands have: the same words and the same help for all.
#pragma once

#include <optional>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ferry::tool {

// What an option's value goes to must outlive the parser.

/// PATH, which must be given.
void add_path(CLI::App& command, std::string& path);
/// --iteration
void add_iteration_option(CLI::App& command, std::string& iteration);
/// --raw
CLI::Option* add_raw_option(CLI::App& command, bool& raw);
/// --json
void add_json_option(CLI::App& command, bool& json);
/// --memory
void add_memory_option(CLI::App& command, uint64_t& memory_bytes);
/// --memory and --threads
void add_engine_options(CLI::App& command, EngineOptions& engine);
/// --dtype
void add_dtype_option(CLI::App& command, std::optional<DType>& dtype);

}  // namespace ferry::tool
