// The tensors that one rank folder of a legacy checkpoint holds: where each is, under its own name
// and in its own shape.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/io/file_system.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/rank_folders/folder_names.h"

namespace ferry {

// Whether the rank folders of a legacy checkpoint belong together, as far as their files say who
// wrote them.

/// What is the same in the files of all ranks of one save. The first is in the file itself, the
/// others in its arguments.
inline constexpr std::array<const char*, 6> kSameInAllRanks{
    "iteration",  "world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size",
    "num_layers", "seed"};

/// What model_optim_rng.pt says of its own origin; nothing where it does not.
struct RankOrigin {
  std::optional<int64_t> rank;  // of the process in the whole run
  std::array<std::optional<int64_t>, kSameInAllRanks.size()> of_run;
  bool saves_rng = false;
  bool has_flat_optimizer = false;  // the state is in distrib_optim.pt next to it
};

RankOrigin origin_of(const Value& root);

/// Files that another rank or another save wrote than their folder or the first folder says, one
/// sentence each. `origins` are parallel to `folders`. Programs that write all folders from one
/// process leave rank 0 and no random state in all of them: these are not judged by rank.
///
/// Source: megatron/core/parallel_state.py (RankGenerator: which rank has which coordinates).
std::vector<std::string> contradictions(std::span<const RankFolder> folders,
                                        std::span<const RankOrigin> origins,
                                        const RunArguments& run);

/// A tensor of a rank's file; the chunk's box is its own shape.
struct RankTensor {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  Chunk chunk;
};

using NamedStates = std::vector<std::pair<std::string, RankTensor>>;  // by state: exp_avg, ...

/// A PyTorch optimizer's state: a parameter's states, group by group in the order of its ids.
struct PlainOptimizer {
  struct Parameter {
    NamedStates states;
  };
  struct Group {
    std::vector<Parameter> parameters;
    std::vector<RankTensor> masters;  // fp32 copies of those that the model holds in 16 bits
    Value settings;                   // the group's dict: learning rate, weight decay, ...
  };
  std::vector<Group> groups;
  std::shared_ptr<const Document> document;  // of the groups' settings
};

/// The distributed optimizer's state, gathered: one flat tensor a state and buffer.
struct FlatOptimizer {
  struct Buffer {
    NamedStates states;
  };
  std::vector<Buffer> buffers;
};

struct LegacyRank {
  std::vector<std::vector<RankTensor>> chunks;     // the model's, one list a virtual stage
  std::vector<PlainOptimizer> plain;               // one a chained optimizer
  std::vector<std::optional<FlatOptimizer>> flat;  // likewise; nothing: another rank has it
  std::string optimizer_problem;  // why state that is in the files cannot be read; empty: none is
  RankOrigin origin;
  bool lacks_optimizer_file = false;  // state that was saved, and is not there
  uint64_t pickle_bytes = 0;          // 0: the model file is a zip archive
};

constexpr const char* kLegacyModelFile = "model_optim_rng.pt";
constexpr const char* kLegacyOptimizerFile = "distrib_optim.pt";

/// The optimizers of one layer_wise_optimizer_N.pt, also those that have no parameters there; its
/// file is added to the catalog's. corrupt as read_torch_file, mismatch when the value is none of
/// optimizers.
std::vector<PlainOptimizer> read_layer_wise_file(Catalog& catalog, const std::string& path);

/// Reads the files of `folder` and adds them to the catalog's files. `document`, if given, receives
/// the model file's pickle. not_found without model_optim_rng.pt, corrupt as read_torch_file.
LegacyRank read_legacy_rank(Catalog& catalog, const std::string& folder,
                            std::shared_ptr<const Document>* document);

}  // namespace ferry
