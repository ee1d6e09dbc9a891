// The configuration of `ferry launch`, the same for every kind of machine.
//
// A YAML file of sections (ranks:, slurm:, arguments:, ...) or a preset, then --set KEY=VALUE. Keys
// are named with dots: slurm.time, arguments.train-iters. What comes later replaces what came
// before, key by key.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/format/pickle/values/value.h"

namespace ferry::tool {

/// A Megatron-LM argument: "train-iters", {"500"}. Without values it is a flag.
struct NamedArgument {
  std::string name;
  std::vector<std::string> values;
  bool is_off = false;       // "false": of a flag that has a --no-
  bool is_left_out = false;  // "null": not even what the launcher gives by itself
};

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct LaunchConfiguration {
  std::string name = "ferry";  // of the experiment, and of its jobs
  std::string folder;          // of the experiment, for every node at the same path

  std::string program = "ferry";  // or "megatron"
  std::string ferry;              // empty: the program that writes the launch; in pods, "ferry"
  std::string python = "python3";
  std::vector<std::string> prefix;               // words before the program
  std::string code, script = "pretrain_gpt.py";  // Megatron-LM's folder, and a path in it
  bool back_up_code = false;
  std::vector<std::string> words;  // of the command line, after the arguments and unchecked

  int64_t nodes = 1, ranks_per_node = 1, gpus_per_node = 0;
  int64_t cpus_per_rank = 0;  // 0: not said
  int64_t master_port = 29500;

  bool requeue = false;
  int64_t most_failures = 3, signal_seconds = 600;
  std::string exit_signal = "SIGUSR2";
  bool triggers = true;

  std::string container = "none", image, container_folder;
  std::vector<std::string> mounts, container_options;

  std::string account, partition, qos, reservation, constraint, time, memory;
  std::string gpu_option = "gpus-per-node";
  bool exclusive = false;
  std::vector<std::string> slurm_options, srun_options;

  std::string kind = "pytorchjob", space = "default", pull_policy = "IfNotPresent";
  std::string volume_claim, volume_path, gpu_resource = "nvidia.com/gpu";
  std::string shared_memory, pod_memory, service_account, priority_class;
  int64_t efa = 0, restarts = 100;
  Pairs node_selector;

  bool nccl_logs = false, nsys = false, memory_logs = false;
  int64_t memory_log_seconds = 30;
  std::string wandb_project;
  int64_t vocab_size = 0;  // of a tokenizer whose files are elsewhere; 0: not said

  Pairs environment;
  std::vector<NamedArgument> arguments;

  int64_t ranks() const { return nodes * ranks_per_node; }
};

/// Reads configurations one after the other.
class ConfigurationReader {
 public:
  /// `what` names it in messages: the file, the preset. `preset:` in it comes first. invalid, with
  /// the nearest name, for a key that is none; invalid for a value of another kind.
  void take(std::string_view yaml, const std::string& what);
  void take_preset(const std::string& name);
  /// "KEY=VALUE", the value as YAML reads it.
  void set(const std::string& word);

  /// Checked as far as each key alone says. `folder` is made absolute.
  LaunchConfiguration finish();

 private:
  void take_section(const Value& section, const std::string& prefix, const std::string& what);
  void take_value(const std::string& key, const Value& value, const std::string& what);
  void take_argument(std::string name, const Value& value, const std::string& what);

  LaunchConfiguration configuration_;
  int depth_ = 0;  // of presets in presets
};

/// All keys with their meaning and default, a line each: for --help.
std::string configuration_help();

}  // namespace ferry::tool
