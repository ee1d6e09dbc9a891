#include "ckpt/format/hugging_face/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "ckpt/format/hugging_face/safetensors.h"
#include "ckpt/format/torch/torch_file.h"

namespace ferry {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxIndexBytes = 100'000'000;  // as safetensors' headers
constexpr size_t kShown = 5;                      // names in one message
constexpr size_t kMostMissing = 1000;             // shards of one save that are named

using WeightMap = std::vector<std::pair<std::string, std::string>>;

// What a folder's listing says about its weights.
struct Weights {
  HuggingFaceWeights kind = HuggingFaceWeights::safetensors;
  std::string index;               // file name; empty: none
  std::vector<std::string> files;  // names, where there is no index
  bool loose = false;              // files of no agreed name
};

std::vector<std::string> safetensors_in(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const std::string& name : names) {
    if (name.ends_with(".safetensors") && !name.starts_with('.')) files.push_back(name);
  }
  return files;
}

Weights find_weights(const std::vector<std::string>& names) {
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (has("model.safetensors")) return {HuggingFaceWeights::safetensors, "", {"model.safetensors"}};
  if (has("model.safetensors.index.json")) {
    return {HuggingFaceWeights::safetensors, "model.safetensors.index.json", {}};
  }
  if (has("pytorch_model.bin")) return {HuggingFaceWeights::torch_bin, "", {"pytorch_model.bin"}};
  if (has("pytorch_model.bin.index.json")) {
    return {HuggingFaceWeights::torch_bin, "pytorch_model.bin.index.json", {}};
  }
  return {HuggingFaceWeights::safetensors, "", safetensors_in(names), true};
}

// "a, b, c and 4 more"
std::string some_of(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kShown);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

// The shards of one save, model-00002-of-00007.safetensors among them, by what their names share.
struct ShardSet {
  size_t total = 0;
  std::vector<std::string> names;    // that are there
  std::vector<std::string> missing;  // that the names of the others ask for
};

std::map<std::string, ShardSet> shard_sets(const std::vector<std::string>& names,
                                           std::string_view end) {
  std::map<std::string, ShardSet> sets;
  for (const std::string& name : names) {
    const size_t of = name.rfind("-of-");
    if (name.starts_with('.') || !name.ends_with(end)) continue;
    if (of == std::string::npos || of < 6 || name[of - 6] != '-') continue;
    const std::string total = name.substr(of + 4, 5);
    if (total.size() != 5 || !std::all_of(total.begin(), total.end(), ::isdigit)) continue;
    std::string shared = name;
    shared.replace(of - 5, 5, "");
    ShardSet& set = sets[shared];
    set.total = static_cast<size_t>(std::stoi(total));
    set.names.push_back(name);
  }
  for (auto& [shared, set] : sets) {
    const size_t at = shared.rfind("-of-");
    for (size_t shard = 1; shard <= set.total && set.missing.size() < kMostMissing; ++shard) {
      std::string name = shared;
      name.insert(at, fmt::format("{:05}", shard));
      if (!std::binary_search(set.names.begin(), set.names.end(), name)) {
        set.missing.push_back(std::move(name));
      }
    }
  }
  return sets;
}

void check_no_shard_missing(const std::vector<std::string>& files, const std::string& folder) {
  for (const auto& [shared, set] : shard_sets(files, ".safetensors")) {
    if (set.missing.empty()) continue;
    fail(ErrorKind::not_found, "{}: shards are missing, as the names of the others say: {}", folder,
         some_of(set.missing));
  }
}

// The only complete set of shards among `names`; empty when there is none, or more than one.
std::vector<std::string> whole_set(const std::vector<std::string>& names, std::string_view end) {
  std::vector<std::string> whole;
  for (auto& [shared, set] : shard_sets(names, end)) {
    if (!set.missing.empty()) continue;
    if (!whole.empty()) return {};
    whole = std::move(set.names);
  }
  return whole;
}

