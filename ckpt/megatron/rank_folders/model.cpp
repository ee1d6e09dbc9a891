#include "ckpt/megatron/rank_folders/model.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/megatron/model/parameter_names.h"

namespace ferry {
namespace {

constexpr std::string_view kLayers = "decoder.layers.";

class Placer {
 public:
  Placer(const std::vector<RankFolder>& folders, const std::vector<LegacyRank>& ranks,
         const RunArguments& run, const LegacyModelOptions& options)
      : folders_(folders),
        ranks_(ranks),
        run_(run),
        options_(options),
        pipeline_(run),
        choice_(default_modules(run)) {
    for (const LegacyRank& rank : ranks_) {
      for (const auto& tensors : rank.chunks) detect_modules(tensors, choice_);
    }
  }

  LegacyModel place() {
    name_all();
    collect_tensors();
    const ModelLayout layout(tensors_, run_);
    LegacyModel model;
    for (size_t i = 0; i < folders_.size(); ++i) {
      std::vector<LegacyChunk>& chunks = model.ranks.emplace_back();
      for (size_t v = 0; v < ranks_[i].chunks.size(); ++v) {
        chunks.push_back(place_chunk(layout, i, v));
      }
    }
    model.tensors = std::move(tensors_);
    model.modules = choice_;
    return model;
  }

 private:
  using Views = std::vector<std::vector<LocalView>>;

  void name_all() {
    for (size_t i = 0; i < folders_.size(); ++i) {
      const int64_t chunks = static_cast<int64_t>(ranks_[i].chunks.size());
      if (chunks != pipeline_.chunks()) {
        fail(ErrorKind::mismatch, "{} holds {} model chunks, the run's arguments say {}",
             folders_[i].name, chunks, pipeline_.chunks());
      }
      std::vector<Views>& views = views_.emplace_back();
      for (int64_t v = 0; v < chunks; ++v) {
        LegacyNaming naming;
        naming.run = &run_;
        naming.stage = pipeline_.at(folders_[i].rank.stage, v);
        naming.local_experts = run_.experts / run_.expert;
        naming.first_expert = folders_[i].rank.expert * naming.local_experts;
        naming.tied = options_.tied && !naming.stage.first;
        naming.checkpoint_version = options_.checkpoint_version;
        views.push_back(name_tensors(ranks_[i].chunks[v], naming));
      }
    }
  }

  void collect_tensors() {
    const bool stacked = options_.stacked && layers_are_alike();
    std::set<std::string> known;
    for (size_t i = 0; i < folders_.size(); ++i) {
      for (size_t v = 0; v < views_[i].size(); ++v) {
        for (size_t t = 0; t < views_[i][v].size(); ++t) {
          for (const LocalView& view : views_[i][v][t]) {
            GlobalName global = global_name(view.name, stacked, run_.layers, run_.attention_kinds);
            if (!known.insert(global.name).second) continue;
            add_tensor(view, std::move(global), ranks_[i].chunks[v][t].dtype);
          }
        }
      }
    }
  }

  // As torch_dist stores it: whole, or the pieces of a parameter that it never stores so.
  void add_tensor(const LocalView& view, GlobalName global, DType dtype) {
    const auto parameter = find_parameter(global.name);
    if (!parameter) {
      fail(ErrorKind::unsupported,
           "it is unknown where the ranks hold tensor {} (it is not a parameter of a plain GPT "
           "model); {} shows each rank's tensors as they are",
           view.name, option("raw"));
    }
    const ParameterRow& row = *parameter->row;
    Dims shape = global_shape(view, global, row);
    if (row.pieces.empty()) {
      tensors_.push_back({std::move(global.name), std::move(shape), dtype});
      return;
    }
    const size_t axis = global.layer_axis ? 1 : 0;
    int64_t rows = 0;
    for (const RowPiece& piece : row.pieces) {
      Dims of_piece = shape;
      if (axis < shape.size()) of_piece[axis] = piece.rows(run_.mixers);
      rows += piece.rows(run_.mixers);
      tensors_.push_back({global.name + std::string(piece.suffix), std::move(of_piece), dtype});
    }
    if (axis >= shape.size() || shape[axis] != rows) {
      fail(ErrorKind::mismatch, "tensor {} of shape {} should have {} rows, as the arguments say",
           view.name, to_string(shape), rows);
    }
  }

