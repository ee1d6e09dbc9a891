#include "ckpt/format/hugging_face/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_map>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/hugging_face/further_weights.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "ckpt/format/hugging_face/safetensors.h"
#include "ckpt/format/hugging_face/shards.h"
#include "ckpt/format/torch/torch_file.h"

namespace ferry {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr uint64_t kComparisonBytes = 8 << 20;
constexpr uint64_t kMaxIndexBytes = 100'000'000;  // as safetensors' headers

using WeightMap = std::vector<std::pair<std::string, std::string>>;

// What a folder's listing says about its weights.
struct Weights {
  HuggingFaceWeights kind = HuggingFaceWeights::safetensors;
  std::string index;               // file name; empty: none
  std::vector<std::string> files;  // names, where there is no index
  bool loose = false;              // files of no agreed name
};

// Those files like pytorch_model-00001-of-00003.bin that are there.
std::vector<std::string> unindexed_bins(const std::vector<std::string>& names) {
  std::vector<std::string> bins;
  for (const std::string& name : names) {
    const auto shard = shard_name(name, ".bin");
    if (shard && shard->front == "pytorch_model-") bins.push_back(name);
  }
  return bins;
}

Weights find_weights(const std::vector<std::string>& names) {
  using Kind = HuggingFaceWeights;
  constexpr const char* kIndexes[] = {"model.safetensors.index.json",
                                      "pytorch_model.bin.index.json"};
  constexpr const char* kFiles[] = {"model.safetensors", "pytorch_model.bin"};
  for (const Kind kind : {Kind::safetensors, Kind::torch_bin}) {
    const auto at = static_cast<size_t>(kind);
    if (has_name(names, kFiles[at])) return {kind, "", {kFiles[at]}};
    if (has_name(names, kIndexes[at])) return {kind, kIndexes[at], {}};
  }
  std::vector<std::string> loose = unindexed_weights(names);
  if (!loose.empty()) return {Kind::safetensors, "", std::move(loose), true};
  loose = unindexed_bins(names);
  const bool has_bins = !loose.empty();
  return {has_bins ? Kind::torch_bin : Kind::safetensors, "", std::move(loose), true};
}

// Files by which other programs, or older ones, know the weights.
bool holds_weights(const std::string& name) {
  constexpr std::string_view kBegins[] = {"pytorch_model", "consolidated", "tf_model", "flax_model",
                                          "rust_model"};
  constexpr std::string_view kEnds[] = {".bin", ".pth", ".pt", ".h5", ".msgpack", ".ot"};
  return std::any_of(std::begin(kBegins), std::end(kBegins),
                     [&](std::string_view begin) { return name.starts_with(begin); }) &&
         std::any_of(std::begin(kEnds), std::end(kEnds),
                     [&](std::string_view end) { return name.ends_with(end); });
}

void check_no_shard_missing(const std::vector<std::string>& files, const std::string& folder,
                            std::string_view end) {
  for (const auto& [shared, set] : shard_sets(files, end)) {
    if (set.missing.empty()) continue;
    fail(ErrorKind::not_found,
         "{}: {} of {} shards are missing, as the names of the others say: {}; complete the "
         "download or copy",
         folder, set.missing.size(), set.total, some_of(set.missing));
  }
}

std::string_view end_of(const Weights& weights) {
  return weights.kind == HuggingFaceWeights::torch_bin ? ".bin" : ".safetensors";
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
      if (weights.loose) check_no_shard_missing(weights.files, folder_, end_of(weights));
      open_files(weights.files);
    }
    note_other_weights(names);
    add_further_weights(folder_, names, model_);
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
          "model.safetensors.index.json is ignored because there is a model.safetensors, as in "
          "transformers");
    }
    if (weights.loose && weights.files.size() > 1) {
      model_.notes.push_back(fmt::format("there is no {}: all {} {} files are taken",
                                         weights.kind == HuggingFaceWeights::torch_bin
                                             ? "pytorch_model.bin.index.json"
                                             : "model.safetensors.index.json",
                                         weights.files.size(), end_of(weights)));
    }
  }

  // Which of them is the model's latest state, names do not say.
  void note_other_weights(const std::vector<std::string>& names) {
    std::set<std::string> opened;
    for (const FileInfo& file : model_.catalog.files) opened.insert(split_path(file.path).name);
    std::vector<std::string> others;
    for (const std::string& name : names) {
      if (holds_weights(name) && !opened.contains(name)) others.push_back(name);
    }
    if (others.empty() || opened.empty()) return;
    const bool one = others.size() == 1;
    model_.notes.push_back(
        fmt::format("the weights are read from {}; {}, which may be other weights, {} "
                    "not read, and convert leaves {} out",
                    some_of({opened.begin(), opened.end()}, 1), some_of(others), one ? "is" : "are",
                    one ? "it" : "them"));
  }

  // The shards that the index names. Where it is of another save, those that are there, if they
  // are all shards of one: transformers needs no more of an index than the names of files.
  void open_indexed(const Weights& weights, const std::vector<std::string>& names) {
    const std::string index = join(folder_, weights.index);
    const std::vector<std::string> own = whole_set(names, end_of(weights));
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
      open_files({files.begin(), files.end()}, map);
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

  void open_files(const std::vector<std::string>& files, const WeightMap& map = {}) {
    for (const std::string& file : files) {
      const std::string path = join_untrusted(folder_, file);
      if (model_.weights == HuggingFaceWeights::torch_bin) {
        add_torch_file(path);
      } else {
        add_safetensors(path);
      }
    }
    resolve_repeated(map);
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

  // A tensor that several files hold with the same values is taken from the one that `map` names,
  // or the first. Where values differ, programs take one or the other.
  void resolve_repeated(const WeightMap& map) {
    std::vector<Entry>& entries = model_.catalog.entries;
    std::unordered_map<std::string_view, size_t> seen;
    std::vector<std::pair<size_t, size_t>> repeated;
    seen.reserve(entries.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto [at, added] = seen.emplace(entries[i].name, i);
      if (!added) repeated.emplace_back(at->second, i);
    }
    if (repeated.empty()) return;
    std::unordered_map<std::string_view, std::string> named;
    for (const auto& [name, file] : map) named.emplace(name, join(folder_, file));
    std::vector<bool> dropped(entries.size());
    std::vector<std::string> names;
    for (const auto& [first, other] : repeated) {
      const Entry &a = entries[first], &b = entries[other];
      const auto by_index = named.find(a.name);
      if (!same_elements(model_.catalog, a, b, kComparisonBytes)) {
        fail(ErrorKind::corrupt,
             "tensor {} is in {} and in {} with other values ({} tensors are in more than one "
             "file); programs take one or the other; remove it from the file that is not the "
             "model's{}",
             a.name, path_of(a), path_of(b), repeated.size(),
             by_index == named.end() ? "" : "; the index names " + by_index->second);
      }
      names.push_back(a.name);
      const bool takes_other = by_index != named.end() && by_index->second == path_of(b);
      dropped[takes_other ? first : other] = true;
    }
    const bool one = names.size() == 1;
    model_.notes.push_back(
        fmt::format("{} tensor{} in more than one file, with the same values: {}", names.size(),
                    one ? " is" : "s are", some_of(names)));
    size_t position = 0;
    std::erase_if(entries, [&](const Entry&) { return dropped[position++]; });
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
    if (model_.damage.empty()) note_difference(index, moved, "places {} in the wrong shards");
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
