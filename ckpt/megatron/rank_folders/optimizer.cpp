#include "ckpt/megatron/rank_folders/optimizer.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/megatron/rank_folders/parameter_kind.h"

namespace ferry {
namespace {

const LocalParameter& parameter_of(const LegacyTensor& tensor) {
  return tensor.parts.front().parameter;
}

int64_t elements_of(const LegacyTensor& tensor) {
  return element_count(tensor.stored->shape, tensor.stored->name);
}

// One state of one tensor: `base` holds the tensor's elements, row-major.
void add_state(const LegacyTensor& tensor, std::string_view state, const RankTensor& base,
               int64_t heads, OptimizerEntries& entries) {
  for (const LegacyTensor::Part& part : tensor.parts) {
    if (!part.parameter.first_copy) continue;
    give_pieces(part, base, heads, [&](uint32_t number, Chunk chunk) {
      entries.add(state, base.dtype, number, std::move(chunk));
    });
  }
}

// What distinguishes buffers and groups for Megatron-LM.
bool is_routed(const LegacyTensor& tensor) { return parameter_of(tensor).routed_expert; }

class FlatState {
 public:
  FlatState(const std::vector<RankFolder>& folders, const std::vector<LegacyRank>& ranks,
            const LegacyModel& model, const RunArguments& run, int64_t heads,
            OptimizerEntries& entries)
      : folders_(folders),
        ranks_(ranks),
        model_(model),
        run_(run),
        heads_(heads),
        entries_(entries) {}

  void add() {
    for (size_t i = 0; i < folders_.size(); ++i) {
      const auto chunks = static_cast<int64_t>(model_.ranks[i].size());
      const size_t dense = rank_optimizers(run_, chunks, false).size();
      const bool separate = ranks_[i].flat.size() > dense;
      const std::vector<RankOptimizer> chain = rank_optimizers(run_, chunks, separate);
      for (size_t optimizer = 0; optimizer < chain.size(); ++optimizer) {
        const bool gives =
            chain[optimizer].experts ? folders_[i].gives_experts : folders_[i].gives_dense;
        if (gives) add_optimizer(i, optimizer, chain[optimizer], separate);
      }
    }
  }

 private:
  // The state is with the first rank of those that share it, which may be another folder's.
  const FlatOptimizer* find(size_t folder, size_t optimizer, bool experts) const {
    const RankCoordinates& rank = folders_[folder].rank;
    for (size_t i = 0; i < folders_.size(); ++i) {
      const RankCoordinates& other = folders_[i].rank;
      const bool same =
          experts ? other.expert == rank.expert && other.expert_tensor == rank.expert_tensor
                  : other.tensor == rank.tensor;
      if (other.stage == rank.stage && same && optimizer < ranks_[i].flat.size() &&
          ranks_[i].flat[optimizer]) {
        return &*ranks_[i].flat[optimizer];
      }
    }
    return nullptr;
  }

  void add_optimizer(size_t folder, size_t number, const RankOptimizer& optimizer, bool separate) {
    const bool experts = optimizer.experts;
    const FlatOptimizer* flat = find(folder, number, experts);
    size_t buffer = 0;
    for (int64_t v = optimizer.first_chunk; v < optimizer.end_chunk; ++v) {
      std::vector<std::pair<DType, std::vector<const LegacyTensor*>>> buffers;
      for (const LegacyTensor& tensor : model_.ranks[folder][static_cast<size_t>(v)]) {
        if (!tensor.trainable() || (separate && is_routed(tensor)) != experts) continue;
        const DType dtype = tensor.stored->dtype;
        auto at = std::find_if(buffers.begin(), buffers.end(),
                               [&](const auto& b) { return b.first == dtype; });
        if (at == buffers.end()) at = buffers.insert(at, {dtype, {}});
        at->second.push_back(&tensor);
      }
      for (const auto& [dtype, tensors] : buffers) {
        if (!flat || buffer >= flat->buffers.size()) {
          fail(ErrorKind::mismatch, "{} has no optimizer state for its {} parameters",
               folders_[folder].name, torch_name(dtype));
        }
        RankCoordinates rank = folders_[folder].rank;
        rank.chunk = v;
        add_buffer(rank, folder, tensors, flat->buffers[buffer++], experts);
      }
    }
    if (flat && buffer != flat->buffers.size()) {
      fail(ErrorKind::mismatch, "{} has optimizer state in {} buffers, {} expected",
           folders_[folder].name, flat->buffers.size(), buffer);
    }
  }

  void add_buffer(const RankCoordinates& rank, size_t folder,
                  const std::vector<const LegacyTensor*>& tensors,
                  const FlatOptimizer::Buffer& stored, bool experts) {
    std::vector<FlatParameter> sizes;
    for (const LegacyTensor* tensor : tensors) {
      sizes.push_back({elements_of(*tensor), parameter_of(*tensor).shared_embedding});
    }
    const FlatBuffer flat = lay_out_buffer(run_, rank, experts, sizes, parameters(folder));
    const std::vector<int64_t> bounds = coalesced_bounds(flat);
    for (const auto& [state, tensor] : stored.states) {
      if (element_count(tensor.shape, tensor.name) != bounds.back() ||
          !tensor.chunk.strides.empty()) {
        fail(ErrorKind::mismatch, "{}: {} has shape {}, {} elements are expected",
             folders_[folder].name, tensor.name, to_string(tensor.shape), bounds.back());
      }
      for (size_t i = 0; i < tensors.size(); ++i) {
        const FlatPlace& place = flat.places[i];
        RankTensor part{tensor.name, tensor.dtype, tensors[i]->stored->shape, tensor.chunk};
        part.chunk.extent.offset += static_cast<uint64_t>(bounds[place.bucket] + place.begin) *
                                    static_cast<uint64_t>(size_bytes(tensor.dtype));
        add_state(*tensors[i], state, part, heads_, entries_);
      }
    }
  }

