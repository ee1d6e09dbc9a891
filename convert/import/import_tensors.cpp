#include "convert/import/import_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/engine/engine.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "convert/model/constant.h"
#include "convert/model/megatron_model.h"
#include "convert/model/mismatch.h"
#include "convert/model/rounded_sums.h"
#include "convert/model/stacking.h"
#include "convert/model/transforms.h"

namespace ferry {
namespace {

constexpr uint64_t kMaxConstantBytes = 1 << 20;
constexpr uint64_t kCopyComparisonBytes = 8 << 20;

class Importer {
 public:
  Importer(const Catalog& catalog, HuggingFaceTensors& model, const Family& family,
           const Architecture& architecture, const ImportTensorOptions& options)
      : catalog_(catalog),
        model_(model),
        family_(family),
        a_(architecture),
        options_(options),
        usual_dtype_(dtype_of_most(catalog)) {}

  ImportedTensors run(const std::string& path) {
    const std::vector<Link> links = expand(family_, a_);
    has_upright_experts_ =
        std::ranges::any_of(links, [&](const Link& link) { return is_upright(link); });
    for (const Link& link : links) {
      if (link.rule->transform == Transform::constant) {
        if (!is_state()) check_constant(link);
      } else if (link.rule->copies) {
        drop_copy(link);
      } else {
        add(link);
      }
    }
    drop_unused();
    if (is_state()) finish_state();
    if (misfit_.any()) {
      fail(ErrorKind::mismatch, "{}: its tensors are not those of family {}:{}{}", path,
           family_.name, describe(misfit_, family_.name), next_step());
    }
    if (rounded_ > 0) {
      result_.warnings.push_back(
          fmt::format("{} elements of norms, which the family and Megatron-LM store whole and less "
                      "1, are rounded "
                      "to the precision that they are written in",
                      rounded_));
    }
    result_.dtype = common_dtype();
    return std::move(result_);
  }

 private:
  // What to do about a model that is whole but for its head.
  std::string next_step() const {
    const bool lacks_head =
        misfit_.missing == std::vector<std::string>{family_.output_layer_name()};
    if (is_state() || !misfit_.misshapen.empty() || (!misfit_.missing.empty() && !lacks_head)) {
      return {};
    }
    std::string text;
    if (lacks_head) {
      text += fmt::format(
          "\n  Megatron-LM's GPT has an output layer for tokens, which this model (a base model, "
          "one of embeddings, rewards or classes) has not: with a config.json whose "
          "tie_word_embeddings is true ({}), the embedding is taken for it",
          option("config_folder", "DIR"));
    }
    if (!misfit_.left_over.empty()) {
      text += fmt::format(
          "\n  what is left over (a head for values, rewards or classes, say) has no place in "
          "Megatron-LM's GPT: {} leaves it out",
          option("drop_unknown"));
    }
    return text + fmt::format("\n  convert with {} and {} writes the model as it was, later",
                              option("to", "hugging_face"), option("fill_from", "DIR"));
  }

  // Whether the matrices of experts in this tensor can only be those of a file that has them as
  // Megatron does. Where gate and up say nothing, because they are as wide as high, down does.
  bool is_upright(const Link& link) {
    if (link.expert != 0 || !has_transposed_experts(link)) return false;
    const auto found = model_.find(link.hugging_face.front(), a_);
    const Dims shape = parts_of(link, a_).front().shape;
    return found && found->shape != shape && found->shape == Dims{shape[0], shape[2], shape[1]};
  }

  bool is_state() const { return !options_.optimizer_kind.empty(); }

  // Names of the state's tensors, each of which must be whole.
  void finish_state() {
    for (StateTensor& tensor : result_.tensors) {
      int64_t missing = element_count(tensor.shape, tensor.name);
      for (const Move& move : tensor.recipe.moves) missing -= move.elements();
      for (const Box& zeros : tensor.recipe.zeros)
        missing -= element_count(zeros.size, tensor.name);
      tensor.name = optimizer_entry_name(options_.optimizer_kind, tensor.name);
      tensor.role = Role::optimizer;
      if (missing == 0) continue;
      misfit_.missing.push_back(
          fmt::format("{} elements of {}: some of its layers or parts have "
                      "optimizer state, others have none",
                      missing, tensor.name));
    }
  }

