#include "ckpt/format/hugging_face/further_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/safetensors.h"

namespace ferry {
namespace {

constexpr uint64_t kMostIndexBytes = 100'000'000;
constexpr std::string_view kSafetensorsEnd = ".safetensors";
constexpr std::string_view kIndexEnd = ".safetensors.index.json";
constexpr std::string_view kOwnIndex = "model.safetensors.index.json";
constexpr std::string_view kOtherForm = "consolidated";  // Mistral's name for it
constexpr std::string_view kOptimizers[] = {"exp_avg", "momentum_buffer", "optimizer.state."};
constexpr double kSameModel = 0.9;  // part of its elements that has the same shapes

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

// {"model", "00003"} of "model-00001-of-00003.safetensors"; {"mtp", ""} of "mtp.safetensors".
using SeriesName = std::pair<std::string, std::string>;

SeriesName series_of(const std::string& file) {
  const std::string stem = file.substr(0, file.size() - kSafetensorsEnd.size());
  const size_t of = stem.rfind("-of-");
  const size_t dash = of == std::string::npos || of == 0 ? of : stem.rfind('-', of - 1);
  if (dash == std::string::npos) return {stem, ""};
  const bool numbered =
      is_number(stem.substr(of + 4)) && is_number(stem.substr(dash + 1, of - dash - 1));
  if (!numbered) return {stem, ""};
  return {stem.substr(0, dash), stem.substr(of + 4)};
}

// "model.layers.#.mlp.up_proj.weight": a name with the numbers of layers and experts taken out.
std::string pattern_of(std::string_view name) {
  std::string pattern;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    pattern += is_number(part) ? std::string_view("#") : part;
    pattern += '.';
    begin = end + 1;
  }
  return pattern;
}

std::string_view module_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

std::string count(size_t tensors) {
  return fmt::format("{} tensor{}", tensors, tensors == 1 ? "" : "s");
}

// What the model's own tensors say about others.
class Own {
 public:
  explicit Own(const Catalog& catalog) {
    for (const Entry& entry : catalog.entries) {
      patterns_.insert(pattern_of(entry.name));
      Module& module = modules_[std::string(module_of(entry.name))];
      module.bytes += static_cast<double>(entry.bytes());
      module.is_float |= is_floating_point(entry.dtype) && size_bytes(entry.dtype) > 1;
      if (entry.shape.size() < 2) continue;
      ++shapes_[sorted(entry.shape)];
      elements_ += static_cast<double>(entry.elements());
    }
  }

  /// Tensors of most of the model's modules that stand in for its own (packed ones for its floats,
  /// or floats for its packed ones) rather than complete them, as scales do.
  bool is_other_form(const std::vector<Entry>& entries) const {
    std::set<std::string_view> shared;
    size_t floats = 0;
    double own = 0, other = 0;
    for (const Entry& entry : entries) {
      const auto found = modules_.find(module_of(entry.name));
      if (found == modules_.end()) continue;
      other += static_cast<double>(entry.bytes());
      if (!shared.insert(found->first).second) continue;
      own += found->second.bytes;
      floats += found->second.is_float;
    }
    return 2 * shared.size() >= modules_.size() && (2 * floats > shared.size() || other >= own);
  }

  /// As many tensors of the same shapes, under names of another kind.
  bool is_renamed(const std::vector<Entry>& entries) const {
    std::map<Dims, int64_t> left = shapes_;
    double same = 0;
    for (const Entry& entry : entries) {
      if (patterns_.contains(pattern_of(entry.name))) return false;
      if (entry.shape.size() < 2) continue;
      const auto found = left.find(sorted(entry.shape));
      if (found == left.end() || found->second-- <= 0) continue;
      same += static_cast<double>(entry.elements());
    }
    return elements_ > 0 && same >= kSameModel * elements_;
  }

 private:
  struct Module {
    double bytes = 0;
    bool is_float = false;
  };

  static Dims sorted(Dims shape) {
    std::sort(shape.begin(), shape.end());
    return shape;
  }

  std::set<std::string> patterns_;
  std::map<std::string, Module, std::less<>> modules_;
  std::map<Dims, int64_t> shapes_;
  double elements_ = 0;
};

struct FurtherFile {
  std::string name;
  uint64_t bytes = 0;
  std::vector<Entry> entries;
};

// Files that belong together by their names.
using Series = std::vector<FurtherFile>;

std::vector<std::string> other_indexes(const std::vector<std::string>& names) {
  std::vector<std::string> others;
  for (const std::string& name : names) {
    if (name.ends_with(kIndexEnd) && name != kOwnIndex) others.push_back(name);
  }
  return others;
}

class Adder {
 public:
  Adder(const std::string& folder, HuggingFaceModel& model)
      : folder_(folder), model_(model), files_(*model.catalog.file_system), own_(model.catalog) {
    for (const FileInfo& file : model.catalog.files) {
      const std::string name = split_path(file.path).name;
      if (name.ends_with(kSafetensorsEnd)) own_series_.insert(series_of(name));
    }
    for (const Entry& entry : model.catalog.entries) {
      holders_.emplace(entry.name, file_of(entry));
    }
  }

  void run(const std::vector<std::string>& names, const std::vector<std::string>& indexes) {
    std::map<SeriesName, Series> all;
    const std::set<std::string> indexed = named_by(indexes);
    for (const std::string& name : names) {
      if (model_.weights == HuggingFaceWeights::torch_bin) {
        leave(name, "the model is read from pytorch_model.bin, which has no other part");
      } else if (name.starts_with(kOtherForm) || indexed.contains(name)) {
        leave(name, "the model in another form");
      } else if (auto file = open(name)) {
        all[series_of(name)].push_back(std::move(*file));
      }
    }
    for (auto& [name, series] : all) add(name, series);
  }

