#include "ckpt/megatron/torch_dist/torch_dist.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "ckpt/base/error.h"
#include "ckpt/format/dcp/dcp.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/megatron/config/bridge.h"
#include "ckpt/megatron/model/args.h"
#include "ckpt/megatron/optimizer/masters/remainders.h"
#include "ckpt/megatron/optimizer/masters/shifted_state.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/optimizer/optimizer_state.h"
#include "ckpt/store/run_folder.h"

namespace ferry {
namespace {

constexpr std::string_view kCommonKey = "common_state/shard_0_1";
constexpr uint64_t kMetadataLimit = 1 << 20;

// metadata.json, which Megatron-LM writes last.
void check_config(const FileSystem& file_system, const std::string& folder) {
  const std::string path = join(folder, "metadata.json");
  if (file_system.status(path).kind == PathKind::missing) {
    fail(ErrorKind::not_found,
         "{}: no metadata.json in it, which Megatron-LM writes last: the checkpoint is unfinished. "
         "If "
         "its save is known to have finished (a host without the shared file system), put "
         "{{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1}} there",
         folder);
  }
  const auto json = parse_json(read_file(file_system, path, kMetadataLimit), path);
  if (!json.is_object() || !json.contains("sharded_backend") ||
      !json["sharded_backend"].is_string()) {
    fail(ErrorKind::corrupt, "{}: expected a JSON object with \"sharded_backend\"", path);
  }
  const auto& backend = json["sharded_backend"].get_ref<const std::string&>();
  if (backend != "torch_dist") {
    fail(
        ErrorKind::unsupported,
        "{}: the checkpoint's sharded backend is '{}'{}; only torch_dist can be read here. Load it "
        "with a Megatron Core that knows both (0.6 to 0.15 for zarr) and save it again "
        "(--ckpt-format torch_dist), and convert that",
        path, backend, backend == "zarr" ? ", a zarr store of one folder a tensor" : "");
  }
  const auto version = json.find("sharded_backend_version");
  if (version != json.end() && *version != 1) {
    fail(ErrorKind::unsupported, "{}: torch_dist version {}; only version 1 is known here", path,
         version->dump());
  }
}

// Where the common state is; path[0] is "0" where it is the one element of a list.
std::optional<Object> find_common(Checkpoint& checkpoint, const FileSystem& file_system) {
  const std::string legacy = join(checkpoint.path, "common.pt");
  const PathStatus status = file_system.status(legacy);
  if (status.kind == PathKind::file) {
    const uint32_t file = checkpoint.catalog.edit().add_file(legacy, status.bytes);
    return Object{"common", {file, 0, status.bytes, Encoding::raw, false, 0}, {}};
  }
  const Object* inside = checkpoint.catalog->find_object(kCommonKey);
  return inside ? std::optional(*inside) : std::nullopt;
}

void load_common(StoredTorchDist& stored, const FileSystem& file_system) {
  const auto object = find_common(stored.checkpoint, file_system);
  if (!object) {
    stored.checkpoint.notes.push_back(
        "neither common.pt nor common_state in it: the run's arguments are unknown");
    return;
  }
  stored.common_object = *object;
  stored.common = read_object(stored.checkpoint.catalog, *object);
  if (stored.common.value.kind() == ValueKind::list) {
    stored.common.value = stored.common.value[0];
    stored.common_object.path = {"0"};
  }
  if (stored.common.value.kind() != ValueKind::dict) {
    fail(ErrorKind::corrupt, "{}: the common state '{}' is not a dict",
         stored.checkpoint.catalog->files.at(object->extent.file).path, object->name);
  }
}

LoadedValue member(const LoadedValue& parent, std::string_view name) {
  const Value value = parent.value.get(name);
  return value ? LoadedValue{parent.document, value} : LoadedValue{};
}

// Args identify the release best. Without them the form of the common state, and what it holds,
// narrow it down.
std::string writer_of(const StoredTorchDist& stored, const DcpCheckpoint& dcp) {
  const bool inside = stored.checkpoint.catalog->find_object(kCommonKey) != nullptr;
  const std::string release = release_from_args(stored.common.value.get("args"));
  if (!release.empty()) {
    // A fork may lack the newest arguments; the place of the common state is not in doubt.
    const bool older_args = !release.ends_with("0.19") && !release.ends_with("or later");
    return inside && older_args ? "Megatron Core 0.19 or later" : release;
  }
  if (inside) return "Megatron Core 0.19 or later";
  const Value root = dcp.metadata ? dcp.metadata->root() : Value();
  if (root.text().ends_with(".MCoreMetadata")) return "Megatron Core 0.15";
  if (root.get("mcore_data")) return "Megatron Core 0.8 to 0.14";
  if (stored.common.value.get("content_metadata")) return "Megatron Core 0.13 to 0.18";
  return "Megatron Core 0.18 or earlier";
}

std::string base_name(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.find_last_of('/') + 1);
}

// Every rank writes at least one file, "__R_N.distcp".
int64_t ranks_by_files(const Catalog& catalog) {
  int64_t ranks = 0;
  for (const FileInfo& file : catalog.files) {
    const std::string name = base_name(file.path);
    int64_t rank = -1;
    if (!name.starts_with("__") || !name.ends_with(".distcp")) continue;
    const auto [end, error] = std::from_chars(name.data() + 2, name.data() + name.size(), rank);
    if (error == std::errc() && *end == '_' && rank < INT64_MAX) ranks = std::max(ranks, rank + 1);
  }
  return ranks;
}

void fill_iteration(StoredTorchDist& stored) {
  Checkpoint& checkpoint = stored.checkpoint;
  const auto by_name = iteration_of(base_name(checkpoint.path));
  checkpoint.iteration = stored.common.value.get("iteration").integer();
  if (!checkpoint.iteration) checkpoint.iteration = by_name;
  if (by_name && checkpoint.iteration != by_name) {
    checkpoint.notes.push_back(
        fmt::format("the folder is named for iteration {}, its state says {}", *by_name,
                    *checkpoint.iteration));
  }
}

void list_common_members(StoredTorchDist& stored) {
  std::vector<Object>& objects = stored.checkpoint.catalog.edit().objects;
  std::erase_if(objects, [](const Object& object) { return object.name == kCommonKey; });
  const Value& common = stored.common.value;
  std::unordered_set<std::string> known;
  for (const Object& object : objects) known.insert(object.name);
  for (size_t i = 0; i < common.pair_count(); ++i) {
    const auto key = common.pair_key(i).string();
    if (!key || !known.emplace(*key).second) continue;
    Object object = stored.common_object;
    object.name = *key;
    object.path.emplace_back(*key);
    objects.push_back(std::move(object));
  }
}

void leave_optimizer_out(Checkpoint& checkpoint, const std::string& problem) {
  const auto gone = std::erase_if(checkpoint.catalog.edit().entries,
                                  [](const Entry& entry) { return entry.role == Role::optimizer; });
  if (gone == 0) return;
  checkpoint.optimizer_problem = problem;
  checkpoint.optimizer_unsupported = true;
}

}  // namespace