  // The tensor of a name of the rules; notes what does not fit.
  std::optional<FoundTensor> locate(const std::string& name, const Dims& shape, bool one_element,
                                    Misfit& misfit) {
    auto found = model_.find(name, a_);
    if (!found) {
      if (!is_state()) misfit.missing.push_back(name);
      return std::nullopt;
    }
    const bool fits = one_element ? element_count(found->shape, name) == 1 : found->shape == shape;
    if (fits) return found;
    misfit.misshapen.push_back(fmt::format("{}: has {}, config.json says {}", name,
                                           to_string(found->shape), to_string(shape)));
    return std::nullopt;
  }

  void add(const Link& link) {
    std::vector<Part> parts = parts_of(link, a_);
    if (has_upright_experts_ && has_transposed_experts(link)) {
      parts = {with_matrices_exchanged(std::move(parts.front()))};
    }
    StateTensor* tensor = nullptr;
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool one_element = link.rule->transform == Transform::single;
      // What is wrong with a tensor of all experts is said once.
      Misfit of_others;
      Misfit& misfit = link.expert > 0 || is_repeated(link, i) ? of_others : misfit_;
      const auto found = locate(link.hugging_face[i], parts[i].shape, one_element, misfit);
      if (!found) continue;
      if (is_repeated(link, i)) drop_again(*found);
      if (parts.size() == 1) sources_.emplace(link.megatron, found->entry);
      for (const Piece& piece : pieces_of(link)) {
        tensor = &tensor_of(link, piece, found->dtype);
        check_dtype(*tensor, dtype_of(link, *found), link.hugging_face[i]);
        if (link.addend != 0 && !is_state()) {
          rounded_ += rounded_sums(catalog_, catalog_.entries[found->entry], -link.addend,
                                   dtype_of(link, *found));
        }
        std::optional<uint32_t> input;
        for (const Move& move : parts[i].moves) {
          for (Move& back : clip_output(move.inverse(), piece.box)) {
            if (!input) input = add_input(tensor->recipe, link, *found);
            back.input = *input;
            if (one_element) back.in_origin = Dims(found->shape.size(), 0);
            if (!back.out_origin.empty()) back.out_origin[0] -= piece.box.offset[0];
            tensor->recipe.moves.push_back(into(from_entry(std::move(back), *found), piece.place));
          }
        }
      }
    }
    const bool is_padded =
        link.rule->transform == Transform::vocabulary && a_.vocab < link.shape.front();
    if (tensor != nullptr && is_padded) tensor->recipe.zeros.push_back(padding(link.shape));
    if (tensor != nullptr || parts.empty()) leave_at_zero(link);
  }

  // What is read twice counts once.
  void drop_again(const FoundTensor& found) {
    result_.dropped.push_back({found.entry, -catalog_.entries[found.entry].elements()});
  }

  void leave_at_zero(const Link& link) {
    for (Box& box : left_at_zero(link, a_)) {
      const Piece piece{stack_place(link.megatron, a_), Box::whole(link.shape)};
      StateTensor& tensor = tensor_of(link, piece, usual_dtype_);
      const Dims& at = piece.place.at;
      box.offset.insert(box.offset.begin(), at.begin(), at.end());
      box.size.insert(box.size.begin(), at.size(), 1);
      tensor.recipe.zeros.push_back(std::move(box));
    }
  }

