#include "ckpt/megatron/nemo/bridge.h"

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/args.h"
#include "ckpt/megatron/nemo/nemo_config.h"
#include "ckpt/megatron/nemo/plain_yaml.h"

namespace ferry {
namespace {

constexpr uint64_t kConfigLimit = uint64_t{16} << 20;

}  // namespace

void fill_from_bridge_config(Checkpoint& checkpoint) {
  const FileSystem& files = *checkpoint.catalog.file_system;
  const std::string path = join(checkpoint.path, "run_config.yaml");
  if (checkpoint.args.value || files.status(path).kind != PathKind::file) return;
  try {
    const auto yaml = parse_plain_yaml(read_file(files, path, kConfigLimit), path);
    checkpoint.args = args_from_provider(yaml->root().get("model"), {});
  } catch (const Error& error) {
    checkpoint.notes.push_back(
        fmt::format("the run's configuration cannot be read: {}", error.what()));
    return;
  }
  if (!checkpoint.args.value) {
    return checkpoint.notes.push_back(fmt::format("no model configuration in {}", path));
  }
  const int64_t ranks_by_files = checkpoint.layout.world_size;
  checkpoint.layout = layout_from_args(checkpoint.args.value);
  if (checkpoint.layout.world_size == 0) {
    checkpoint.layout.world_size = ranks_by_files;
    checkpoint.layout.data = data_parallel_size(checkpoint.layout);
  }
  checkpoint.writer = "Megatron Bridge (" + checkpoint.writer + ")";
}

}  // namespace ferry
