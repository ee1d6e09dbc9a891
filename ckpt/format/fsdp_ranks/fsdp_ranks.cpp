#include "ckpt/format/fsdp_ranks/fsdp_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/format/fsdp_ranks/dtensor.h"
#include "ckpt/format/torch/torch_file.h"

namespace ferry {
namespace {

constexpr std::string_view kModel = "model", kOptimizer = "optim", kExtra = "extra_state";
constexpr std::string_view kAccelerate = "pytorch_model_fsdp";
constexpr int64_t kMostRanks = 1 << 20;
constexpr int kMostRankDepth = 16;
constexpr size_t kMostRankNames = size_t{1} << 22;

struct RankFile {
  int64_t world_size = 0, rank = 0;  // 0 ranks: not in the name
  std::string name;
  int64_t model = 0;  // of several
};

// "model_world_size_8_rank_3.pt", or as Accelerate calls it
std::optional<RankFile> parse_name(const std::string& name, std::string_view kind) {
  RankFile file{0, 0, name, 0};
  std::string_view rest = name;
  const auto skip = [&](std::string_view text) {
    const bool is = rest.starts_with(text);
    if (is) rest.remove_prefix(text.size());
    return is;
  };
  const auto number = [&](int64_t& value) {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc() || value < 0 || value > kMostRanks) return false;
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    return true;
  };
  if (kind == kModel && skip(kAccelerate)) {  // pytorch_model_fsdp_0_rank3.bin, ..._fsdp_rank3.bin
    int64_t model = 0;
    const bool fits = (skip("_rank") || (skip("_") && number(model) && skip("_rank"))) &&
                      number(file.rank) && rest == ".bin" && file.rank < kMostRanks;
    file.model = model;
    return fits ? std::optional(std::move(file)) : std::nullopt;
  }
  const bool fits = skip(kind) && skip("_world_size_") && number(file.world_size) &&
                    skip("_rank_") && number(file.rank) && rest == ".pt" &&
                    file.rank < file.world_size;
  return fits ? std::optional(std::move(file)) : std::nullopt;
}

// The files of one kind, by rank. Names are sorted, ranks are not.
std::vector<RankFile> rank_files(const std::vector<std::string>& names, std::string_view kind) {
  std::vector<RankFile> files;
  for (const std::string& name : names) {
    if (auto file = parse_name(name, kind)) files.push_back(*std::move(file));
  }
  std::sort(files.begin(), files.end(),
            [](const RankFile& a, const RankFile& b) { return a.rank < b.rank; });
  // As many as there are, where names do not say: gaps show, and parts that nobody holds.
  const int64_t ranks = files.empty() ? 0 : files.back().rank + 1;
  for (RankFile& file : files) file.world_size = file.world_size == 0 ? ranks : file.world_size;
  return files;
}

class Joiner {
 public:
  Joiner(Catalog& catalog, const std::string& folder) : catalog_(catalog), folder_(folder) {}

  /// Takes what `take` finds in the value of each file.
  using Take = std::function<void(const Value& root, Joiner& joiner)>;
  void read(const std::vector<RankFile>& files, const Take& take, OptimizerFacts* facts = nullptr,
            StepsOfRanks* steps = nullptr) {
    for (const RankFile& rank : files) {
      const auto file = catalog_.file_system->open(join(folder_, rank.name));
      const TorchArchive archive = read_torch_file(*file);
      if (facts != nullptr) {
        OptimizerFacts found = read_optimizer_facts(archive, *file);
        steps->add(rank.name, found.steps);
        if (ranks_read_ == 0) *facts = std::move(found);
      }
      file_ = catalog_.add_file(file->path(), file->size());
      archive_ = &archive;
      names_ = 0;
      world_size_ = rank.world_size;
      take(archive.pickle->root(), *this);
      ++ranks_read_;
    }
  }

  /// Every tensor of nested dicts, its name the keys joined by '.'.
  void add_all(const Value& value, const std::string& name, Role role, int depth = 0) {
    if (++names_ > kMostRankNames || depth > kMostRankDepth) {
      fail(ErrorKind::exhausted, "{}: its structure has more names than any checkpoint", path());
    }
    if (value.kind() == ValueKind::dict) {
      for (size_t i = 0; i < value.pair_count(); ++i) {
        const std::string key = key_text(value.pair_key(i));
        add_all(value.pair_value(i), name.empty() ? key : name + "." + key, role, depth + 1);
      }
      return;
    }
    add(value, name, role);
  }

