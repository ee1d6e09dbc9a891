#include "ckpt/megatron/rank_folders/layer_wise.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/rank_folders/optimizer.h"
#include "ckpt/megatron/rank_folders/parameter_kind.h"

namespace ferry {
namespace {

using Members = std::vector<const LegacyTensor*>;

constexpr int64_t kMostFiles = int64_t{1} << 20;

bool is_expert(const LegacyTensor& tensor) { return tensor.parts.front().parameter.routed_expert; }

size_t folder_of(const std::vector<RankFolder>& folders, const RankCoordinates& rank,
                 const RunArguments& run) {
  const auto at = std::ranges::find_if(folders, [&](const RankFolder& folder) {
    return folder.rank.tensor == rank.tensor && folder.rank.stage == rank.stage &&
           (run.expert == 1 || folder.rank.expert == rank.expert);
  });
  return static_cast<size_t>(at - folders.begin());
}

// One data rank's file against the model.
class RankFile {
 public:
  RankFile(const LayerWiseFile& file, std::string path, std::vector<PlainOptimizer> optimizers,
           const RankFolder& folder, const std::vector<LegacyChunk>& chunks,
           const RunArguments& run)
      : file_(file),
        path_(std::move(path)),
        optimizers_(std::move(optimizers)),
        folder_(folder),
        run_(run) {
    sort_into_groups(chunks);
    find_owners();
  }

  void add(int64_t heads, OptimizerEntries& entries) const {
    size_t next = 0;  // among all groups' members
    for (const GroupOfFile& group : groups_) {
      Members own;
      for (const LegacyTensor* tensor : group.members) {
        if (owns(owners_[next++], *tensor)) own.push_back(tensor);
      }
      check(group, own);
      const auto gives = [&](const LegacyTensor& tensor) { return this->gives(tensor); };
      add_parameter_group(*group.stored, own, gives, path_, heads, entries);
    }
  }

 private:
  struct GroupOfFile {
    const PlainOptimizer::Group* stored = nullptr;
    ParameterKind kind;
    std::string words;  // for messages
    // On all data ranks: in order of registration, and where they are spread by rising size, in
    // which order they are given to the ranks.
    Members members;
  };

  void sort_into_groups(const std::vector<LegacyChunk>& chunks) {
    bool separate = false, decoupled = false;
    for (size_t i = 0; i < optimizers_.size(); ++i) {
      for (size_t g = 0; g < optimizers_[i].groups.size(); ++g) {
        const PlainOptimizer::Group& stored = optimizers_[i].groups[g];
        const bool matrices = i == 0 || has_momentum(stored.settings);
        const ParameterKind kind = kind_of_group(stored.settings, run_, matrices);
        separate |= kind.routed;
        decoupled |= kind.decoupled;
        groups_.push_back({&stored, kind, fmt::format("group {} of optimizer {}", g, i), {}});
      }
    }
    for (const LegacyChunk& chunk : chunks) {
      for (const LegacyTensor& tensor : chunk) {
        if (tensor.trainable()) put_into_group(tensor, separate, decoupled);
      }
    }
  }

  void put_into_group(const LegacyTensor& tensor, bool separate, bool decoupled) {
    const std::string& name = tensor.parts.front().view.name;
    const size_t axes = tensor.stored->shape.size();
    ParameterKind kind =
        parameter_kind(name, axes, run_.decays_qk_norms, separate && is_expert(tensor), decoupled);
    kind.matrix = is_matrix_parameter(name, axes);
    const auto at = std::ranges::find(groups_, kind, &GroupOfFile::kind);
    if (at == groups_.end()) {
      fail(ErrorKind::mismatch, "{}: none of {} parameter groups is for {}", path_, groups_.size(),
           name);
    }
    at->members.push_back(&tensor);
  }

  void find_owners() {
    const auto elements = [](const LegacyTensor* tensor) {
      return element_count(tensor->stored->shape, tensor->stored->name);
    };
    std::vector<SpreadParameter> parameters;
    for (GroupOfFile& group : groups_) {
      if (file_.data_ranks > 1) std::ranges::stable_sort(group.members, {}, elements);
      for (const LegacyTensor* tensor : group.members) {
        parameters.push_back({elements(tensor), group.kind.routed});
      }
    }
    owners_ = owners_to_and_fro(parameters, file_.data_ranks, file_.expert_data_ranks);
    routed_ =
        std::ranges::any_of(groups_, [](const GroupOfFile& group) { return group.kind.routed; });
  }

  // Where one rank has all dense parameters none is spread.
  bool owns(int64_t owner, const LegacyTensor& tensor) const {
    if (file_.data_ranks == 1) return true;
    return owner == (routed_ && is_expert(tensor) ? file_.expert_data : file_.data);
  }
  bool gives(const LegacyTensor& tensor) const {
    if (file_.data_ranks > 1) return true;
    return is_expert(tensor) ? folder_.gives_experts : folder_.gives_dense;
  }