class Opener {
 public:
  Opener(std::shared_ptr<const FileSystem> file_system, const std::string& folder)
      : file_system_(std::move(file_system)), folder_(folder) {
    model_.catalog.file_system = file_system_;
  }

  HuggingFaceModel open() {
    const std::vector<std::string> names = file_system_->list(folder_);
    const Weights weights = find_weights(names);
    model_.weights = weights.kind;
    model_.config = read_hugging_face_config(*file_system_, folder_);
    note_ignored(names, weights);
    if (!weights.index.empty()) {
      open_indexed(weights, names);
    } else {
      if (weights.files.empty()) refuse_empty();
      if (weights.loose) check_no_shard_missing(weights.files, folder_);
      open_files(weights.files);
    }
    return std::move(model_);
  }

 private:
  [[noreturn]] void refuse_empty() const {
    fail(ErrorKind::not_found,
         "{}: holds no weights: none of model.safetensors, model.safetensors.index.json, "
         "pytorch_model.bin, pytorch_model.bin.index.json, *.safetensors",
         folder_);
  }

  void note_ignored(const std::vector<std::string>& names, const Weights& weights) {
    if (weights.files == std::vector<std::string>{"model.safetensors"} &&
        std::binary_search(names.begin(), names.end(), "model.safetensors.index.json")) {
      model_.notes.push_back(
          "model.safetensors.index.json is ignored, as transformers does beside model.safetensors");
    }
    if (weights.loose && weights.files.size() > 1) {
      model_.notes.push_back(fmt::format(
          "there is no model.safetensors.index.json: all {} .safetensors files are taken",
          weights.files.size()));
    }
  }

  // The shards that the index names. Where it is of another save, those that are there, if they
  // are all shards of one: transformers needs no more of an index than the names of files.
  void open_indexed(const Weights& weights, const std::vector<std::string>& names) {
    const std::string index = join(folder_, weights.index);
    const std::vector<std::string> own =
        whole_set(names, weights.kind == HuggingFaceWeights::torch_bin ? ".bin" : ".safetensors");
    WeightMap map;
    try {
      map = parse_weight_map(read_file(*file_system_, index, kMaxIndexBytes), index);
    } catch (const Error& error) {
      if (own.empty()) throw;
      model_.damage.push_back(error.what());
      return open_files(own);
    }
    std::set<std::string> files;
    for (const auto& [name, file] : map) files.insert(file);
    std::vector<std::string> missing;
    for (const std::string& file : files) {
      const PathStatus status = file_system_->status(join_untrusted(folder_, file));
      if (status.kind == PathKind::missing) missing.push_back(file);
    }
    if (missing.empty()) {
      open_files({files.begin(), files.end()});
    } else if (!own.empty()) {
      model_.damage.push_back(
          fmt::format("{}: {} of the {} shards that it names are missing: {}; the folder has a "
                      "complete set of {} others, which were read instead",
                      index, missing.size(), files.size(), some_of(missing), own.size()));
      open_files(own);
    } else {
      fail(ErrorKind::not_found,
           "{}: {} of the {} shards that {} names are missing: {}; complete the download or copy",
           folder_, missing.size(), files.size(), weights.index, some_of(missing));
    }
    check_against(map, index);
  }

