// A checkpoint of any format as data, and the function that opens it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/io/file_system.h"

namespace ferry {

enum class Format {
  torch_dist,      // Megatron-LM's distributed checkpoint
  dcp,             // plain PyTorch distributed checkpoint
  fsdp_dtensor,    // Megatron-LM's state dict in a PyTorch DCP, with Megatron-FSDP
  torch_dcp,       // the same with PyTorch's FSDP2
  megatron_torch,  // Megatron-LM's legacy mp_rank_* folders
  nemo,            // NeMo 2: weights/ and context/
  hugging_face,    // safetensors or pytorch_model*.bin with config.json
  safetensors,     // a lone .safetensors file
  torch_file,      // a lone .pt / .pth / .bin file
  fsdp,            // a file of DTensors each rank, as verl saves
  deepspeed,       // DeepSpeed's ZeRO or universal checkpoint
};

/// Spelled as on the command line: "torch_dist", "dcp", "fsdp_dtensor", "torch_dcp", "torch",
/// "nemo", "hf", "safetensors", "pt", "fsdp", "deepspeed".
std::string_view name(Format format) noexcept;

/// How the optimizer's state is laid out on disk. The catalog hides it; inspect shows it.
enum class OptimizerLayout {
  none,
  fully_reshardable,
  dp_reshardable,
  fully_sharded_model_space,
  legacy_distributed,
  fsdp_dtensor,
  plain,
};
std::string_view name(OptimizerLayout layout) noexcept;

/// Ranks that wrote the checkpoint, as far as known from args or file names; 0: unknown.
struct ParallelLayout {
  int64_t tensor = 0, pipeline = 0, virtual_pipeline = 0, expert = 0, expert_tensor = 0, data = 0,
          context = 0, world_size = 0;
};

/// Which of Megatron-LM's modules a model was built from, as far as neither names nor arguments
/// decide it.
struct ModuleChoice {
  enum class Experts : uint8_t {
    sequential,     // all of expert 0, all of expert 1, ...
    grouped,        // fc1 of every expert (weight and bias of each), then fc2
    grouped_apart,  // as grouped, but all weights of a projection before its biases
  };
  bool norms_in_linears = false;   // linear_qkv registers the norm before it (Transformer Engine)
  bool split_latent_down = false;  // MLA down-projections are column parallel (local modules)
  Experts experts = Experts::sequential;
  bool operator==(const ModuleChoice&) const = default;
};

struct Checkpoint {
  Format format = Format::torch_dist;
  std::string path;    // the folder or file that holds the data (the iteration's, of a run folder)
  std::string writer;  // "Megatron Core 0.19 or later", "PyTorch DCP", ... if known
  std::optional<int64_t> iteration;
  SharedCatalog catalog;
  LoadedValue args;      // argparse.Namespace of Megatron; none when there is none
  LoadedValue metadata;  // content metadata of torch_dist; none otherwise
  /// For other programs' DCP: the path of each key in the state dict that was saved (planner_data).
  LoadedValue paths;
  ParallelLayout layout;
  OptimizerLayout optimizer = OptimizerLayout::none;
  /// Why optimizer state that is on disk is missing from the catalog; empty when nothing is.
  std::string optimizer_problem;
  /// For other programs' optimizers: their parameter groups, a list of dicts as it was stored, and
  /// the steps that they have made. None, nothing: unknown.
  LoadedValue param_groups;
  std::optional<int64_t> optimizer_steps;
  /// Set if optimizer state in the catalog is misplaced (not that of its tensors); says how to
  /// repair it.
  std::string shifted_state;
  bool optimizer_unsupported = false;  // that is ferry's lack, not the checkpoint's: it is sound
  /// How Megatron-LM's modules registered their parameters, where flat buffers or rank files show
  /// it.
  std::optional<ModuleChoice> modules;
  /// Files that are missing or are not what was saved here, though the catalog could be built
  /// without them. Also in `optimizer_problem` or `notes`.
  std::vector<std::string> damage;
  std::vector<std::string> notes;  // warnings: stale tracker, padding, dropped objects
  /// For a model under another program's names: what makes a Hugging Face model of it. Empty: its
  /// names are transformers', or of an unknown program.
  std::string conversion;
};

struct OpenOptions {
  std::string iteration = {};  // of a run folder: a number, "release", or empty: the
                               // tracker decides
  bool raw = false;            // the entries as stored, before Megatron's meaning is applied
};

/// Opens what `path` is: a checkpoint of any Format, the folder of a run that holds several, or a
/// folder that leads to one (leads_to()). Reads names, shapes, objects and, where optimizer state
/// is stored in flat buffers, what it takes to find their layout; no other tensor data. The result
/// owns all it needs; several threads may read from it.
///
/// not_found when nothing is there, or not that iteration; invalid for what is not a checkpoint or
/// for a path that leads to several; unsupported for a form of one that is not read; corrupt,
/// mismatch when files are damaged or contradict each other; io; exhausted; busy when the
/// checkpoint was replaced meanwhile.
Checkpoint open_checkpoint(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                           const OpenOptions& options = {});

/// Where a folder leads that holds no checkpoint itself.
struct CheckpointLead {
  std::string path;
  bool by_iteration = false;  // the iteration has been taken into account
  std::vector<std::string> notes;
};

/// For a Hugging Face download cache the snapshot, for a run of another program than Megatron-LM
/// the step that is asked for or was saved last. Nothing for all else. Errors as open_checkpoint().
std::optional<CheckpointLead> leads_to(const FileSystem& file_system, const std::string& path,
                                       const std::string& iteration);

/// True where open_checkpoint() takes the folder `path` itself, or a part of it, for a checkpoint.
bool is_checkpoint_folder(const FileSystem& file_system, const std::string& path);

/// What the folder `path` holds itself, by the names in it; nothing when that
/// is not a checkpoint, or a run folder, which holds several.
std::optional<Format> format_of_folder(const FileSystem& file_system, const std::string& path);

}  // namespace ferry
