#include "ckpt/format/deepspeed/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/format/deepspeed/partitions.h"
#include "ckpt/format/deepspeed/universal.h"
#include "ckpt/format/deepspeed/zero_files.h"
#include "ckpt/format/torch/torch_file.h"

namespace ferry {
namespace {

constexpr std::string_view kMoments[] = {"exp_avg", "exp_avg_sq", "momentum_buffer"};
constexpr size_t kMostGroups = size_t{1} << 16;

// Members of a *_model_states.pt that are read otherwise, or are of no use without DeepSpeed.
constexpr std::string_view kReported[] = {
    "module",        "param_shapes",        "buffer_names",
    "shared_params", "frozen_param_shapes", "frozen_param_fragments",
    "optimizer"};

Value item_of(const Value& dict, int64_t number) {
  for (size_t i = 0; i < dict.pair_count(); ++i) {
    if (dict.pair_key(i).integer() == number) return dict.pair_value(i);
  }
  return {};
}

// What the ranks' *_optim_states.pt hold.
struct Partitions {
  int64_t stage = 0;
  FlatTensors masters;
  std::unordered_map<std::string, FlatTensors> moments;
  std::vector<std::vector<int64_t>> gaps;  // by group, after each parameter
};

class ZeroOpener {
 public:
  ZeroOpener(std::shared_ptr<const FileSystem> file_system, const std::string& folder)
      : folder_(folder) {
    result_.catalog.file_system = std::move(file_system);
  }

  RankedCheckpoint open() {
    Catalog& catalog = result_.catalog;
    const std::vector<std::string> names = catalog.file_system->list(folder_);
    files_ = find_zero_files(names, folder_);
    read_model();
    result_.writer = "DeepSpeed " + (model_.version.empty() ? "?" : model_.version);
    result_.steps = model_.steps;
    if (std::ranges::find(names, "zero") != names.end()) {
      add_universal_parameters(catalog, join(folder_, "zero"), model_.groups);
      read_universal_facts(join(folder_, "zero"));
      result_.writer += ", universal checkpoint";
    } else if (!files_.optimizer.empty()) {
      add_partitions();
    } else {
      add_weights();
    }
    add_shared();
    append(model_.buffers);
    for (const Entry& entry : catalog.entries) check_chunks(catalog, entry);
    EntryIndex index(catalog);  // no name twice
    add_objects();
    return std::move(result_);
  }

 private:
  TorchArchive read_archive(const std::string& name, uint32_t& number) {
    const auto file = result_.catalog.file_system->open(join(folder_, name));
    number = result_.catalog.add_file(file->path(), file->size());
    return read_torch_file(*file);
  }

  void read_model() {
    std::vector<TorchArchive> archives(1);
    std::vector<uint32_t> numbers(1);
    archives[0] = read_archive(files_.model[0], numbers[0]);
    const std::string what = join(folder_, files_.model[0]);
    model_ = read_zero_model(archives[0], numbers[0], what);
    model_file_ = numbers[0];
    if (model_.frozen.empty()) return;
    for (size_t rank = 1; rank < files_.model.size(); ++rank) {
      archives.push_back(read_archive(files_.model[rank], numbers.emplace_back()));
    }
    frozen_ = frozen_parameters(model_, archives, numbers, what);
  }

  void append(std::vector<Entry>& entries) {
    std::move(entries.begin(), entries.end(), std::back_inserter(result_.catalog.entries));
    entries.clear();
  }

  // Without the optimizer's files there are the weights that the model computes with.
  void add_weights() {
    if (files_.is_partitioned) {
      fail(ErrorKind::not_found,
           "{}: the *_optim_states.pt are missing, which hold the parameters of ZeRO stage 3; "
           "complete the copy",
           folder_);
    }
    if (model_.weights.empty()) {
      fail(ErrorKind::not_found, "{}: its model_states.pt holds no weights", folder_);
    }
    result_.notes.push_back(
        "there are no *_optim_states.pt: the weights are those that the model computes with, in "
        "its type, not the optimizer's fp32 parameters");
    append(model_.weights);
  }