  void add(const Value& value, const std::string& name, Role role) {
    const std::string what = fmt::format("tensor {} of {}", name, path());
    if (const auto part = read_dtensor(value, what)) {
      if (part->local == nullptr) return;
      if (part->copy) {
        entry_of(name, part->local->dtype, part->shape, role, what);
        return;
      }
      Chunk chunk = stored_chunk(*archive_, *part->local, file_, what);
      chunk.box = part->box;
      Entry& entry = entry_of(name, part->local->dtype, part->shape, role, what);
      if (element_count(part->box.size, what) == 0) return;
      // For a mesh of some of the ranks: FSDP next to tensor parallelism, which leaves embeddings
      // and norms alone.
      const bool in_part = part->mesh_ranks > 0 && part->mesh_ranks < world_size_;
      const bool held = in_part && std::ranges::any_of(entry.chunks, [&](const Chunk& other) {
                          return other.box == chunk.box;
                        });
      if (!held) entry.chunks.push_back(std::move(chunk));
    } else if (const StoredTensor* tensor = value.tensor()) {
      Entry& entry = entry_of(name, tensor->dtype, tensor->shape, role, what);
      if (!entry.chunks.empty()) return;  // the same on every rank
      entry.chunks.push_back(stored_chunk(*archive_, *tensor, file_, what));
      ++replicated_;
    }
  }

  int64_t replicated() const { return replicated_; }

 private:
  const std::string& path() const { return catalog_.files[file_].path; }

  Entry& entry_of(const std::string& name, DType dtype, const Dims& shape, Role role,
                  const std::string& what) {
    const auto [at, added] = positions_.emplace(name, catalog_.entries.size());
    if (added) {
      catalog_.entries.push_back({name, dtype, shape, {}, role});
      return catalog_.entries.back();
    }
    Entry& entry = catalog_.entries[at->second];
    if (entry.dtype != dtype || entry.shape != shape) {
      fail(ErrorKind::corrupt,
           "{}: is {} {}, and {} {} on the ranks before; they are from different saves", what,
           torch_name(dtype), to_string(shape), torch_name(entry.dtype), to_string(entry.shape));
    }
    return entry;
  }

  Catalog& catalog_;
  const std::string& folder_;
  const TorchArchive* archive_ = nullptr;
  uint32_t file_ = 0;
  size_t names_ = 0;
  int64_t world_size_ = 0, ranks_read_ = 0, replicated_ = 0;
  std::unordered_map<std::string, size_t> positions_;
};

std::vector<int64_t> missing_ranks(const std::vector<RankFile>& files) {
  std::vector<int64_t> missing;
  size_t at = 0;
  for (int64_t rank = 0; rank < files.front().world_size && missing.size() < 1000; ++rank) {
    while (at < files.size() && files[at].rank < rank) ++at;
    if (at == files.size() || files[at].rank != rank) missing.push_back(rank);
  }
  return missing;
}

void check_complete(const Catalog& catalog, const std::vector<RankFile>& files,
                    const std::string& folder) {
  const std::vector<int64_t> missing = missing_ranks(files);
  for (const Entry& entry : catalog.entries) {
    int64_t covered = 0;
    for (const Chunk& chunk : entry.chunks) covered += chunk.elements(entry.name);
    if (missing.empty() && covered < entry.elements() && files.front().name.ends_with(".bin")) {
      fail(
          ErrorKind::not_found,
          "{}: no file of the {} ranks holds all of tensor {}: those of further ranks are missing; "
          "complete the copy",
          folder, files.size(), entry.name);
    }
    if (!missing.empty() && covered < entry.elements()) {
      fail(ErrorKind::not_found,
           "{}: the files of rank {} of {} are missing, and parts of tensor {} with them; complete "
           "the copy",
           folder, fmt::join(missing, ", "), files.front().world_size, entry.name);
    }
    check_chunks(catalog, entry);
  }
}

// Parameters have numbers in PyTorch's own state, in the order of the model.
class OptimizerState {
 public:
  explicit OptimizerState(const Catalog& model) {
    // Tied parameters count once: they are one tensor in the files, too.
    std::set<std::pair<uint32_t, uint64_t>> seen;
    for (const Entry& entry : model.entries) {
      const Chunk* first = entry.chunks.empty() ? nullptr : &entry.chunks.front();
      if (first && !seen.emplace(first->extent.file, first->extent.offset).second) continue;
      parameters_.push_back(&entry);
    }
  }

  // The name of what `key` numbers or names; nothing when its state is of another shape.
  std::optional<std::string> parameter(const Value& key, const Value& state) const {
    const Dims* shape = nullptr;
    Dims found;
    if (const auto part = read_dtensor(state.get("exp_avg"), "exp_avg")) {
      found = part->shape;
      shape = &found;
    } else if (const StoredTensor* tensor = state.get("exp_avg").tensor()) {
      shape = &tensor->shape;
    }
    const Entry* entry = nullptr;
    if (const auto number = key.integer()) {
      if (*number < 0 || static_cast<size_t>(*number) >= parameters_.size()) return std::nullopt;
      entry = parameters_[static_cast<size_t>(*number)];
    } else if (const auto name = key.string()) {
      const auto at = std::find_if(parameters_.begin(), parameters_.end(),
                                   [&](const Entry* each) { return each->name == *name; });
      if (at != parameters_.end()) entry = *at;
    }
    if (entry == nullptr || (shape != nullptr && *shape != entry->shape)) return std::nullopt;
    return entry->name;
  }