  int64_t parameters(size_t folder) const {
    int64_t elements = 0;
    for (const LegacyChunk& chunk : model_.ranks[folder]) {
      for (const LegacyTensor& tensor : chunk) {
        if (tensor.trainable()) elements += elements_of(tensor);
      }
    }
    return elements;
  }

  const std::vector<RankFolder>& folders_;
  const std::vector<LegacyRank>& ranks_;
  const LegacyModel& model_;
  const RunArguments& run_;
  int64_t heads_;
  OptimizerEntries& entries_;
};

// Groups of a PyTorch optimizer and their members are found by shape: a group holds those tensors
// of one kind, in order of registration.
using Members = std::vector<const LegacyTensor*>;

ParameterKind kind_of(const LegacyTensor& tensor, const RunArguments& run, bool separate_experts,
                      bool decoupled_embeddings) {
  return parameter_kind(tensor.parts.front().view.name, tensor.stored->shape.size(),
                        run.decays_qk_norms, separate_experts && is_routed(tensor),
                        decoupled_embeddings);
}

bool fits(const PlainOptimizer::Group& group, const Members& members) {
  if (group.parameters.size() != members.size()) return false;
  for (size_t i = 0; i < members.size(); ++i) {
    for (const auto& [state, tensor] : group.parameters[i].states) {
      if (tensor.shape != members[i]->stored->shape) return false;
    }
  }
  return true;
}

bool is_half(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

void add_group(const PlainOptimizer::Group& group, const Members& members, const RankFolder& folder,
               int64_t heads, OptimizerEntries& entries) {
  const auto gives = [&](const LegacyTensor& tensor) {
    return is_routed(tensor) ? folder.gives_experts : folder.gives_dense;
  };
  add_parameter_group(group, members, gives, folder.name, heads, entries);
}

// Kinds that group after group is of; nothing when one fits none. Two kinds of the same shapes
// cannot both be one group's, as they would differ in routed experts or learning rate, which
// Megatron-LM gives in one order: dense first.
bool add_optimizer(const PlainOptimizer& plain, const std::map<ParameterKind, Members>& kinds,
                   const RankFolder& folder, int64_t heads, OptimizerEntries& entries) {
  std::vector<std::pair<const PlainOptimizer::Group*, const Members*>> matched;
  std::set<const Members*> used;
  for (const PlainOptimizer::Group& group : plain.groups) {
    if (group.parameters.empty()) continue;
    const Members* found = nullptr;
    for (const auto& [kind, members] : kinds) {
      if (used.count(&members) || !fits(group, members)) continue;
      if (found) {
        fail(ErrorKind::unsupported,
             "{}: two sets of parameters have the shapes of one parameter group of the optimizer",
             folder.name);
      }
      found = &members;
    }
    if (!found) return false;
    used.insert(found);
    matched.emplace_back(&group, found);
  }
  for (const auto& [group, members] : matched) add_group(*group, *members, folder, heads, entries);
  return true;
}

void add_rank(const RankFolder& folder, const LegacyRank& rank,
              const std::vector<LegacyChunk>& chunks, const RunArguments& run, int64_t heads,
              OptimizerEntries& entries) {
  for (const PlainOptimizer& plain : rank.plain) {
    bool done = false;
    for (const bool separate : {false, true}) {
      for (const bool decoupled : {false, true}) {
        std::map<ParameterKind, Members> kinds;
        for (const LegacyChunk& chunk : chunks) {
          for (const LegacyTensor& tensor : chunk) {
            if (tensor.trainable()) {
              kinds[kind_of(tensor, run, separate, decoupled)].push_back(&tensor);
            }
          }
        }
        done = done || add_optimizer(plain, kinds, folder, heads, entries);
      }
    }
    if (!done) {
      fail(ErrorKind::mismatch,
           "{}: the optimizer's parameter groups do not hold the model's parameters in their order",
           folder.name);
    }
  }
}

}  // namespace

void add_parameter_group(const PlainOptimizer::Group& group, const Members& members,
                         const std::function<bool(const LegacyTensor&)>& gives,
                         const std::string& place, int64_t heads, OptimizerEntries& entries) {
  size_t master = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const LegacyTensor& tensor = *members[i];
    const bool given = gives(tensor);
    if (is_half(tensor.stored->dtype)) {
      if (master >= group.masters.size() || group.masters[master].shape != tensor.stored->shape) {
        fail(ErrorKind::mismatch, "{}: no fp32 copy of {} among fp32_from_fp16_params", place,
             tensor.stored->name);
      }
      if (given) add_state(tensor, "param", group.masters[master], heads, entries);
      ++master;
    }
    for (const auto& [state, stored] : group.parameters[i].states) {
      if (given) add_state(tensor, state, stored, heads, entries);
    }
  }
}

void add_flat_state(const std::vector<RankFolder>& folders, const std::vector<LegacyRank>& ranks,
                    const LegacyModel& model, const RunArguments& run, int64_t heads,
                    OptimizerEntries& entries) {
  FlatState(folders, ranks, model, run, heads, entries).add();
}

void add_plain_state(const std::vector<RankFolder>& folders, const std::vector<LegacyRank>& ranks,
                     const LegacyModel& model, const RunArguments& run, int64_t heads,
                     OptimizerEntries& entries) {
  for (size_t i = 0; i < folders.size(); ++i) {
    add_rank(folders[i], ranks[i], model.ranks[i], run, heads, entries);
  }
}

}  // namespace ferry
