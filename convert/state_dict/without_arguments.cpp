#include "convert/state_dict/without_arguments.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/torch_dist/torch_dist.h"
#include "ckpt/open_folders.h"
#include "convert/import.h"
#include "convert/state_dict/state_dict.h"

namespace ferry {
namespace {

constexpr std::string_view kRng = "rng_state/shard_";
constexpr std::string_view kWordEmbeddings = "embedding.word_embeddings.weight";
constexpr int kMostFoldersAround = 3;

// P and T of "rng_state/shard_0.0_P.T".
std::optional<std::pair<int64_t, int64_t>> grid_of(const Catalog& catalog) {
  for (const Object& object : catalog.objects) {
    const std::string_view name = object.name;
    const size_t of = name.rfind('_');
    if (!name.starts_with(kRng) || of == std::string_view::npos) continue;
    int64_t stages = 0, tensor = 0;
    const char* const end = name.data() + name.size();
    const auto first = std::from_chars(name.data() + of + 1, end, stages);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') continue;
    const auto second = std::from_chars(first.ptr + 1, end, tensor);
    if (second.ec != std::errc() || second.ptr != end || stages < 1 || tensor < 1) continue;
    return std::pair(stages, tensor);
  }
  return std::nullopt;
}

// The ranks that saved, as far as that is known.
ParallelTarget ranks_of(const Checkpoint& checkpoint) {
  ParallelTarget ranks;
  const auto grid = grid_of(checkpoint.catalog);
  if (!grid) return ranks;
  ranks.pipeline = grid->first;
  ranks.tensor = grid->second;
  const int64_t world = checkpoint.layout.world_size;
  const bool fits = grid->first <= world && grid->second <= world / grid->first &&
                    world % (grid->first * grid->second) == 0;
  if (fits) ranks.data = world / (grid->first * grid->second);
  return ranks;
}

// The rows that are stored, which may be more than the arguments would pad to.
void put_rows(Draft& draft, const Value& args, const Catalog& catalog) {
  const auto is_embedding = [](const Entry& entry) {
    return entry.role == Role::model && entry.name == kWordEmbeddings && entry.shape.size() == 2;
  };
  const auto found = std::ranges::find_if(catalog.entries, is_embedding);
  if (found == catalog.entries.end()) return;
  draft.put(args, "padded_vocab_size", draft.integer(found->shape[0]));
}

LoadedValue with_rows(const LoadedValue& made, const Checkpoint& checkpoint) {
  Draft draft;
  const Value args = draft.copy(made.value);
  put_rows(draft, args, checkpoint.catalog);
  draft.put(args, "use_distributed_optimizer", draft.boolean(true));
  return std::move(draft).finish(args);
}

}  // namespace

void give_arguments(Checkpoint& checkpoint, const std::string& config_folder,
                    std::vector<std::string>& warnings) {
  const std::string folder = find_config_folder(checkpoint, config_folder);
  const LoadedValue args = with_rows(
      arguments_of_config(checkpoint, folder, warnings, ranks_of(checkpoint)), checkpoint);
  if (checkpoint.format == Format::torch_dist) {
    Checkpoint again =
        open_torch_dist(checkpoint.catalog->file_system, checkpoint.path, false, args);
    again.catalog.edit().reader_locks = checkpoint.catalog->reader_locks;
    again.notes.insert(again.notes.begin(), checkpoint.notes.begin(), checkpoint.notes.end());
    again.iteration = checkpoint.iteration;
    checkpoint = std::move(again);
  } else {
    checkpoint.args = args;
  }
  std::string path = checkpoint.path;
  for (int i = 0; i < kMostFoldersAround && !checkpoint.iteration && !path.empty(); ++i) {
    checkpoint.iteration = iteration_by_name(path);  // global_step_5/actor/dist_ckpt
    path = split_path(path).parent;
  }
}

void rename_members(RunState& state) {
  const auto named = [&](std::string_view name) {
    return std::ranges::find_if(state.common,
                                [&](const auto& member) { return member.first == name; });
  };
  const auto scheduler = named("lr_scheduler");
  if (scheduler == state.common.end() || named("opt_param_scheduler") != state.common.end()) return;
  scheduler->first = "opt_param_scheduler";
}

}  // namespace ferry