  bool layers_are_alike() const {
    std::vector<std::string> names;
    for (const auto& chunks : views_) {
      for (const Views& views : chunks) {
        for (const auto& parts : views) {
          for (const LocalView& view : parts) names.push_back(view.name);
        }
      }
    }
    return ferry::layers_are_alike(names);
  }

  Dims global_shape(const LocalView& view, const GlobalName& global, const ParameterRow& row) {
    const Split split = row.split;
    const int64_t ranks = row.routed ? run_.expert_tensor : run_.tensor;
    Dims shape = view.shape;
    const bool by_rows = split == Split::rows || split == Split::gated_rows ||
                         (split == Split::head_rows && run_.norms_all_heads) ||
                         (split == Split::latent_rows && latent_is_split(view));
    if (by_rows && !shape.empty()) shape[0] = checked_multiply(shape[0], ranks, view.name);
    if (split == Split::columns && shape.size() > 1) {
      shape[1] = checked_multiply(shape[1], ranks, view.name);
    }
    if (global.expert_axis) shape.insert(shape.begin(), run_.experts);
    if (global.layer_axis) shape.insert(shape.begin(), global.stack);
    return shape;
  }

  // Which modules MLA's down-projections are shows in their size alone.
  bool latent_is_split(const LocalView& view) {
    const bool kv = view.name.find("linear_kv_down_proj") != std::string::npos;
    const int64_t whole = kv ? options_.latent_kv : options_.latent_q;
    if (view.shape.empty() || whole <= 0 ||
        (view.shape[0] != whole && view.shape[0] * run_.tensor != whole)) {
      fail(ErrorKind::mismatch, "tensor {} of shape {} does not fit the run's latent size {}",
           view.name, to_string(view.shape), whole);
    }
    const bool split = view.shape[0] != whole;
    if (run_.tensor > 1) choice_.split_latent_down = split;
    return split;
  }

  LegacyChunk place_chunk(const ModelLayout& layout, size_t folder, size_t v) {
    RankCoordinates rank = folders_[folder].rank;
    rank.chunk = static_cast<int64_t>(v);
    std::unordered_map<std::string, LocalParameter> parameters;
    for (LocalParameter& parameter : layout.parameters(rank, choice_)) {
      std::string name = global_parameter_name(layout, parameter);
      parameters.emplace(std::move(name), std::move(parameter));
    }
    LegacyChunk placed;
    for (size_t t = 0; t < ranks_[folder].chunks[v].size(); ++t) {
      LegacyTensor& tensor = placed.emplace_back();
      tensor.stored = &ranks_[folder].chunks[v][t];
      for (LocalView& view : views_[folder][v][t]) {
        const auto at = parameters.find(view.name);
        if (at == parameters.end()) {
          fail(ErrorKind::mismatch,
               "{} holds tensor {} ({}), which is not of its part of the model",
               folders_[folder].name, tensor.stored->name, view.name);
        }
        if (at->second.elements != element_count(view.shape, view.name)) {
          fail(ErrorKind::mismatch,
               "{}: tensor {} has shape {}, {} elements are expected of this rank",
               folders_[folder].name, tensor.stored->name, to_string(view.shape),
               at->second.elements);
        }
        tensor.parts.push_back({std::move(view), std::move(at->second)});
        parameters.erase(at);
      }
    }
    if (!parameters.empty()) {
      fail(ErrorKind::mismatch, "{} lacks tensor {}", folders_[folder].name,
           parameters.begin()->first);
    }
    return placed;
  }

