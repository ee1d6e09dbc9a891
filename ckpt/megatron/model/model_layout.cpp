#include "ckpt/megatron/model/model_layout.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr std::string_view kDecoderLayers = "decoder.layers.";
constexpr std::string_view kMtpLayers = "mtp.layers.";

// Place among the embeddings for each layer, which come last in a model; nothing for others.
std::optional<size_t> layer_embedding_place(std::string_view name) {
  const auto rows = layer_embedding_parameters();
  const auto found = std::ranges::find(rows, name, &ParameterRow::name);
  if (found == rows.end()) return std::nullopt;
  return static_cast<size_t>(found - rows.begin());
}

bool is_bias(const ParameterRow& row) { return row.name.ends_with(".bias"); }

// Which of a routed expert's two projections a parameter belongs to, by how its weight is split.
Split projection_of(const ParameterRow& row) {
  return row.split == Split::gated_rows ? Split::gated_rows : Split::columns;
}

}  // namespace

ModuleChoice default_modules(const RunArguments& run) {
  const bool fused = run.transformer_engine;
  const bool grouped = fused && run.grouped_experts;
  return {fused, !fused,
          grouped ? ModuleChoice::Experts::grouped : ModuleChoice::Experts::sequential};
}

ModelLayout::ModelLayout(std::vector<ModelTensor> tensors, const RunArguments& run, Kind kind)
    : tensors_(std::move(tensors)), kind_(kind), run_(run), pipeline_(run) {}

ModelLayout ModelLayout::replicated(std::vector<ModelTensor> tensors, const RunArguments& run) {
  if (run.pipeline != 1) {
    fail(ErrorKind::unsupported,
         "a model whose layers are not known cannot be spread over {} pipeline stages; give 1",
         run.pipeline);
  }
  return ModelLayout(std::move(tensors), run, Kind::replicated);
}

ModelLayout::ModelLayout(std::vector<ModelTensor> tensors, const RunArguments& run)
    : ModelLayout(std::move(tensors), run, Kind::megatron) {
  decoder_.resize(run_.layers);
  mtp_.resize(run_.repeated_mtp ? std::min<int64_t>(run_.mtp_layers, 1) : run_.mtp_layers);
  for (uint32_t i = 0; i < tensors_.size(); ++i) add(i);
  for (std::vector<Layer>* layers : {&decoder_, &mtp_}) {
    for (Layer& layer : *layers) {
      std::stable_sort(layer.begin(), layer.end(), [](const LayerTensor& a, const LayerTensor& b) {
        return a.parameter.order < b.parameter.order;
      });
    }
  }
  const auto by_name = [&](uint32_t a, uint32_t b) {  // "weight" before "bias"
    return tensors_[a].name.ends_with(".weight") && !tensors_[b].name.ends_with(".weight");
  };
  std::stable_sort(final_norm_.begin(), final_norm_.end(), by_name);
  std::stable_sort(output_.begin(), output_.end(), by_name);
  std::ranges::sort(layer_embeddings_, {},
                    [&](uint32_t i) { return layer_embedding_place(tensors_[i].name); });
  const auto rank = [&](uint32_t i) {
    return tensors_[i].name.starts_with("embedding.word_")       ? 0
           : tensors_[i].name.starts_with("embedding.position_") ? 1
                                                                 : 2;
  };
  std::stable_sort(embeddings_.begin(), embeddings_.end(),
                   [&](uint32_t a, uint32_t b) { return rank(a) < rank(b); });
}

