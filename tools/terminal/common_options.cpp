#include "tools/terminal/common_options.h"

#include "tools/terminal/text.h"
#include "tools/terminal/validators.h"

namespace ferry::tool {
namespace {

constexpr const char* kMemory = "512MiB";

}  // namespace

void add_path(Command& command, std::string& path) {
  command.add_option("PATH", path, "The checkpoint, as for inspect")
      .required()
      .type_name("")
      .check(not_empty("an empty path names no checkpoint"));
}

void add_iteration_option(Command& command, std::string& iteration) {
  command
      .add_option(
          "--iteration", iteration,
          "Iteration of a run folder, or 'release' (default: latest_checkpointed_iteration.txt)")
      .type_name("N")
      .check(not_empty("an empty text names no iteration; omit the option to use the tracker's"));
}

Option add_raw_option(Command& command, bool& raw) {
  return command.add_flag("--raw", raw,
                          "Use tensors as stored, without interpreting them as Megatron-LM's");
}

void add_json_option(Command& command, bool& json) {
  command.add_flag("--json", json, "Print the result as one JSON object");
}

void add_progress_option(Command& command, bool& progress) {
  command.add_flag("--progress", progress,
                   "Log progress every 30 seconds even if standard error is not a terminal");
}

void add_memory_option(Command& command, uint64_t& memory_bytes) {
  memory_bytes = parse_memory(kMemory);
  command
      .add_option(
          "--memory", [&](const std::string& text) { memory_bytes = parse_memory(text); },
          "Memory for tensor data")
      .type_name("SIZE")
      .default_text(kMemory);
}

void add_engine_options(Command& command, EngineOptions& engine) {
  add_memory_option(command, engine.memory_bytes);
  command
      .add_option("--threads", engine.threads,
                  "Number of threads (default: one per core, at most 64)")
      .type_name("N")
      .check(whole_number(1, 1024));
}

void add_dtype_option(Command& command, std::optional<DType>& dtype) {
  command
      .add_option(
          "--dtype", [&](const std::string& text) { dtype = parse_dtype(text); },
          "Floating-point type to write: bf16, fp16, fp32 (default: as stored)")
      .type_name("TYPE");
}

}  // namespace ferry::tool