  void check(const GroupOfFile& group, const Members& own) const {
    const auto& stored = group.stored->parameters;
    if (stored.size() != own.size()) {
      fail(ErrorKind::mismatch,
           "{}: {} has {} parameters, {} of the model's are expected on data rank {} of {}", path_,
           group.words, stored.size(), own.size(), file_.data, file_.data_ranks);
    }
    for (size_t i = 0; i < own.size(); ++i) {
      if (stored[i].states.empty()) {
        fail(ErrorKind::mismatch, "{}: {} has no state of {}", path_, group.words,
             own[i]->stored->name);
      }
      for (size_t j = 0; j < stored[i].states.size(); ++j) {
        const auto& [state, tensor] = stored[i].states[j];
        if (tensor.shape != own[i]->stored->shape) {
          fail(ErrorKind::mismatch, "{}: {} of parameter {} of {} has shape {}, {} of {} expected",
               path_, state, i, group.words, to_string(tensor.shape),
               to_string(own[i]->stored->shape), own[i]->stored->name);
        }
        if (stored[i].states.size() != stored[0].states.size() ||
            state != stored[0].states[j].first) {
          fail(ErrorKind::mismatch, "{}: parameters {} and {} of {} have different kinds of state",
               path_, 0, i, group.words);
        }
      }
    }
  }

  const LayerWiseFile& file_;
  const std::string path_;
  const std::vector<PlainOptimizer> optimizers_;
  const RankFolder& folder_;
  const RunArguments& run_;
  std::vector<GroupOfFile> groups_;
  std::vector<int64_t> owners_;
  bool routed_ = false;
};

}  // namespace

void add_state_of_matrices(const std::vector<RankFolder>& folders,
                           const std::vector<LegacyRank>& ranks, const LegacyModel& model,
                           const RunArguments& run, int64_t heads, OptimizerEntries& entries) {
  for (size_t i = 0; i < folders.size(); ++i) {
    LayerWiseFile all;
    all.folder = i;
    RankFile(all, folders[i].name, ranks[i].plain, folders[i], model.ranks[i], run)
        .add(heads, entries);
  }
}

std::vector<LayerWiseFile> layer_wise_files(const RunArguments& run,
                                            const std::vector<RankFolder>& folders) {
  const RankGroups dense(run, false), experts(run, true);
  if (run.context > 1) {
    fail(ErrorKind::unsupported,
         "with {} context-parallel ranks several ranks with different parts of a layer-wise "
         "optimizer write the same layer_wise_optimizer_*.pt: a part of its state is lost",
         run.context);
  }
  const int64_t ranks = std::max<int64_t>(dense.data_ranks(), 1);
  if (ranks > kMostFiles || run.tensor * run.pipeline > kMostFiles / ranks) {
    fail(ErrorKind::mismatch, "{} data x {} tensor x {} pipeline ranks are too many", ranks,
         run.tensor, run.pipeline);
  }
  if (run.world_size == 0) {
    fail(ErrorKind::unsupported,
         "the arguments (world_size) do not say over how many data ranks the layer-wise "
         "optimizer's state is spread");
  }
  std::vector<LayerWiseFile> files;
  for (int64_t stage = 0; stage < run.pipeline; ++stage) {
    for (int64_t tensor = 0; tensor < run.tensor; ++tensor) {
      for (int64_t data = 0; data < ranks; ++data) {
        LayerWiseFile file;
        file.rank = dense.global_rank(stage, tensor, data);
        const RankGroups::Place place = experts.place_of(file.rank);
        RankCoordinates rank = experts.rank(stage, place.number);
        rank.tensor = tensor;
        file.folder = folder_of(folders, rank, run);
        if (file.folder == folders.size()) {
          fail(ErrorKind::mismatch, "rank {} has no folder among those of the run", file.rank);
        }
        file.data = data;
        file.expert_data = place.data;
        file.data_ranks = ranks;
        file.expert_data_ranks = std::max<int64_t>(experts.data_ranks(), 1);
        file.name = fmt::format("layer_wise_optimizer_{}.pt", data);
        files.push_back(std::move(file));
      }
    }
  }
  return files;
}

void add_layer_wise_state(Catalog& catalog, const std::string& path,
                          const std::vector<RankFolder>& folders, const LegacyModel& model,
                          const RunArguments& run, int64_t heads, OptimizerEntries& entries) {
  const std::vector<LayerWiseFile> files = layer_wise_files(run, folders);
  std::vector<std::string> missing;
  const auto path_of = [&](const LayerWiseFile& file) {
    return join(folders[file.folder].name, file.name);
  };
  for (const LayerWiseFile& file : files) {
    const std::string whole = join(path, path_of(file));
    if (catalog.file_system->status(whole).kind != PathKind::file) missing.push_back(path_of(file));
  }
  if (!missing.empty()) {
    fail(ErrorKind::not_found, "{} of {} data ranks' files are missing: {}", missing.size(),
         files.size(), some_of(missing, 8));
  }
  for (const LayerWiseFile& file : files) {
    const std::string whole = join(path, path_of(file));
    RankFile(file, path_of(file), read_layer_wise_file(catalog, whole), folders[file.folder],
             model.ranks[file.folder], run)
        .add(heads, entries);
  }
}

}  // namespace ferry
