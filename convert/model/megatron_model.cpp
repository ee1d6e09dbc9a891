#include "convert/model/megatron_model.h"

#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "convert/model/numbered_name.h"

namespace ferry {
namespace {

// As ranks that hold experts each by itself name them.
constexpr std::string_view kLocalExperts = ".experts.local_experts.";

// Megatron's own renaming of the norm before an MLP also applies to the one before experts.
constexpr std::string_view kMixtureNorm = ".pre_mlp_layernorm.",
                           kMlpNorm = ".mlp.linear_fc1.layer_norm_";

}  // namespace

MegatronModel::MegatronModel(const Catalog& catalog, const Architecture& architecture)
    : catalog_(catalog), architecture_(architecture), kinds_(attention_kinds(architecture)) {
  for (size_t i = 0; i < catalog.entries.size(); ++i) {
    const Entry& entry = catalog.entries[i];
    if (entry.role != Role::model) continue;
    std::string_view name = entry.name;
    while (name.starts_with("module.")) name.remove_prefix(7);
    std::string key = usual_spelling(std::string(name));
    if (const size_t at = key.find(kLocalExperts); at != std::string::npos) {
      key.replace(at, kLocalExperts.size(), ".experts.experts.");
    }
    if (!positions_.emplace(std::move(key), static_cast<uint32_t>(i)).second) {
      fail(ErrorKind::corrupt, "tensor {} stands twice, under two spellings of its name",
           entry.name);
    }
  }
}

std::optional<Placed> MegatronModel::lookup(const std::string& key, Dims at, const Dims& extents) {
  const auto found = positions_.find(key);
  if (found == positions_.end()) return std::nullopt;
  const Entry& entry = catalog_.entries[found->second];
  for (size_t axis = 0; axis < at.size(); ++axis) {
    if (axis < entry.shape.size() && entry.shape[axis] == extents[axis]) continue;
    fail(ErrorKind::mismatch,
         "tensor {} of shape {}: axis {} should stack {} {}, as the arguments say", entry.name,
         to_string(entry.shape), axis, extents[axis],
         axis + 1 == at.size() && key.find(kExpertsInfix) != std::string::npos ? "experts"
                                                                               : "layers");
  }
  return Placed{found->second, std::move(at), 0, 0};
}

// The forms that a name takes on disk: as it is, experts stacked, layers stacked, both.
std::optional<Placed> MegatronModel::place(const std::string& name, size_t* rank) {
  std::optional<Placed> placed = lookup(name, {}, {});
  const auto expert = take_number(name, kExpertsInfix);
  const int64_t experts = architecture_.experts;
  if (!placed && expert) placed = lookup(expert->without, {expert->number}, {experts});
  if (!placed) {
    const int64_t layers = architecture_.layers;
    const auto layer = take_number(name, kLayersPrefix);
    if (layer) placed = lookup(layer->without, {layer->number}, {layers});
    if (!placed && layer && !expert && kinds_) placed = place_by_kind(name);
    if (!placed && layer && expert) {
      const auto both = take_number(expert->without, kLayersPrefix);
      placed = lookup(both->without, {layer->number, expert->number}, {layers, experts});
    }
  }
  if (placed) {
    const Dims& shape = catalog_.entries[placed->entry].shape;
    *rank = shape.size() - placed->at.size();
    placed->rows = *rank > 0 ? shape[placed->at.size()] : 1;
  }
  return placed;
}

// Attention of a kind, in a tensor by itself or in the stack of that kind's layers.
std::optional<Placed> MegatronModel::place_by_kind(const std::string& name) {
  if (auto placed = lookup(global_name(name, false, 0, kinds_).name, {}, {})) return placed;
  const GlobalName global = global_name(name, true, architecture_.layers, kinds_);
  return global.layer_axis ? lookup(global.name, {global.place}, {global.stack}) : std::nullopt;
}

// Pieces of one tensor are alike but for their rows, which halves share evenly.
void MegatronModel::check_pieces(const Placed& first, const Placed& other, bool any_rows) const {
  const Entry& a = catalog_.entries[first.entry];
  const Entry& b = catalog_.entries[other.entry];
  const auto rest = [&](const Entry& entry, const Placed& piece) {
    Dims shape = entry.shape;
    if (piece.at.size() < shape.size() && any_rows) shape[piece.at.size()] = 0;
    return shape;
  };
  if (a.shape.size() > first.at.size() && first.at.size() == other.at.size() &&
      rest(a, first) == rest(b, other) && a.dtype == b.dtype) {
    return;
  }
  fail(ErrorKind::mismatch, "tensors {} and {} are parts of one, but differ in shape or dtype",
       a.name, b.name);
}

std::optional<Located> MegatronModel::find_spelling(const std::string& name) {
  Located located;
  const auto add = [&](Placed placed, size_t rank) {
    const Entry& entry = catalog_.entries[placed.entry];
    const Dims shape(entry.shape.end() - static_cast<std::ptrdiff_t>(rank), entry.shape.end());
    if (located.parts.empty()) {
      located.shape = shape;
      located.dtype = entry.dtype;
    } else {
      placed.row = located.shape[0];
      located.shape[0] += placed.rows;
    }
    used_.insert(placed.entry);
    located.parts.push_back(std::move(placed));
  };
  size_t rank = 0;
  if (auto whole = place(name, &rank)) {
    add(std::move(*whole), rank);
    return located;
  }
  const auto parameter = find_parameter(name);
  if (!parameter) return std::nullopt;
  std::vector<Placed> pieces;
  for (const RowPiece& piece : parameter->row->stored_pieces()) {
    auto placed = place(name + std::string(piece.suffix), &rank);
    if (!placed) return std::nullopt;
    if (!pieces.empty()) check_pieces(pieces.front(), *placed, piece.rows != nullptr);
    pieces.push_back(std::move(*placed));
  }
  for (Placed& piece : pieces) add(std::move(piece), rank);
  if (pieces.empty()) return std::nullopt;
  return located;
}

std::optional<Located> MegatronModel::find(const std::string& canonical) {
  if (auto located = find_spelling(canonical)) return located;
  if (const auto parameter = find_parameter(canonical);
      parameter && !parameter->row->separate_norm.empty()) {
    if (auto located = find_spelling(separate_norm_name(canonical, *parameter))) return located;
  }
  if (const size_t at = canonical.find(kMixtureNorm); at != std::string::npos) {
    std::string name = canonical;
    return find_spelling(name.replace(at, kMixtureNorm.size(), kMlpNorm));
  }
  return std::nullopt;
}

std::vector<std::string> MegatronModel::unused() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < catalog_.entries.size(); ++i) {
    const Entry& entry = catalog_.entries[i];
    if (entry.role == Role::model && !used_.contains(static_cast<uint32_t>(i))) {
      names.push_back(entry.name);
    }
  }
  return names;
}

std::vector<Move> from_entries(const Move& move, const Located& located, uint32_t first_input) {
  std::vector<Move> result;
  for (size_t p = 0; p < located.parts.size(); ++p) {
    const Placed& part = located.parts[p];
    std::vector<Move> pieces = {move};
    if (located.parts.size() > 1) {
      Box box = Box::whole(located.shape);
      box.offset[0] = part.row;
      box.size[0] = part.rows;
      pieces = clip_input(move, box);
    }
    for (Move& piece : pieces) {
      piece.input = first_input + static_cast<uint32_t>(p);
      if (!piece.in_origin.empty()) piece.in_origin[0] -= part.row;
      piece.in_origin.insert(piece.in_origin.begin(), part.at.begin(), part.at.end());
      for (Loop& loop : piece.loops) loop.in_axis += static_cast<int>(part.at.size());
      result.push_back(std::move(piece));
    }
  }
  return result;
}

}  // namespace ferry