void ModelLayout::add(uint32_t tensor) {
  const std::string_view name = tensors_[tensor].name;
  if (name == "embedding.word_embeddings.weight") word_embeddings_ = tensor;
  if (name == "output_layer.weight") output_weight_ = tensor;
  if (name == "embedding.word_embeddings.weight" ||
      name == "embedding.position_embeddings.weight" ||
      name == "embedding.tokentype_embeddings.weight") {
    embeddings_.push_back(tensor);
  } else if (name.starts_with("decoder.final_") && find_parameter(name)) {
    final_norm_.push_back(tensor);
  } else if (name == "output_layer.weight" || name == "output_layer.bias") {
    output_.push_back(tensor);
  } else if (layer_embedding_place(name)) {
    layer_embeddings_.push_back(tensor);
  } else if (!add_layer_tensor(tensor, name, decoder_, run_.layers) &&
             !add_layer_tensor(tensor, name, mtp_, static_cast<int64_t>(mtp_.size()))) {
    fail(
        ErrorKind::unsupported,
        "it is unknown where the ranks hold tensor {} (it is not a parameter of a plain GPT model)",
        name);
  }
}

bool ModelLayout::add_layer_tensor(uint32_t tensor, std::string_view name,
                                   std::vector<Layer>& layers, int64_t count) {
  const bool mtp = &layers == &mtp_;
  const std::string_view prefix = mtp ? kMtpLayers : kDecoderLayers;
  if (!name.starts_with(prefix)) return false;
  std::string_view suffix = name.substr(prefix.size());
  const auto number = leading_number(suffix, &suffix);
  auto described = describe(tensor, suffix, mtp);
  if (!described) return false;
  if (number) {
    if (*number >= count) {
      fail(ErrorKind::mismatch, "tensor {} is of layer {}, the run's arguments say {} layers", name,
           *number, count);
    }
    layers[*number].push_back(*described);
    return true;
  }
  const Dims& shape = tensors_[tensor].shape;
  const std::vector<int64_t> stacked = run_.attention_kinds.layers_of(name, count);
  const auto extent = static_cast<int64_t>(stacked.size());
  if (mtp || shape.empty() || shape[0] != extent) {
    fail(ErrorKind::mismatch, "tensor {} of shape {} does not stack the run's {} layers", name,
         to_string(shape), extent);
  }
  described->prefix_axes += 1;
  for (const int64_t layer : stacked) {
    ++described->place;
    layers[static_cast<size_t>(layer)].push_back(*described);
  }
  return true;
}

std::optional<ModelLayout::LayerTensor> ModelLayout::describe(uint32_t tensor,
                                                              std::string_view suffix, bool mtp) {
  LayerTensor described;
  described.tensor = tensor;
  int64_t inner_layer = 0;
  const auto inner = mtp ? inside_mtp(suffix, &inner_layer) : std::optional(suffix);
  const auto parameter = inner ? layer_parameter(*inner) : mtp_parameter(suffix);
  if (!parameter) return std::nullopt;
  described.parameter = *parameter;
  constexpr int kMostOfLayer = 1 << 10, kMostInner = 512;
  if (inner_layer >= kMostInner) return std::nullopt;
  described.parameter.order += static_cast<int>(inner_layer) * kMostOfLayer;
  described.parameter.separate_order += static_cast<int>(inner_layer) * kMostOfLayer;
  const ParameterRow& row = *parameter->row;
  if (row.routed) {
    described.prefix_axes = parameter->expert < 0 ? 1 : 0;
    has_experts_ = true;
    has_expert_biases_ |= is_bias(row);
  }
  has_attention_norms_ |= row.separate_norm.starts_with("input_layernorm.");
  has_latent_down_ |= row.split == Split::latent_rows;
  return described;
}

// Collects the parameters of one model chunk.
class ModelLayout::Builder {
 public:
  Builder(const ModelLayout& layout, const RankCoordinates& rank, const ModuleChoice& choice)
      : layout_(layout), rank_(rank), choice_(choice) {}

