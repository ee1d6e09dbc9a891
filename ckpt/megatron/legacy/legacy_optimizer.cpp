#include "ckpt/megatron/legacy/legacy_optimizer.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/flat_buffer.h"

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

// What tells buffers and groups apart for Megatron-LM.
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
      const size_t chunks = model_.ranks[i].size();
      const size_t optimizers = ranks_[i].flat.size();
      // The first model chunk has an optimizer of its own when the parameter gather is overlapped
      // with the step; experts have the last one unless they share the others' data ranks.
      const bool apart = run_.overlap_param_gather_with_step && chunks > 1;
      const size_t dense = apart ? 2 : 1;
      const bool separate = optimizers > dense;
      if (folders_[i].gives_dense) {
        add_optimizer(i, 0, 0, apart ? 1 : chunks, false, separate);
        if (apart) add_optimizer(i, 1, 1, chunks, false, separate);
      }
      if (separate && folders_[i].gives_experts) {
        add_optimizer(i, dense, 0, chunks, true, separate);
      }
    }
  }

 private:
  // The state lies with the first rank of those that share it, which may be another folder's.
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

  void add_optimizer(size_t folder, size_t optimizer, size_t first_chunk, size_t end_chunk,
                     bool experts, bool separate) {
    const FlatOptimizer* flat = find(folder, optimizer, experts);
    size_t buffer = 0;
    for (size_t v = first_chunk; v < end_chunk; ++v) {
      std::vector<std::pair<DType, std::vector<const LegacyTensor*>>> buffers;
      for (const LegacyTensor& tensor : model_.ranks[folder][v]) {
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
        rank.chunk = static_cast<int64_t>(v);
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
    const int64_t ranks = experts ? run_.expert_data_parallel() : run_.dense_data_parallel();
    const FlatBufferRules rules{std::max<int64_t>(ranks, 1),
                                run_.bucket_limit(rank.stage, rank.chunk, parameters(folder)),
                                run_.pad_buckets};
    const FlatBuffer flat = lay_out_flat_buffer(sizes, rules);
    std::vector<int64_t> bucket_begin;
    int64_t total = 0;
    for (const FlatBucket& bucket : flat.buckets) {
      bucket_begin.push_back(total);
      total += bucket.unpadded;
    }
    for (const auto& [state, tensor] : stored.states) {
      if (element_count(tensor.shape, tensor.name) != total || !tensor.chunk.strides.empty()) {
        fail(ErrorKind::mismatch, "{}: {} has shape {}, {} elements are expected",
             folders_[folder].name, tensor.name, to_string(tensor.shape), total);
      }
      for (size_t i = 0; i < tensors.size(); ++i) {
        const FlatPlace& place = flat.places[i];
        RankTensor part{tensor.name, tensor.dtype, tensors[i]->stored->shape, tensor.chunk};
        part.chunk.extent.offset +=
            static_cast<uint64_t>(bucket_begin[place.bucket] + place.begin) *
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

struct Kind {
  bool decayed = true;  // weight decay: not for vectors and biases
  bool routed = false;
  bool decoupled = false;  // embeddings and output layer, when they have their own learning rate
  auto operator<=>(const Kind&) const = default;
};

Kind kind_of(const LegacyTensor& tensor, bool separate_experts, bool decoupled_embeddings) {
  const std::string& name = tensor.parts.front().view.name;
  Kind kind;
  kind.decayed = tensor.stored->shape.size() > 1 && !name.ends_with("bias");
  kind.routed = separate_experts && is_routed(tensor);
  kind.decoupled = decoupled_embeddings &&
                   (name == "output_layer.weight" || name == "embedding.word_embeddings.weight");
  return kind;
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
  size_t master = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const LegacyTensor& tensor = *members[i];
    const bool given = is_routed(tensor) ? folder.gives_experts : folder.gives_dense;
    if (is_half(tensor.stored->dtype)) {
      if (master >= group.masters.size() || group.masters[master].shape != tensor.stored->shape) {
        fail(ErrorKind::mismatch, "{}: no fp32 copy of {} among fp32_from_fp16_params", folder.name,
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

// Kinds that group after group is of; nothing when one fits none. Two kinds of the same shapes
// cannot both be one group's, as they would differ in routed experts or learning rate, which
// Megatron-LM gives in one order: dense first.
bool add_optimizer(const PlainOptimizer& plain, const std::map<Kind, Members>& kinds,
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
              const std::vector<LegacyChunk>& chunks, int64_t heads, OptimizerEntries& entries) {
  for (const PlainOptimizer& plain : rank.plain) {
    bool done = false;
    for (const bool separate : {false, true}) {
      for (const bool decoupled : {false, true}) {
        std::map<Kind, Members> kinds;
        for (const LegacyChunk& chunk : chunks) {
          for (const LegacyTensor& tensor : chunk) {
            if (tensor.trainable()) {
              kinds[kind_of(tensor, separate, decoupled)].push_back(&tensor);
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

void add_flat_state(const std::vector<RankFolder>& folders, const std::vector<LegacyRank>& ranks,
                    const LegacyModel& model, const RunArguments& run, int64_t heads,
                    OptimizerEntries& entries) {
  FlatState(folders, ranks, model, run, heads, entries).add();
}

void add_plain_state(const std::vector<RankFolder>& folders, const std::vector<LegacyRank>& ranks,
                     const LegacyModel& model, const RunArguments&, int64_t heads,
                     OptimizerEntries& entries) {
  for (size_t i = 0; i < folders.size(); ++i) {
    add_rank(folders[i], ranks[i], model.ranks[i], heads, entries);
  }
}

}  // namespace ferry