  const std::vector<RankFolder>& folders_;
  const std::vector<LegacyRank>& ranks_;
  const RunArguments& run_;
  const LegacyModelOptions& options_;
  PipelineLayout pipeline_;
  std::vector<std::vector<Views>> views_;  // by folder, virtual stage, tensor
  std::vector<ModelTensor> tensors_;
  ModuleChoice choice_;
};

// A run of rows of a local tensor, as a chunk of a box.
Chunk rows_chunk(const LocalView& view, const RankTensor& base, Box box, int64_t first_row,
                 int64_t row_step) {
  const int64_t element_bytes = size_bytes(base.dtype);
  Dims strides = view.strides;
  int64_t offset = view.offset;
  if (!strides.empty()) {
    offset += first_row * strides[0];
    strides[0] *= row_step;
  }
  const size_t prefix = box.size.size() - strides.size();
  strides.insert(strides.begin(), prefix, 1);  // of axes of one element
  int64_t span = 1;
  for (size_t axis = 0; axis < strides.size(); ++axis) span += (box.size[axis] - 1) * strides[axis];
  Chunk chunk{{std::move(box)}, {}, base.chunk.extent};
  chunk.extent.offset += static_cast<uint64_t>(offset * element_bytes);
  chunk.extent.length = static_cast<uint64_t>(span * element_bytes);
  Dims row_major = row_major_strides(chunk.box.size);
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    if (chunk.box.size[axis] != 1 && strides[axis] != row_major[axis]) chunk.strides = strides;
  }
  return chunk;
}

}  // namespace

std::string global_parameter_name(const ModelLayout& layout, const LocalParameter& parameter) {
  std::string name = layout.tensors()[parameter.shards.front().tensor].name;
  std::string_view rest;
  if (parameter.layer >= 0 && name.starts_with(kLayers) &&
      !leading_number(std::string_view(name).substr(kLayers.size()), &rest)) {
    name.insert(kLayers.size(), std::to_string(parameter.layer) + ".");
  }
  name = without_kind(name);
  const size_t experts = name.find(kRoutedExperts);
  if (parameter.expert >= 0 && experts != std::string::npos &&
      !leading_number(std::string_view(name).substr(experts + kRoutedExperts.size()), &rest)) {
    name.insert(experts + kRoutedExperts.size(), std::to_string(parameter.expert) + ".");
  }
  const auto found = find_parameter(name);
  if (found && found->piece >= 0 && !found->row->pieces.empty()) {
    name.resize(name.size() - found->row->pieces[static_cast<size_t>(found->piece)].suffix.size());
  }
  return name;
}

LegacyModel place_legacy_model(const std::vector<RankFolder>& folders,
                               const std::vector<LegacyRank>& ranks, const RunArguments& run,
                               const LegacyModelOptions& options) {
  return Placer(folders, ranks, run, options).place();
}

void give_pieces(const LegacyTensor::Part& part, const RankTensor& base, int64_t heads,
                 const std::function<void(uint32_t tensor, Chunk chunk)>& give) {
  LocalView view = part.view;
  if (!base.chunk.strides.empty()) {
    if (view.offset != 0 || view.shape != base.shape ||
        view.strides != row_major_strides(base.shape)) {
      fail(ErrorKind::unsupported, "tensor {} is not contiguous in its file", base.name);
    }
    view.strides = base.chunk.strides;
  }
  if (element_count(view.shape, base.name) == 0) return;
  int64_t row = 0;
  for (const Shard& shard : part.parameter.shards) {
    const size_t axis = shard.box.size.size() - view.shape.size();
    if (view.qkv_version >= 2) {
      give(shard.tensor, rows_chunk(view, base, shard.box, row, 1));
      row += view.shape.empty() ? 1 : shard.box.size[axis];
      continue;
    }
    // Query, key and value of a head are apart: all heads' queries first (version 0), or the three
    // of each row of a head next to one another (version 1).
    const int64_t rows = view.shape.empty() ? 0 : view.shape[0];
    if (heads <= 0 || rows % (3 * heads) != 0) {
      fail(ErrorKind::mismatch, "tensor {} of shape {} does not hold {} heads", base.name,
           to_string(view.shape), heads);
    }
    const int64_t size = rows / 3 / heads;
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t kind = 0; kind < 3; ++kind) {
        Box box = shard.box;
        box.offset[axis] += (head * 3 + kind) * size;
        box.size[axis] = size;
        const bool apart = view.qkv_version == 0;
        const int64_t first = apart ? (kind * heads + head) * size : head * size * 3 + kind;
        give(shard.tensor, rows_chunk(view, base, std::move(box), first, apart ? 1 : 3));
      }
    }
  }
}

}  // namespace ferry