  std::vector<LocalParameter> build() {
    if (layout_.kind_ == Kind::replicated) {
      for (uint32_t i = 0; i < layout_.tensors_.size(); ++i) add_plain(i, Split::replicated);
      return std::move(parameters_);
    }
    const StageContents& stage = layout_.pipeline_.at(rank_.stage, rank_.chunk);
    const bool tied = layout_.output_weight_ < 0;
    const bool several_stages = layout_.run_.pipeline > 1;
    if (stage.first || stage.mtp_layers > 0) {
      for (uint32_t tensor : layout_.embeddings_) {
        const bool words = tensor == layout_.word_embeddings_;
        LocalParameter& parameter = add_plain(tensor, words ? Split::rows : Split::replicated);
        parameter.shared_embedding = words && several_stages &&
                                     (tied || layout_.run_.mtp_layers > 0) &&
                                     !(stage.first && stage.last);
        if (!stage.first) parameter.first_copy = false;
      }
    }
    for (int64_t i = 0; i < stage.layers; ++i) add_layer(layout_.decoder_, stage.first_layer + i);
    if (stage.final_norm) {
      for (uint32_t tensor : layout_.final_norm_) add_plain(tensor, Split::replicated);
    }
    for (int64_t i = 0; i < stage.mtp_layers; ++i) add_layer(layout_.mtp_, stage.first_mtp + i);
    if (stage.last) add_output(stage, tied, several_stages);
    for (const uint32_t tensor : layout_.layer_embeddings_) {
      if (stage.first) add_plain(tensor, find_parameter(layout_.tensors_[tensor].name)->row->split);
    }
    return std::move(parameters_);
  }

 private:
  void add_output(const StageContents& stage, bool tied, bool several_stages) {
    for (uint32_t tensor : layout_.output_) add_plain(tensor, Split::rows);
    if (!tied || stage.first || stage.mtp_layers > 0 || layout_.word_embeddings_ < 0) return;
    LocalParameter& copy = add_plain(static_cast<uint32_t>(layout_.word_embeddings_), Split::rows);
    copy.shared_embedding = several_stages;
    copy.first_copy = false;
  }

  LocalParameter& add_parameter(int64_t layer) {
    // Far more than any rank has; what a hostile file can make us build.
    constexpr size_t kMostParameters = size_t{1} << 19;
    if (parameters_.size() >= kMostParameters) {
      fail(ErrorKind::mismatch, "a rank of the run would hold more than {} parameters",
           kMostParameters);
    }
    LocalParameter& parameter = parameters_.emplace_back();
    parameter.layer = layer;
    return parameter;
  }

  LocalParameter& add_plain(uint32_t tensor, Split split) {
    LocalParameter& parameter = add_parameter(-1);
    append_piece(parameter, tensor, {}, {split}, false);
    return parameter;
  }

  void add_layer(const std::vector<Layer>& layers, int64_t number) {
    if (number >= static_cast<int64_t>(layers.size())) {
      fail(ErrorKind::mismatch, "the model has no layer {}, which a pipeline stage should hold",
           number);
    }
    Layer layer = layers[number];
    if (!choice_.norms_in_linears) {
      std::stable_sort(layer.begin(), layer.end(), [](const LayerTensor& a, const LayerTensor& b) {
        return a.parameter.separate_order < b.parameter.separate_order;
      });
    }
    const LayerTensor* last = nullptr;
    Layer experts;
    const auto flush = [&] {
      if (!experts.empty()) add_experts(experts, number);
      experts.clear();
    };
    for (const LayerTensor& tensor : layer) {
      if (tensor.parameter.row->routed) {
        experts.push_back(tensor);
        continue;
      }
      flush();
      const ParameterRow& row = *tensor.parameter.row;
      check_follows(last, tensor);
      if (tensor.parameter.piece <= 0) add_parameter(number);
      last = &tensor;
      LocalParameter& parameter = parameters_.back();
      parameter.trainable = !row.buffer;
      append_piece(parameter, tensor.tensor, prefix(tensor, -1), cut_of(tensor.parameter), false);
    }
    flush();
    check_follows(last, {});
  }

  // The pieces of a parameter follow one another, all of them.
  void check_follows(const LayerTensor* last, const LayerTensor& next) const {
    const NamedParameter before = last != nullptr ? last->parameter : NamedParameter();
    const bool continues = next.parameter.piece > 0;
    const bool is_next =
        continues && before.row == next.parameter.row && before.piece + 1 == next.parameter.piece;
    const auto pieces = before.row != nullptr ? before.row->stored_pieces().size() : 0;
    const bool is_whole = before.piece < 0 || before.piece + 1 == static_cast<int>(pieces);
    if (continues ? is_next : is_whole) return;
    fail(ErrorKind::mismatch,
         "tensor {} holds a part of a parameter, of which the checkpoint lacks other parts",
         layout_.tensors_[continues ? next.tensor : last->tensor].name);
  }