  // What is not per parameter is in a file of its own, steps in one file each.
  void read_universal_facts(const std::string& zero) {
    const FileSystem& files = *result_.catalog.file_system;
    const std::string whole = join(zero, "optimizer_state.pt");
    if (files.status(whole).kind == PathKind::file) {
      const auto file = files.open(whole);
      result_.optimizer = read_optimizer_facts(read_torch_file(*file), *file);
    }
    if (result_.optimizer.steps || result_.catalog.entries.empty()) return;
    const std::string step = join(join(zero, result_.catalog.entries.front().name), "step.pt");
    if (files.status(step).kind != PathKind::file) return;
    const auto file = files.open(step);
    const TorchArchive archive = read_torch_file(*file);
    result_.optimizer.steps = read_count(archive, *file, archive.pickle->root());
  }

  FlatTensor flat(const TorchArchive& archive, uint32_t file, const Value& value,
                  const std::string& part) {
    return flat_tensor(archive, file, value,
                       fmt::format("{} of {}", part, result_.catalog.files[file].path));
  }

  void add_partitions() {
    Partitions parts;
    for (size_t rank = 0; rank < files_.optimizer.size(); ++rank) read_rank(rank, parts);
    steps_.check(folder_);
    result_.world_size = static_cast<int64_t>(files_.optimizer.size());
    result_.writer += fmt::format(", ZeRO stage {}", parts.stage);
    const std::string what = folder_;
    if (parts.masters[0].empty()) {
      fail(ErrorKind::corrupt, "{}: its ranks hold no fp32 parameters", folder_);
    }
    put_gaps(parts);
    std::vector<Entry> masters = join_all(parts, parts.masters, "");
    append(masters);
    append(frozen_);
    for (const std::string_view kind : kMoments) {
      const auto found = parts.moments.find(std::string(kind));
      if (found == parts.moments.end()) continue;
      if (found->second.size() != files_.optimizer.size()) {
        result_.optimizer_problem =
            fmt::format("not every rank holds {}: optimizer state is left out", kind);
        continue;
      }
      std::vector<Entry> entries =
          join_all(parts, found->second, fmt::format("optimizer.state.{}.", kind));
      append(entries);
    }
  }

  std::vector<Entry> join_all(const Partitions& parts, const FlatTensors& flats,
                              const std::string& prefix) const {
    const Role role = prefix.empty() ? Role::model : Role::optimizer;
    return parts.stage == 3
               ? join_parts(model_.groups, flats, prefix, role, folder_)
               : join_groups(model_.groups, flats, parts.masters, prefix, role, folder_);
  }

  void put_gaps(const Partitions& parts) {
    if (parts.stage != 3 && parts.masters[0].size() != model_.groups.size()) {
      fail(ErrorKind::corrupt, "{}: the ranks hold {} groups of parameters, the model has {}",
           folder_, parts.masters[0].size(), model_.groups.size());
    }
    for (size_t group = 0; group < parts.gaps.size() && parts.stage != 3; ++group) {
      if (group >= model_.groups.size() ||
          parts.gaps[group].size() != model_.groups[group].size()) {
        fail(ErrorKind::corrupt,
             "{}: param_alignment_paddings does not have one for each parameter", folder_);
      }
      for (size_t i = 0; i < parts.gaps[group].size(); ++i) {
        model_.groups[group][i].gap = parts.gaps[group][i];
      }
    }
  }

  void read_rank(size_t rank, Partitions& parts) {
    uint32_t file = 0;
    const TorchArchive archive = read_archive(files_.optimizer[rank], file);
    const auto opened = result_.catalog.file_system->open(join(folder_, files_.optimizer[rank]));
    OptimizerFacts facts = read_optimizer_facts(archive, *opened);
    steps_.add(files_.optimizer[rank], facts.steps);
    if (rank == 0) result_.optimizer = std::move(facts);
    const std::string path = join(folder_, files_.optimizer[rank]);
    const Value state = archive.pickle->root().get("optimizer_state_dict");
    const Value stage3 = state.get("fp32_flat_groups");
    const Value masters = stage3 ? stage3 : state.get("single_partition_of_fp32_groups");
    if (masters.kind() != ValueKind::list || masters.size() > kMostGroups) {
      fail(ErrorKind::corrupt,
           "{}: holds neither single_partition_of_fp32_groups nor fp32_flat_groups: it is not a "
           "ZeRO rank file",
           path);
    }
    check_count(state, path);
    const int64_t stage = stage3 ? 3 : state.get("zero_stage").integer().value_or(1);
    if (rank == 0) {
      parts.stage = stage;
      read_gaps(state.get("param_alignment_paddings"), parts);
    }
    auto& flats = parts.masters.emplace_back();
    for (size_t group = 0; group < masters.size(); ++group) {
      flats.push_back(flat(archive, file, masters[group], fmt::format("group {}", group)));
    }
    if (stage != parts.stage || flats.size() != parts.masters[0].size()) {
      fail(ErrorKind::corrupt, "{}: is from another save than the file of rank 0", path);
    }
    read_moments(archive, file,
                 stage3 ? state.get("optimizer_state_dict") : state.get("base_optimizer_state"),
                 flats.size(), parts);
  }