 private:
  std::string file_of(const Entry& entry) const {
    return split_path(model_.catalog.files.at(entry.chunks.at(0).extent.file).path).name;
  }

  std::set<std::string> named_by(const std::vector<std::string>& indexes) const {
    std::set<std::string> named;
    for (const std::string& index : indexes) {
      const std::string path = join(folder_, index);
      try {
        for (const auto& [tensor, file] :
             parse_weight_map(read_file(files_, path, kMostIndexBytes), path)) {
          named.insert(file);
        }
      } catch (const Error&) {  // then its files are judged by their tensors
      }
    }
    return named;
  }

  std::optional<FurtherFile> open(const std::string& name) {
    const std::string path = join(folder_, name);
    try {
      const auto file = files_.open(path);
      return FurtherFile{name, file->size(), read_safetensors_header(*file, 0).entries};
    } catch (const Error& error) {
      model_.damage.push_back(fmt::format(
          "{} (not one of the files that the model is read from, and left out)", error.what()));
      return std::nullopt;
    }
  }

  void leave(const std::string& file, std::string_view why) {
    model_.notes.push_back(fmt::format("{} is left out: {}", file, why));
  }

  // Why a series is not part of the model; empty where it is one.
  std::string objection(const SeriesName& name, const Series& series) const {
    std::vector<Entry> entries;
    for (const FurtherFile& file : series) {
      entries.insert(entries.end(), file.entries.begin(), file.entries.end());
    }
    const auto any = [&](auto has) { return std::any_of(entries.begin(), entries.end(), has); };
    const bool adapts = any([](const Entry& entry) {
      return entry.name.find(".lora_") != std::string::npos ||
             entry.name.starts_with("base_model.model.");
    });
    if (adapts || name.first.starts_with("adapter_")) return "an adapter, not weights of the model";
    const bool optimizes = any([](const Entry& entry) {
      return std::any_of(
          std::begin(kOptimizers), std::end(kOptimizers),
          [&](std::string_view part) { return entry.name.find(part) != std::string::npos; });
    });
    if (optimizes || name.first.starts_with("optimizer")) return "state of an optimizer";
    const bool again = !any([&](const Entry& entry) { return !holders_.contains(entry.name); });
    if (again) return "it holds tensors that the model already has";
    const bool is_shard = !name.second.empty() && !own_series_.contains(name);
    const bool named_alike =
        std::any_of(own_series_.begin(), own_series_.end(),
                    [&](const SeriesName& own) { return own.first == name.first; });
    if (is_shard && named_alike) return "a shard of another save";
    if (own_.is_other_form(entries) || own_.is_renamed(entries)) return "the model in another form";
    return {};
  }

  void add(const SeriesName& name, Series& series) {
    const std::string why = objection(name, series);
    for (FurtherFile& file : series) {
      if (why.empty()) {
        add(file);
      } else {
        leave(file.name, why);
      }
    }
  }

  void add(FurtherFile& file) {
    const uint32_t number = model_.catalog.add_file(join(folder_, file.name), file.bytes);
    std::vector<std::string> again;
    size_t added = 0;
    for (Entry& entry : file.entries) {
      const auto [holder, is_new] = holders_.emplace(entry.name, file.name);
      if (!is_new) {
        again.push_back(fmt::format("{} (in {})", entry.name, holder->second));
        continue;
      }
      for (Chunk& chunk : entry.chunks) chunk.extent.file = number;
      model_.catalog.entries.push_back(std::move(entry));
      ++added;
    }
    if (added > 0) {
      model_.notes.push_back(fmt::format(
          "{} is taken as a part of the model ({}), though transformers does not read it",
          file.name, count(added)));
    }
    if (again.empty()) return;
    model_.notes.push_back(fmt::format(
        "{} of {} {} left out, as the model has them already: {}{}", count(again.size()), file.name,
        again.size() == 1 ? "is" : "are", again.front(), again.size() > 1 ? ", ..." : ""));
  }

  const std::string& folder_;
  HuggingFaceModel& model_;
  const FileSystem& files_;
  Own own_;
  std::set<SeriesName> own_series_;
  std::unordered_map<std::string, std::string> holders_;  // tensor -> file
};

}  // namespace

std::vector<std::string> unindexed_weights(const std::vector<std::string>& names) {
  std::vector<std::string> all, own;
  for (const std::string& name : names) {
    if (!name.ends_with(kSafetensorsEnd) || name.starts_with('.')) continue;
    all.push_back(name);
    if (!name.starts_with(kOtherForm) && !name.starts_with("adapter_")) own.push_back(name);
  }
  return own.empty() ? all : own;
}

void add_further_weights(const std::string& folder, const std::vector<std::string>& names,
                         HuggingFaceModel& model) {
  std::set<std::string> opened;
  for (const FileInfo& file : model.catalog.files) opened.insert(split_path(file.path).name);
  std::vector<std::string> further;
  for (const std::string& name : names) {
    const bool is_file =
        name.ends_with(kSafetensorsEnd) && !name.starts_with('.') &&
        model.catalog.file_system->status(join(folder, name)).kind == PathKind::file;
    if (is_file && !opened.contains(name)) further.push_back(name);
  }
  if (!further.empty()) Adder(folder, model).run(further, other_indexes(names));
}

}  // namespace ferry