  void add_experts(const Layer& tensors, int64_t layer) {
    const RunArguments& run = layout_.run_;
    int64_t total = run.experts;
    for (const LayerTensor& tensor : tensors) {
      if (tensor.parameter.expert >= 0) continue;
      const size_t axis = tensor.prefix_axes - 1;
      const Dims& shape = layout_.tensors_[tensor.tensor].shape;
      if (axis >= shape.size() || (total > 0 && shape[axis] != total)) {
        fail(ErrorKind::mismatch, "tensor {} of shape {} does not hold the run's {} experts",
             layout_.tensors_[tensor.tensor].name, to_string(shape), total);
      }
      total = shape[axis];
    }
    if (total <= 0 || total % run.expert != 0) {
      fail(ErrorKind::mismatch, "{} experts cannot be split over {} expert-parallel ranks", total,
           run.expert);
    }
    const int64_t count = total / run.expert, first = rank_.expert * count;
    const auto add = [&](int64_t expert, Split projection, bool bias) {
      add_expert(tensors, layer, expert, projection, bias);
    };
    constexpr Split kProjections[] = {Split::gated_rows, Split::columns};  // linear_fc1, linear_fc2
    using Experts = ModuleChoice::Experts;
    if (choice_.experts == Experts::sequential) {
      for (int64_t e = first; e < first + count; ++e) {
        for (const Split projection : kProjections)
          add(e, projection, false), add(e, projection, true);
      }
      return;
    }
    for (const Split projection : kProjections) {
      for (int64_t e = first; e < first + count; ++e) {
        add(e, projection, false);
        if (choice_.experts == Experts::grouped) add(e, projection, true);
      }
      if (choice_.experts == Experts::grouped) continue;
      for (int64_t e = first; e < first + count; ++e) add(e, projection, true);
    }
  }

  void add_expert(const Layer& tensors, int64_t layer, int64_t expert, Split projection,
                  bool bias) {
    bool found = false;
    for (const int piece : {-1, 0, 1}) {  // gate and up
      for (const LayerTensor& tensor : tensors) {
        const NamedParameter& parameter = tensor.parameter;
        if (projection_of(*parameter.row) != projection || is_bias(*parameter.row) != bias ||
            parameter.piece != piece || (parameter.expert >= 0 && parameter.expert != expert)) {
          continue;
        }
        if (!found) {
          LocalParameter& added = add_parameter(layer);
          added.expert = expert;
          added.routed_expert = true;
          found = true;
        }
        append_piece(parameters_.back(), tensor.tensor, prefix(tensor, expert), cut_of(parameter),
                     true);
      }
    }
  }

  static Dims prefix(const LayerTensor& tensor, int64_t expert) {
    Dims axes;
    const bool expert_axis = tensor.parameter.row->routed && tensor.parameter.expert < 0;
    if (tensor.place >= 0) axes.push_back(tensor.place);
    if (expert_axis) axes.push_back(expert);
    return axes;
  }

  // How a tensor is cut: by `split`, each of its `pieces` by itself.
  struct Cut {
    Split split;
    std::span<const RowPiece> pieces = {};
  };
  Cut cut_of(const NamedParameter& parameter) const {
    const ParameterRow& row = *parameter.row;
    if (parameter.piece >= 0) return {Split::rows};
    if (row.split != Split::gated_rows) return {row.split, row.pieces};
    if (!layout_.run_.gated_mlp) return {Split::rows};
    return {Split::rows, row.stored_pieces()};
  }