  void open_files(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      const std::string path = join_untrusted(folder_, file);
      if (model_.weights == HuggingFaceWeights::torch_bin) {
        add_torch_file(path);
      } else {
        add_safetensors(path);
      }
    }
    check_names();
  }

  void add_safetensors(const std::string& path) {
    const auto file = file_system_->open(path);
    const uint32_t number = model_.catalog.add_file(path, file->size());
    SafetensorsHeader header = read_safetensors_header(*file, number);
    if (model_.metadata.empty()) model_.metadata = std::move(header.metadata);
    std::move(header.entries.begin(), header.entries.end(),
              std::back_inserter(model_.catalog.entries));
  }

  void add_torch_file(const std::string& path) {
    Catalog part = open_torch_file(file_system_, path);
    std::vector<uint32_t> numbers;
    for (const FileInfo& file : part.files) {
      numbers.push_back(model_.catalog.add_file(file.path, file.bytes));
    }
    for (Entry& entry : part.entries) {
      for (Chunk& chunk : entry.chunks) chunk.extent.file = numbers.at(chunk.extent.file);
      model_.catalog.entries.push_back(std::move(entry));
    }
    for (Object& object : part.objects) {
      object.extent.file = numbers.at(object.extent.file);
      model_.catalog.objects.push_back(std::move(object));
    }
    if (part.locator) model_.catalog.locator = part.locator;
  }

  const std::string& path_of(const Entry& entry) const {
    return model_.catalog.files[entry.chunks.at(0).extent.file].path;
  }

  void check_names() {
    std::unordered_map<std::string_view, const Entry*> seen;
    seen.reserve(model_.catalog.entries.size());
    for (const Entry& entry : model_.catalog.entries) {
      const auto [at, added] = seen.emplace(entry.name, &entry);
      if (added) continue;
      fail(ErrorKind::corrupt, "tensor {} lies in {} and in {}; one model holds it once",
           entry.name, path_of(*at->second), path_of(entry));
    }
  }

  void check_against(const WeightMap& map, const std::string& index) {
    std::unordered_map<std::string_view, const std::string*> expected;
    expected.reserve(map.size());
    for (const auto& [name, file] : map) expected.emplace(name, &file);
    std::vector<std::string> surplus, moved, missing;
    for (const Entry& entry : model_.catalog.entries) {
      const auto at = expected.find(entry.name);
      if (at == expected.end()) {
        surplus.push_back(entry.name);
        continue;
      }
      if (join(folder_, *at->second) != path_of(entry)) moved.push_back(entry.name);
      expected.erase(at);
    }
    for (const auto& [name, file] : map) {
      if (expected.count(name)) missing.push_back(name);
    }
    note_difference(index, missing, "names {} that none of the shards holds");
    note_difference(index, surplus, "lacks {} that the shards hold");
    if (model_.damage.empty())
      note_difference(index, moved, "places {} in other shards than hold them");
  }

  void note_difference(const std::string& index, const std::vector<std::string>& names,
                       std::string_view what) {
    if (names.empty()) return;
    const std::string count =
        fmt::format("{} tensor{}", names.size(), names.size() == 1 ? "" : "s");
    model_.damage.push_back(
        fmt::format("{}: {}: {}", index, fmt::format(fmt::runtime(what), count), some_of(names)));
  }

  std::shared_ptr<const FileSystem> file_system_;
  const std::string& folder_;
  HuggingFaceModel model_;
};

}  // namespace

bool is_hugging_face_folder(const FileSystem& file_system, const std::string& folder) {
  const Weights weights = find_weights(file_system.list(folder));
  return !weights.index.empty() || !weights.files.empty();
}

HuggingFaceModel open_hugging_face(std::shared_ptr<const FileSystem> file_system,
                                   const std::string& folder) {
  return Opener(std::move(file_system), folder).open();
}

std::shared_ptr<const nlohmann::json> read_hugging_face_config(const FileSystem& file_system,
                                                               const std::string& folder) {
  const std::string path = join(folder, "config.json");
  if (file_system.status(path).kind == PathKind::missing) return nullptr;
  nlohmann::json config = parse_python_json(read_file(file_system, path, kMaxConfigBytes), path);
  if (!config.is_object()) fail(ErrorKind::corrupt, "{}: is not an object", path);
  return std::make_shared<const nlohmann::json>(std::move(config));
}

Catalog open_safetensors_file(std::shared_ptr<const FileSystem> file_system,
                              const std::string& path) {
  Catalog catalog;
  catalog.file_system = std::move(file_system);
  const auto file = catalog.file_system->open(path);
  const uint32_t number = catalog.add_file(path, file->size());
  catalog.entries = read_safetensors_header(*file, number).entries;
  return catalog;
}

}  // namespace ferry