  void read_gaps(const Value& paddings, Partitions& parts) {
    for (size_t group = 0; group < paddings.size(); ++group) {
      auto& gaps = parts.gaps.emplace_back();
      for (size_t i = 0; i < paddings[group].size(); ++i) {
        const auto gap = paddings[group][i].integer();
        if (!gap || *gap < 0) {
          fail(ErrorKind::corrupt, "{}: param_alignment_paddings has a bad padding", folder_);
        }
        gaps.push_back(*gap);
      }
    }
  }

  // As many ranks as the save had; a number, or one for each group.
  void check_count(const Value& state, const std::string& path) const {
    const Value count = state.get("partition_count");
    int64_t ranks = count.integer().value_or(0);
    for (size_t i = 0; i < count.size(); ++i) {
      const int64_t each = count[i].integer().value_or(0);
      if (i > 0 && each != ranks) {
        fail(ErrorKind::unsupported,
             "{}: its groups are partitioned over different numbers of ranks, as those of expert "
             "parallelism are; DeepSpeed's ds_to_universal makes a universal checkpoint of it",
             path);
      }
      ranks = each;
    }
    const auto found = static_cast<int64_t>(files_.optimizer.size());
    if (ranks == 0 || ranks == found) return;
    fail(ranks > found ? ErrorKind::not_found : ErrorKind::invalid,
         "{}: {} ranks wrote the checkpoint, but there are {} *_optim_states.pt; {}", folder_,
         ranks, found,
         ranks > found ? "complete the copy" : "the folder mixes files of several saves");
  }

  // {"state": {group: {"exp_avg": flat, ...}}}, or of elastic checkpoints a list.
  void read_moments(const TorchArchive& archive, uint32_t file, const Value& base, size_t groups,
                    Partitions& parts) {
    const Value states = base.kind() == ValueKind::list ? base : base.get("state");
    for (const std::string_view kind : kMoments) {
      std::vector<FlatTensor> flats;
      for (size_t group = 0; group < groups; ++group) {
        const Value state = states.kind() == ValueKind::list
                                ? states[group]
                                : item_of(states, static_cast<int64_t>(group));
        const Value moment = state.get(kind);
        if (moment.tensor() == nullptr) break;
        flats.push_back(flat(archive, file, moment, fmt::format("{} of group {}", kind, group)));
      }
      if (flats.size() == groups) parts.moments[std::string(kind)].push_back(std::move(flats));
    }
  }

  // One tensor under two names.
  void add_shared() {
    auto& entries = result_.catalog.entries;
    for (const auto& [name, of] : model_.shared) {
      const auto at =
          std::ranges::find_if(entries, [&](const Entry& entry) { return entry.name == of; });
      const bool there =
          std::ranges::any_of(entries, [&](const Entry& entry) { return entry.name == name; });
      if (at == entries.end() || there) continue;
      Entry copy = *at;
      copy.name = name;
      entries.push_back(std::move(copy));
    }
  }

  void add_objects() {
    const std::string path = result_.catalog.files[model_file_].path;
    Catalog all = open_torch_file(result_.catalog.file_system, path);
    for (Object& object : all.objects) {
      const std::string member = object.path.empty() ? std::string() : object.path.front();
      if (std::ranges::find(kReported, member) != std::end(kReported) || member.empty()) continue;
      object.extent.file = model_file_;
      result_.catalog.objects.push_back(std::move(object));
    }
  }

  const std::string& folder_;
  RankedCheckpoint result_;
  ZeroFiles files_;
  ZeroModel model_;
  uint32_t model_file_ = 0;
  StepsOfRanks steps_;
  std::vector<Entry> frozen_;
};

}  // namespace

bool is_deepspeed_folder(const FileSystem& file_system, const std::string& folder) {
  const std::vector<std::string> names = file_system.list(folder);
  return std::ranges::any_of(names, is_zero_file);
}

RankedCheckpoint open_deepspeed(std::shared_ptr<const FileSystem> file_system,
                                const std::string& folder) {
  return ZeroOpener(std::move(file_system), folder).open();
}

}  // namespace ferry