  // Adds the rank's part of a tensor at `fixed` coordinates of its leading axes.
  void append_piece(LocalParameter& parameter, uint32_t tensor, const Dims& fixed, const Cut& cut,
                    bool routed) {
    const ModelTensor& global = layout_.tensors_[tensor];
    const int64_t ranks = routed ? layout_.run_.expert_tensor : layout_.run_.tensor;
    const int64_t rank = routed ? rank_.expert_tensor : rank_.tensor;
    Box box = Box::whole(global.shape);
    for (size_t axis = 0; axis < fixed.size(); ++axis) {
      if (axis >= box.size.size() || fixed[axis] >= box.size[axis]) refuse(global, ranks);
      box.offset[axis] = fixed[axis];
      box.size[axis] = 1;
    }
    if (!parameter.shards.empty()) check_piece(parameter, global, fixed.size());
    parameter.dtype = global.dtype;
    parameter.axes = static_cast<int>(global.shape.size() - fixed.size());
    Split split = cut.split;
    if (split == Split::latent_rows) {
      split = choice_.split_latent_down ? Split::rows : Split::replicated;
    }
    if (split == Split::head_rows) {
      split = layout_.run_.norms_all_heads ? Split::rows : Split::replicated;
    }
    if (split == Split::replicated) {
      if (rank > 0) parameter.first_copy = false;
      add_box(parameter, tensor, std::move(box));
      return;
    }
    const size_t axis = fixed.size() + (split == Split::columns ? 1 : 0);
    if (axis >= box.size.size()) refuse(global, ranks);
    int64_t begin = 0;
    for (const int64_t rows : piece_rows(cut.pieces, box.size[axis])) {
      if (rows % ranks != 0) refuse(global, ranks);
      Box part = box;
      part.size[axis] = rows / ranks;
      part.offset[axis] = begin + rank * part.size[axis];
      add_box(parameter, tensor, std::move(part));
      begin += rows;
    }
    if (begin != box.size[axis]) refuse(global, ranks);
  }

  // Pieces differ in their rows alone.
  void check_piece(const LocalParameter& parameter, const ModelTensor& piece, size_t fixed) const {
    const Shard& last = parameter.shards.back();
    const ModelTensor& before = layout_.tensors_[last.tensor];
    const size_t axes = piece.shape.size() - fixed;
    const auto columns = static_cast<std::ptrdiff_t>(axes > 0 ? axes - 1 : 0);
    const bool fits =
        parameter.dtype == piece.dtype && parameter.axes == static_cast<int>(axes) &&
        std::equal(piece.shape.end() - columns, piece.shape.end(), last.box.size.end() - columns);
    if (fits) return;
    fail(ErrorKind::mismatch,
         "tensors {} and {} are pieces of one parameter, but {} of {} and {} of {}: one of them is "
         "damaged or of another checkpoint",
         before.name, piece.name, torch_name(before.dtype), to_string(before.shape),
         torch_name(piece.dtype), to_string(piece.shape));
  }

  // Rows of each piece of `rows`; those of one without a size are shared evenly.
  Dims piece_rows(std::span<const RowPiece> pieces, int64_t rows) const {
    if (pieces.empty()) return {rows};
    Dims each;
    for (const RowPiece& piece : pieces) {
      each.push_back(piece.rows != nullptr ? piece.rows(layout_.run_.mixers)
                                           : rows / static_cast<int64_t>(pieces.size()));
    }
    return each;
  }

  static void add_box(LocalParameter& parameter, uint32_t tensor, Box box) {
    parameter.elements += element_count(box.size, "part of a model tensor");
    parameter.shards.push_back({std::move(box), 0, tensor});
  }

  [[noreturn]] static void refuse(const ModelTensor& tensor, int64_t ranks) {
    fail(ErrorKind::mismatch, "tensor {} of shape {} cannot be split over {} tensor-parallel ranks",
         tensor.name, to_string(tensor.shape), ranks);
  }

  const ModelLayout& layout_;
  const RankCoordinates& rank_;
  const ModuleChoice& choice_;
  std::vector<LocalParameter> parameters_;
};

std::vector<LocalParameter> ModelLayout::parameters(const RankCoordinates& rank,
                                                    const ModuleChoice& choice) const {
  return Builder(*this, rank, choice).build();
}

}  // namespace ferry