bool is_optimizer_name(std::string_view name) {
  constexpr std::string_view kChained = "chained_";
  if (name.starts_with(kChained)) {
    const size_t dot = name.find_first_not_of("0123456789", kChained.size());
    if (dot == std::string_view::npos || dot == kChained.size() || name[dot] != '.') return false;
    name.remove_prefix(dot + 1);
  }
  return name.starts_with("optimizer.");
}

StoredTorchDist read_torch_dist(std::shared_ptr<const FileSystem> file_system,
                                const std::string& folder) {
  check_config(*file_system, folder);
  DcpCheckpoint dcp = open_dcp(file_system, folder);
  StoredTorchDist stored;
  Checkpoint& checkpoint = stored.checkpoint;
  checkpoint.format = Format::torch_dist;
  checkpoint.path = folder;
  checkpoint.catalog = std::move(dcp.catalog);
  for (Entry& entry : checkpoint.catalog.edit().entries) {
    if (is_optimizer_name(entry.name)) entry.role = Role::optimizer;
  }
  load_common(stored, *file_system);
  checkpoint.args = member(stored.common, "args");
  checkpoint.metadata = member(stored.common, "content_metadata");
  checkpoint.layout = layout_from_args(checkpoint.args.value);
  if (checkpoint.layout.world_size == 0) {
    checkpoint.layout.world_size = ranks_by_files(checkpoint.catalog);
  }
  checkpoint.writer = writer_of(stored, dcp);
  fill_iteration(stored);
  return stored;
}

void apply_megatron_meaning(StoredTorchDist& stored) {
  Checkpoint& checkpoint = stored.checkpoint;
  if (stored.common.value) list_common_members(stored);
  OptimizerState state = describe_optimizer(checkpoint.catalog.edit(), checkpoint.args.value,
                                            checkpoint.metadata.value);
  checkpoint.optimizer = state.layout;
  checkpoint.optimizer_problem = std::move(state.problem);
  checkpoint.modules = state.modules;
}

Checkpoint open_torch_dist(std::shared_ptr<const FileSystem> file_system, const std::string& folder,
                           bool raw, const LoadedValue& args) {
  StoredTorchDist stored = read_torch_dist(std::move(file_system), folder);
  const std::string problem = fill_from_bridge_config(stored.checkpoint);
  if (args.value && !stored.checkpoint.args.value) {
    stored.checkpoint.args = args;
    stored.checkpoint.layout = layout_from_args(args.value);
  }
  if (raw) {
    Catalog logical = stored.checkpoint.catalog;
    const Value &known = stored.checkpoint.args.value, &metadata = stored.checkpoint.metadata.value;
    stored.checkpoint.optimizer = describe_optimizer(logical, known, metadata).layout;
  } else {
    apply_megatron_meaning(stored);
    if (!problem.empty()) leave_optimizer_out(stored.checkpoint, problem);
    look_for_layer_wise_optimizer(stored.checkpoint, {folder, split_path(folder).parent});
    recognise_remainders(stored.checkpoint);
    stored.checkpoint.shifted_state = shifted_state_problem(stored.checkpoint);
  }
  return std::move(stored.checkpoint);
}

}  // namespace ferry