  // A part of a canonical tensor that Megatron stores by itself: all of it, or some of its rows.
  struct Piece {
    StackPlace place;
    Box box;
  };
  std::vector<Piece> pieces_of(const Link& link) const {
    const Box whole = Box::whole(link.shape);
    if (link.row->pieces.empty()) return {{stack_place(link.megatron, a_), whole}};
    std::vector<Piece> pieces;
    int64_t begin = 0;
    for (const RowPiece& stored : link.row->pieces) {
      Piece& piece = pieces.emplace_back(
          Piece{stack_place(link.megatron + std::string(stored.suffix), a_), whole});
      piece.box.offset[0] = begin;
      piece.box.size[0] = stored.rows(a_);
      begin += piece.box.size[0];
    }
    return pieces;
  }

  // Rows of the vocabulary that Hugging Face has not.
  Box padding(const Dims& shape) const {
    Box box = Box::whole(shape);
    box.offset[0] = a_.vocab;
    box.size[0] -= a_.vocab;
    return box;
  }

  // Rewrites a move to the canonical tensor to end in the stack that holds it.
  static Move into(Move move, const StackPlace& place) {
    move.out_origin.insert(move.out_origin.begin(), place.at.begin(), place.at.end());
    for (Loop& loop : move.loops) loop.out_axis += static_cast<int>(place.at.size());
    return move;
  }

  StateTensor& tensor_of(const Link& link, const Piece& piece, DType stored) {
    const StackPlace& place = piece.place;
    const auto [at, added] = positions_.emplace(place.name, result_.tensors.size());
    if (!added) return result_.tensors[at->second];
    StateTensor& tensor = result_.tensors.emplace_back();
    tensor.name = place.name;
    tensor.shape = place.extents;
    tensor.shape.insert(tensor.shape.end(), piece.box.size.begin(), piece.box.size.end());
    FoundTensor first;
    first.dtype = stored;
    tensor.dtype = dtype_of(link, first);
    return tensor;
  }

  DType dtype_of(const Link& link, const FoundTensor& found) const {
    if (link.fp32) return DType::f32;
    if (!is_floating_point(found.dtype)) return found.dtype;
    // What is stored plus 1 has the precision for that alone.
    if (link.addend != 0 && !options_.dtype) return usual_dtype_;
    return options_.dtype.value_or(found.dtype);
  }

  void check_dtype(const StateTensor& tensor, DType dtype, const std::string& name) const {
    if (dtype == tensor.dtype || options_.any_dtype) return;
    fail(ErrorKind::mismatch,
         "tensor {} would be {}, others of {} in Megatron are {}: they must be of one dtype; give "
         "it ({})",
         name, torch_name(dtype), tensor.name, torch_name(tensor.dtype), option("dtype"));
  }

  uint32_t add_input(Recipe& recipe, const Link& link, const FoundTensor& found) const {
    const Entry& entry = catalog_.entries[found.entry];
    const auto input = static_cast<uint32_t>(recipe.inputs.size());
    if (input > 0 && recipe.inputs.back() == found.entry) return input - 1;  // fused experts
    recipe.inputs.push_back(found.entry);
    if (link.addend != 0 && !is_state()) recipe.addends.push_back({input, -link.addend});
    if (!can_convert(entry.dtype, options_.dtype.value_or(entry.dtype))) {
      fail(ErrorKind::unsupported, "tensor {}: {} cannot be written as {}", entry.name,
           torch_name(entry.dtype), torch_name(*options_.dtype));
    }
    return input;
  }

  // Megatron computes with the rule's value, whatever the file says: so it must say that.
  void check_constant(const Link& link) {
    const std::string& name = link.hugging_face.front();
    if (!model_.has(name)) return;
    const auto found = model_.find(name, a_);
    const Entry& entry = catalog_.entries[found->entry];
    const auto expected = [&] {
      return constant_bytes(link.rule->value, entry.dtype, element_count(link.shape, name));
    };
    if (!can_convert(DType::f64, entry.dtype) ||
        read_tensor(catalog_, entry, kMaxConstantBytes) != expected()) {
      fail(ErrorKind::unsupported, "tensor {}: is not {}, the only value that Megatron has",
           entry.name, link.rule->value);
    }
    drop(found->entry);
  }

