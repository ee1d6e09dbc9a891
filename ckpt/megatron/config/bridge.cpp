#include "ckpt/megatron/config/bridge.h"

#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/io/file_system.h"
#include "ckpt/megatron/model/args.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/config/nemo_config.h"
#include "ckpt/megatron/config/yaml.h"

namespace ferry {
namespace {

constexpr std::string_view kAlternations[] = {"moe_mlp_glu_interleave_size",
                                              "moe_shared_expert_glu_interleave_size"};

// Removes from the arguments what the files do not follow, and returns the names of what was set.
std::string take_alternations(LoadedValue& args) {
  const GluBlocks blocks = read_glu_blocks(args.value);
  std::string names;
  Draft draft;
  const Value copy = draft.copy(args.value);
  for (const auto& [name, block] :
       {std::pair{kAlternations[0], blocks.experts}, std::pair{kAlternations[1], blocks.shared}}) {
    if (block > 0) names += fmt::format("{}{} {}", names.empty() ? "" : ", ", name, block);
    if (copy.has(name)) draft.put(copy, name, draft.none());
  }
  args = std::move(draft).finish(copy);
  return names;
}

}  // namespace

std::string fill_from_bridge_config(Checkpoint& checkpoint) {
  const FileSystem& files = *checkpoint.catalog->file_system;
  const std::string path = join(checkpoint.path, "run_config.yaml");
  if (checkpoint.args.value || files.status(path).kind != PathKind::file) return {};
  std::string alternations;
  try {
    const auto yaml = parse_yaml(read_file(files, path, kMostConfigBytes), path);
    checkpoint.args = args_from_provider(yaml->root().get("model"), {});
    if (checkpoint.args.value) alternations = take_alternations(checkpoint.args);
  } catch (const Error& error) {
    checkpoint.notes.push_back(
        fmt::format("the run's configuration cannot be read: {}", error.what()));
    checkpoint.args = {};
    return {};
  }
  if (!checkpoint.args.value) {
    checkpoint.notes.push_back(fmt::format("no model configuration in {}", path));
    return {};
  }
  const int64_t ranks_by_files = checkpoint.layout.world_size;
  checkpoint.layout = layout_from_args(checkpoint.args.value);
  if (checkpoint.layout.world_size == 0) {
    checkpoint.layout.world_size = ranks_by_files;
    checkpoint.layout.data = data_parallel_size(checkpoint.layout);
  }
  checkpoint.writer = "Megatron Bridge (" + checkpoint.writer + ")";
  if (alternations.empty()) return {};
  checkpoint.notes.push_back(
      fmt::format("rows of gate and up are assumed to follow one another, as Megatron Bridge saves "
                  "them whatever the run had in memory ({})",
                  alternations));
  return fmt::format(
      "The optimizer's state is left out: its rows of gate and up alternate in blocks, as the run "
      "had them in memory ({}), those of the model do not.",
      alternations);
}

}  // namespace ferry
