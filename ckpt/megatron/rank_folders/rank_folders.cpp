#include "ckpt/megatron/rank_folders/rank_folders.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/format/torch/torch_file.h"
#include "ckpt/megatron/model/args.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/optimizer/masters/remainders.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/rank_folders/folder_names.h"
#include "ckpt/megatron/rank_folders/layer_wise.h"
#include "ckpt/megatron/rank_folders/model.h"
#include "ckpt/megatron/rank_folders/optimizer.h"
#include "ckpt/megatron/rank_folders/rank.h"

namespace ferry {
namespace {

std::vector<std::string> rank_folder_names(const FileSystem& files, const std::string& folder) {
  std::vector<std::string> names = files.list(folder);
  std::erase_if(names, [](const std::string& name) { return !is_rank_folder_name(name); });
  return names;
}

// Every file's tensors by themselves.
void open_raw(Checkpoint& checkpoint, const std::vector<std::string>& names) {
  Catalog& catalog = checkpoint.catalog.edit();
  for (const std::string& name : names) {
    const std::string folder = join(checkpoint.path, name);
    for (const std::string& file : catalog.file_system->list(folder)) {
      if (!file.ends_with(".pt")) continue;
      Catalog one = open_torch_file(catalog.file_system, join(folder, file));
      const uint32_t number = catalog.add_file(one.files[0].path, one.files[0].bytes);
      const std::string prefix = name + "/" + file + ":";
      for (Entry& entry : one.entries) {
        entry.name = prefix + entry.name;
        for (Chunk& chunk : entry.chunks) chunk.extent.file = number;
        catalog.entries.push_back(std::move(entry));
      }
      for (Object& object : one.objects) {
        object.name = prefix + object.name;
        object.extent.file = number;
        catalog.objects.push_back(std::move(object));
      }
    }
  }
}

LegacyModelOptions model_options(const Value& root, const Value& args, const RunArguments& run) {
  LegacyModelOptions options;
  options.stacked = run.stacks_layers;
  options.tied = !args.get("untie_embeddings_and_output_weights").boolean().value_or(false);
  const double version = root.get("checkpoint_version").real().value_or(0);
  if (!(version >= 0 && version <= 3)) {
    fail(ErrorKind::unsupported, "checkpoint_version {} is not known; 0 to 3 are", version);
  }
  options.checkpoint_version = static_cast<int>(version);
  options.latent_q = args.get("q_lora_rank").integer().value_or(0);
  options.latent_kv =
      checked_add(args.get("kv_lora_rank").integer().value_or(0),
                  args.get("qk_pos_emb_head_dim").integer().value_or(0), "the run's latent size");
  return options;
}

void check_ranks(const std::vector<RankFolder>& folders, const std::vector<std::string>& names,
                 Checkpoint& checkpoint) {
  const FileSystem& files = *checkpoint.catalog->file_system;
  std::vector<std::string> missing, expected;
  for (const RankFolder& folder : folders) {
    const std::string file = join(join(checkpoint.path, folder.name), kLegacyModelFile);
    if (files.status(file).kind != PathKind::file) missing.push_back(folder.name);
    expected.push_back(folder.name);
  }
  if (!missing.empty()) {
    fail(ErrorKind::not_found,
         "{}: {} of {} ranks lack {}: {}; copy the folders of all ranks (on nodes without a shared "
         "file system each has its own) into one place",
         checkpoint.path, missing.size(), folders.size(), kLegacyModelFile, some_of(missing, 8));
  }
  std::vector<std::string> extra = names;
  std::erase_if(extra, [&](const std::string& name) {
    return std::find(expected.begin(), expected.end(), name) != expected.end();
  });
  if (!extra.empty()) {
    checkpoint.notes.push_back("rank folders beyond those of the run are left out:  " +
                               some_of(extra, 8));
  }
}

// What is next to the model in a rank's file: from the first rank, and every rank's random state.
void add_objects(Catalog& catalog, const std::vector<RankFolder>& folders,
                 const std::vector<LegacyRank>& ranks, const std::string& path, const Value& root,
                 const RunArguments& run) {
  const auto object = [&](size_t rank, std::string name, std::string key) {
    const std::string file = join(join(path, folders[rank].name), kLegacyModelFile);
    const uint32_t number = catalog.add_file(file, catalog.file_system->status(file).bytes);
    Extent extent;
    extent.file = number;
    extent.length =
        ranks[rank].pickle_bytes ? ranks[rank].pickle_bytes : catalog.files[number].bytes;
    catalog.objects.push_back({std::move(name), extent, {std::move(key)}});
  };
  for (size_t i = 0; i < root.pair_count(); ++i) {
    const std::string key = key_text(root.pair_key(i));
    if (!key.starts_with("model") && key != "rng_state") object(0, key, key);
  }
  if (!root.has("rng_state")) return;
  for (size_t i = 0; i < folders.size(); ++i) {
    if (!folders[i].gives_dense) continue;
    const RankCoordinates& rank = folders[i].rank;
    object(i,
           fmt::format("rng_state/shard_{}.{}_{}.{}", rank.stage, rank.tensor, run.pipeline,
                       run.tensor),
           "rng_state");
  }
}

void add_model_entries(Catalog& catalog, const std::vector<RankFolder>& folders,
                       const LegacyModel& model, int64_t heads) {
  const size_t first = catalog.entries.size();
  for (const ModelTensor& tensor : model.tensors) {
    catalog.entries.push_back({tensor.name, tensor.dtype, tensor.shape, {}, Role::model});
  }
  for (size_t i = 0; i < folders.size(); ++i) {
    for (const LegacyChunk& chunk : model.ranks[i]) {
      for (const LegacyTensor& tensor : chunk) {
        for (const LegacyTensor::Part& part : tensor.parts) {
          const bool given =
              part.parameter.routed_expert ? folders[i].gives_experts : folders[i].gives_dense;
          if (!given || !part.parameter.first_copy) continue;
          give_pieces(part, *tensor.stored, heads, [&](uint32_t number, Chunk piece) {
            Entry& entry = catalog.entries[first + number];
            if (entry.dtype != tensor.stored->dtype) {
              fail(ErrorKind::mismatch, "{} is {} on some ranks and {} in {}", entry.name,
                   torch_name(entry.dtype), torch_name(tensor.stored->dtype), folders[i].name);
            }
            entry.chunks.push_back(std::move(piece));
          });
        }
      }
    }
  }
}

// Every parameter has each state that any has.
void check_complete(const LegacyModel& model, const std::vector<Entry>& entries) {
  std::vector<bool> trainable(model.tensors.size(), false);
  for (const auto& chunks : model.ranks) {
    for (const LegacyChunk& chunk : chunks) {
      for (const LegacyTensor& tensor : chunk) {
        for (const LegacyTensor::Part& part : tensor.parts) {
          for (const Shard& shard : part.parameter.shards) {
            trainable[shard.tensor] = trainable[shard.tensor] || part.parameter.trainable;
          }
        }
      }
    }
  }
  const auto parameters = std::count(trainable.begin(), trainable.end(), true);
  for (std::string_view state : {"exp_avg", "exp_avg_sq"}) {
    const std::string prefix = optimizer_entry_name(state, "");
    const auto found = std::count_if(entries.begin(), entries.end(), [&](const Entry& entry) {
      return entry.name.starts_with(prefix);
    });
    if (found != 0 && found != parameters) {
      fail(ErrorKind::mismatch, "{} of {} parameters have {}", found, parameters, state);
    }
  }
}

// What opens, and yet is not what was saved.
void find_damage(Checkpoint& checkpoint, const std::vector<RankFolder>& folders,
                 const std::vector<LegacyRank>& ranks, const RunArguments& run) {
  std::vector<RankOrigin> origins;
  std::vector<std::string> lacking;
  for (size_t i = 0; i < ranks.size(); ++i) {
    origins.push_back(ranks[i].origin);
    if (ranks[i].lacks_optimizer_file) lacking.push_back(folders[i].name);
  }
  checkpoint.damage = contradictions(folders, origins, run);
  checkpoint.notes.insert(checkpoint.notes.end(), checkpoint.damage.begin(),
                          checkpoint.damage.end());
  if (lacking.empty()) return;
  checkpoint.optimizer_problem =
      fmt::format("The optimizer's state is left out: {} of {} ranks lack {}: {}.", lacking.size(),
                  ranks.size(), kLegacyOptimizerFile, some_of(lacking, 8));
  checkpoint.damage.push_back(checkpoint.optimizer_problem);
}

// Whether the run has state in files of its data ranks: one has such a file, or the model's file
// has a part of the state.
bool has_layer_wise_state(const Checkpoint& checkpoint, const std::vector<RankFolder>& folders,
                          const std::vector<LegacyRank>& ranks, const RunArguments& run) {
  if (!run.matrices.layer_wise) return false;
  const FileSystem& files = *checkpoint.catalog->file_system;
  for (size_t i = 0; i < folders.size(); ++i) {
    if (!ranks[i].plain.empty()) return true;
    if (has_layer_wise_files(files, join(checkpoint.path, folders[i].name))) return true;
  }
  return false;
}

void add_optimizer_entries(Checkpoint& checkpoint, const std::vector<RankFolder>& folders,
                           const std::vector<LegacyRank>& ranks, const LegacyModel& model,
                           const RunArguments& run, int64_t heads) {
  bool flat = false, plain = false;
  for (const LegacyRank& rank : ranks) {
    flat |= !rank.flat.empty();
    plain |= !rank.plain.empty();
    if (checkpoint.optimizer_problem.empty() && !rank.optimizer_problem.empty()) {
      checkpoint.optimizer_problem =
          "The optimizer's state is left out: " + rank.optimizer_problem + ".";
    }
  }
  const bool layer_wise = has_layer_wise_state(checkpoint, folders, ranks, run);
  plain |= layer_wise;
  checkpoint.optimizer = flat    ? OptimizerLayout::legacy_distributed
                         : plain ? OptimizerLayout::plain
                                 : OptimizerLayout::none;
  if (!checkpoint.optimizer_problem.empty()) {
    checkpoint.optimizer = OptimizerLayout::legacy_distributed;
    return;
  }
  const bool matrices = run.matrices.any;
  try {
    OptimizerEntries entries(model.tensors);
    if (layer_wise) {
      add_layer_wise_state(checkpoint.catalog.edit(), checkpoint.path, folders, model, run, heads,
                           entries);
    } else if (plain && matrices) {
      add_state_of_matrices(folders, ranks, model, run, heads, entries);
    } else if (flat) {
      add_flat_state(folders, ranks, model, run, heads, entries);
    } else if (plain) {
      add_plain_state(folders, ranks, model, run, heads, entries);
    }
    std::vector<Entry> all = entries.take();
    if (!matrices) check_complete(model, all);
    std::move(all.begin(), all.end(), std::back_inserter(checkpoint.catalog.edit().entries));
  } catch (const Error& error) {
    const bool missing = error.kind() == ErrorKind::not_found;
    if (!missing && error.kind() != ErrorKind::unsupported && error.kind() != ErrorKind::mismatch) {
      throw;
    }
    checkpoint.optimizer_problem =
        fmt::format("The optimizer's state is left out: {}.", error.what());
    if (missing) checkpoint.damage.push_back(checkpoint.optimizer_problem);
    // Megatron-LM itself lost it: nothing is wrong with the files.
    if (layer_wise && error.kind() == ErrorKind::unsupported)
      checkpoint.optimizer_unsupported = true;
  }
}

void open_model(Checkpoint& checkpoint, const std::vector<std::string>& names) {
  Catalog& catalog = checkpoint.catalog.edit();
  std::shared_ptr<const Document> document;
  LegacyRank first = read_legacy_rank(catalog, join(checkpoint.path, names.front()), &document);
  const Value root = document->root();
  checkpoint.args = {document, root.get("args")};
  if (!checkpoint.args.value) {
    fail(ErrorKind::unsupported,
         "{}: holds no arguments of the run (args), without which the ranks' parts of the model "
         "cannot be joined; {} shows them as they are",
         join(checkpoint.path, names.front()), option("raw"));
  }
  const Value& args = checkpoint.args.value;
  checkpoint.layout = layout_from_args(args);
  const std::string release = release_from_args(args);
  checkpoint.writer = release.empty() ? "Megatron-LM" : release;
  checkpoint.iteration = root.get("iteration").integer();

  const RunArguments run = read_run_arguments(args);
  const std::vector<RankFolder> folders = expected_rank_folders(run);
  check_ranks(folders, names, checkpoint);
  std::vector<LegacyRank> ranks;
  for (const RankFolder& folder : folders) {
    ranks.push_back(folder.name == names.front()
                        ? std::move(first)
                        : read_legacy_rank(catalog, join(checkpoint.path, folder.name), nullptr));
  }
  const int64_t heads = args.get("num_attention_heads").integer().value_or(0) / run.tensor;
  const LegacyModel model = place_legacy_model(folders, ranks, run, model_options(root, args, run));
  checkpoint.modules = model.modules;
  add_model_entries(catalog, folders, model, heads);
  find_damage(checkpoint, folders, ranks, run);
  add_optimizer_entries(checkpoint, folders, ranks, model, run, heads);
  recognise_remainders(checkpoint);
  for (const Entry& entry : catalog.entries) check_chunks(catalog, entry);
  add_objects(catalog, folders, ranks, checkpoint.path, root, run);
}

}  // namespace

bool is_legacy_folder(const FileSystem& file_system, const std::string& folder) {
  return !rank_folder_names(file_system, folder).empty();
}

Checkpoint open_legacy(std::shared_ptr<const FileSystem> file_system, const std::string& folder,
                       bool raw) {
  const std::vector<std::string> names = rank_folder_names(*file_system, folder);
  if (names.empty()) fail(ErrorKind::not_found, "{}: no folders mp_rank_* in it", folder);
  Checkpoint checkpoint;
  checkpoint.format = Format::megatron_torch;
  checkpoint.path = folder;
  checkpoint.writer = "Megatron-LM";
  checkpoint.catalog.edit().file_system = std::move(file_system);
  if (raw) {
    open_raw(checkpoint, names);
  } else {
    open_model(checkpoint, names);
  }
  return checkpoint;
}

}  // namespace ferry