  void drop_copy(const Link& link) {
    const std::string& name = link.hugging_face.front();
    if (!model_.has(name)) return;
    const auto found = model_.find(name, a_);
    drop(found->entry);
    if (!options_.any_dtype) compare_copy(link.megatron, catalog_.entries[found->entry]);
  }

  // Megatron has one tensor for a copy and what it was made of, and export writes both from that.
  void compare_copy(const std::string& megatron, const Entry& copy) {
    const auto source = sources_.find(megatron);
    if (source == sources_.end()) return;  // it is missing, which is reported
    const Entry& original = catalog_.entries[source->second];
    const auto is_stored = [](const Entry& entry) {
      return entry.quantised || !entry.chunks.empty();
    };
    if (!is_stored(copy) || !is_stored(original)) return;
    if (same_elements(catalog_, original, copy, kCopyComparisonBytes)) return;
    result_.warnings.push_back(
        fmt::format("tensor {} is left out though it differs from {}: Megatron has one tensor for "
                    "both, which becomes the latter",
                    copy.name, original.name));
  }

  void drop(uint32_t entry) {
    result_.dropped.push_back({entry, catalog_.entries[entry].elements()});
  }

  void drop_unused() {
    for (const uint32_t position : model_.unused()) {
      const std::string& name = catalog_.entries[position].name;
      const bool buffer = std::any_of(family_.buffers.begin(), family_.buffers.end(),
                                      [&](std::string_view end) { return name.ends_with(end); });
      const bool tied_head = a_.tied && name == family_.output_layer_name();
      if (is_state()) {  // whatever it belongs to was checked with the model
        drop(position);
        continue;
      }
      if (!buffer && !tied_head && !options_.drop_unknown) {
        misfit_.left_over.push_back(name);
        continue;
      }
      drop(position);
      if (!buffer) {
        result_.warnings.push_back(
            tied_head
                ? fmt::format("tensor {} is left out: the output layer is the embedding, as "
                              "config.json says",
                              name)
                : fmt::format("tensor {} is left out: family {} has none", name, family_.name));
      }
    }
  }

  static DType dtype_of_most(const Catalog& catalog) {
    std::map<DType, double> elements;
    for (const Entry& entry : catalog.entries) {
      const bool is_number = is_floating_point(entry.dtype) && size_bytes(entry.dtype) > 1;
      if (entry.role != Role::model || !is_number) continue;
      elements[entry.dtype] += static_cast<double>(entry.elements());
    }
    return most_of(elements);
  }

  static DType most_of(const std::map<DType, double>& elements) {
    const auto most = std::max_element(elements.begin(), elements.end(),
                                       [](auto& x, auto& y) { return x.second < y.second; });
    return most == elements.end() ? DType::f32 : most->first;
  }

  DType common_dtype() const {
    std::map<DType, double> elements;
    for (const StateTensor& tensor : result_.tensors) {
      if (!is_floating_point(tensor.dtype)) continue;
      elements[tensor.dtype] += static_cast<double>(element_count(tensor.shape, tensor.name));
    }
    return most_of(elements);
  }

  const Catalog& catalog_;
  HuggingFaceTensors& model_;
  const Family& family_;
  const Architecture& a_;
  const ImportTensorOptions& options_;
  const DType usual_dtype_;  // of most elements of the file, quantised ones aside
  std::unordered_map<std::string, size_t> positions_;  // of the result's tensors
  std::unordered_map<std::string, uint32_t> sources_;  // entry that is all of a Megatron tensor
  int64_t rounded_ = 0;                                // elements of norms
  bool has_upright_experts_ = false;
  Misfit misfit_;
  ImportedTensors result_;
};

}  // namespace

ImportedTensors import_tensors(const Catalog& catalog, HuggingFaceTensors& model,
                               const Family& family, const Architecture& architecture,
                               const ImportTensorOptions& options, const std::string& path) {
  return Importer(catalog, model, family, architecture, options).run(path);
}

}  // namespace ferry