 private:
  std::vector<const Entry*> parameters_;
};

void read_optimizer(const std::vector<RankFile>& files, const std::string& folder,
                    RankedCheckpoint& ranks, StepsOfRanks& steps) {
  Catalog model = ranks.catalog;  // what the numbers count; entries are added to the other
  const OptimizerState parameters(model);
  Catalog all = ranks.catalog;
  Joiner joiner(all, folder);
  const auto take = [&](const Value& root, Joiner& into) {
    const Value state = root.get("state");
    for (size_t i = 0; i < state.pair_count(); ++i) {
      const Value of = state.pair_value(i);
      const auto name = parameters.parameter(state.pair_key(i), of);
      if (!name) {
        fail(ErrorKind::mismatch, "the state of parameter {} has another shape than the model's",
             key_text(state.pair_key(i)));
      }
      for (size_t k = 0; k < of.pair_count(); ++k) {
        const std::string kind = key_text(of.pair_key(k));
        into.add(of.pair_value(k), "optimizer.state." + kind + "." + *name, Role::optimizer);
      }
    }
  };
  joiner.read(files, take, &ranks.optimizer, &steps);
  for (size_t i = model.entries.size(); i < all.entries.size(); ++i) {
    check_chunks(all, all.entries[i]);
  }
  ranks.catalog = std::move(all);
}

// verl's: the schedule of learning rates counts steps, too, also where no optimizer is saved.
void check_schedules(const FileSystem& files, const std::string& folder,
                     const std::vector<std::string>& names) {
  StepsOfRanks steps;
  for (const RankFile& rank : rank_files(names, kExtra)) {
    try {
      const auto file = files.open(join(folder, rank.name));
      const TorchArchive archive = read_torch_file(*file);
      const Value schedule = archive.pickle->root().get("lr_scheduler");
      steps.add(rank.name, read_count(archive, *file, schedule.get("last_epoch")));
    } catch (const Error& error) {  // nothing of the model is in it
      if (error.kind() == ErrorKind::cancelled) throw;
    }
  }
  steps.check(folder);
}

}  // namespace

bool is_fsdp_folder(const FileSystem& file_system, const std::string& folder) {
  const std::vector<std::string> names = file_system.list(folder);
  return std::ranges::any_of(
      names, [](const std::string& name) { return parse_name(name, kModel).has_value(); });
}

RankedCheckpoint open_fsdp_ranks(std::shared_ptr<const FileSystem> file_system,
                                 const std::string& folder) {
  const std::vector<std::string> names = file_system->list(folder);
  const std::vector<RankFile> files = rank_files(names, kModel);
  if (files.empty()) fail(ErrorKind::not_found, "{}: holds no model_world_size_*.pt", folder);
  RankedCheckpoint result;
  result.world_size = files.front().world_size;
  result.writer = fmt::format("{} ranks of PyTorch FSDP", result.world_size);
  for (const RankFile& file : files) {
    if (file.model != files.front().model) {
      fail(ErrorKind::invalid,
           "{}: holds the ranks' files of several models ({}, {}); move those of one into a folder "
           "of their own",
           folder, files.front().name, file.name);
    }
    if (file.world_size == result.world_size) continue;
    fail(ErrorKind::invalid,
         "{}: holds files of {} and of {} ranks, which are different saves; move one of them away",
         folder, result.world_size, file.world_size);
  }
  result.catalog.file_system = std::move(file_system);
  Joiner joiner(result.catalog, folder);
  joiner.read(files, [](const Value& root, Joiner& into) { into.add_all(root, {}, Role::model); });
  check_complete(result.catalog, files, folder);
  if (result.catalog.entries.empty()) {
    fail(ErrorKind::corrupt, "{}: its files hold no tensor", folder);
  }
  const auto flat = std::ranges::find_if(result.catalog.entries, [](const Entry& entry) {
    return entry.name.ends_with("flat_param");
  });
  if (flat != result.catalog.entries.end()) {
    result.notes.push_back(fmt::format(
        "{} holds several parameters that FSDP flattened into one, and nothing here says which: it "
        "cannot be converted; load it with the program that saved it, and save with "
        "StateDictType.SHARDED_STATE_DICT or FULL_STATE_DICT",
        flat->name));
  }
  check_schedules(*result.catalog.file_system, folder, names);
  const std::vector<RankFile> optimizer = rank_files(names, kOptimizer);
  if (optimizer.empty()) return result;
  StepsOfRanks steps;
  try {
    read_optimizer(optimizer, folder, result, steps);
  } catch (const Error& error) {
    result.optimizer_problem = fmt::format("the optimizer's state is left out: {}", error.what());
  }
  steps.check(folder);
  return result;
}

}  // namespace ferry
