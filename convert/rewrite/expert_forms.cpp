#include "convert/rewrite/expert_forms.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "convert/config_value.h"

namespace ferry {
namespace {

std::vector<ExportedTensor> taken_apart(const ExportedTensor& fused,
                                        std::vector<ExpertPart> parts) {
  std::vector<ExportedTensor> result;
  for (ExpertPart& part : parts) {
    ExportedTensor& tensor = result.emplace_back();
    tensor.entry.name = std::move(part.name);
    tensor.entry.dtype = fused.entry.dtype;
    tensor.entry.shape = {part.box.size[1], part.box.size[2]};
    tensor.recipe = recipe_of_part(fused.recipe, fused.entry.shape, part.box);
  }
  return result;
}

// The names of the module of a layer's experts: "model.layers.0.mlp." -> "...block_sparse_moe.".
std::string experts_module(const std::string& name, std::string_view module) {
  return name.substr(0, name.rfind(module)) + std::string(module);
}

// The tensors of one fused tensor, one by one, put together.
class Fusion {
 public:
  Fusion(std::string name, Dims shape, std::optional<bool> transposed)
      : shape_(std::move(shape)), transposed_(transposed) {
    result_.entry.name = std::move(name);
    result_.entry.shape = shape_;
  }

  void add(const ExportedTensor& tensor, const ExpertPlace& place) {
    const Dims& own = tensor.entry.shape;
    if (own.size() != 2 || shape_.size() != 3 || place.expert >= shape_[0]) refuse(tensor);
    const Dims plain = {place.halves * own[0], own[1]},
               transposed = {own[1], place.halves * own[0]};
    const Dims found = {shape_[1], shape_[2]};
    if (found != plain && found != transposed) refuse(tensor);
    if (plain == transposed && !transposed_) {
      fail(ErrorKind::mismatch,
           "tensor {} of {}: its experts' matrices are square there, so that nothing says whether "
           "they are transposed",
           result_.entry.name, to_string(shape_));
    }
    const bool is_transposed = plain == transposed ? *transposed_ : found == transposed;
    Recipe& into = result_.recipe;
    const auto first = static_cast<uint32_t>(into.inputs.size());
    into.inputs.insert(into.inputs.end(), tensor.recipe.inputs.begin(), tensor.recipe.inputs.end());
    const auto place_of = [&](const Dims& at) {
      const int64_t row = at[0] + place.half * own[0];
      return is_transposed ? Dims{place.expert, at[1], row} : Dims{place.expert, row, at[1]};
    };
    for (Move move : tensor.recipe.moves) {
      move.input += first;
      move.out_origin = place_of(move.out_origin);
      for (Loop& loop : move.loops)
        loop.out_axis = is_transposed ? 2 - loop.out_axis : loop.out_axis + 1;
      into.moves.push_back(std::move(move));
    }
    for (const Box& zeros : tensor.recipe.zeros) {
      Dims size = {1, zeros.size[0], zeros.size[1]};
      if (is_transposed) std::swap(size[1], size[2]);
      into.zeros.push_back({place_of(zeros.offset), std::move(size)});
    }
    into.half = tensor.recipe.half;
    result_.entry.dtype = tensor.entry.dtype;
    elements_ += tensor.entry.elements();
  }

  ExportedTensor take() {
    if (elements_ != result_.entry.elements()) {
      fail(ErrorKind::mismatch, "tensor {} of {}: the checkpoint gives {} of its {} elements",
           result_.entry.name, to_string(shape_), elements_, result_.entry.elements());
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const ExportedTensor& tensor) const {
    fail(ErrorKind::mismatch, "tensor {} of {} is not part of {} of {}, where its expert would be",
         tensor.entry.name, to_string(tensor.entry.shape), result_.entry.name, to_string(shape_));
  }

  Dims shape_;
  std::optional<bool> transposed_;
  ExportedTensor result_;
  int64_t elements_ = 0;
};

// Tensors of all experts whose matrices the model has the other way round. Where gate and up are as
// wide as high, down shows it.
void exchange_matrices(std::vector<ExportedTensor>& tensors, const ShapeOf& shape_of) {
  const auto exchanged = [](const Dims& shape) { return Dims{shape[0], shape[2], shape[1]}; };
  const auto is_of_experts = [&](const ExportedTensor& tensor) {
    return tensor.entry.shape.size() == 3 && tensor.constant.empty() &&
           tensor.entry.name.find(".experts.") != std::string::npos &&
           shape_of(tensor.entry.name) != nullptr;
  };
  const bool is_other_way = std::ranges::any_of(tensors, [&](const ExportedTensor& tensor) {
    if (!is_of_experts(tensor)) return false;
    const Dims &own = tensor.entry.shape, &there = *shape_of(tensor.entry.name);
    return own != there && exchanged(own) == there;
  });
  if (!is_other_way) return;
  for (ExportedTensor& tensor : tensors) {
    if (!is_of_experts(tensor) || exchanged(tensor.entry.shape) != *shape_of(tensor.entry.name)) {
      continue;
    }
    tensor.entry.shape = exchanged(tensor.entry.shape);
    for (Move& move : tensor.recipe.moves) {
      std::swap(move.out_origin[1], move.out_origin[2]);
      for (Loop& loop : move.loops) {
        if (loop.out_axis > 0) loop.out_axis = 3 - loop.out_axis;
      }
    }
  }
}

std::function<bool(const std::string&)> having(const ShapeOf& shape_of) {
  return [&](const std::string& name) { return shape_of(name) != nullptr; };
}

}  // namespace

void split_experts(std::vector<ExportedTensor>& tensors, const ExpertNames& names) {
  std::vector<ExportedTensor> result;
  std::unordered_set<std::string> modules;  // that had fused experts
  for (ExportedTensor& tensor : tensors) {
    auto parts = experts_in(tensor.entry.name, tensor.entry.shape, names);
    if (parts.empty() || !tensor.constant.empty()) {
      result.push_back(std::move(tensor));
      continue;
    }
    modules.insert(experts_module(tensor.entry.name, names.fused_module));
    std::ranges::move(taken_apart(tensor, std::move(parts)), std::back_inserter(result));
  }
  for (ExportedTensor& tensor : result) {
    std::string& name = tensor.entry.name;
    const size_t at = name.rfind(names.fused_module);
    if (names.module == names.fused_module || at == std::string::npos) continue;
    if (!modules.contains(experts_module(name, names.fused_module))) continue;
    name.replace(at, names.fused_module.size(), names.module);
  }
  tensors = std::move(result);
}

bool is_held(const std::string& name, const Dims& shape, const ShapeOf& shape_of) {
  return shape_of(name) != nullptr || other_form(name, shape, having(shape_of));
}

std::vector<std::string> model_types(const Checkpoint& model) {
  const auto config = read_hugging_face_config(*model.catalog->file_system, model.path);
  if (!config || !config->is_object()) return {};
  std::vector<std::string> types = {text_of(*config, "model_type", "")};
  const auto text = config->find("text_config");
  if (text != config->end()) types.push_back(text_of(*text, "model_type", ""));
  return types;
}

void take_form_of(std::vector<ExportedTensor>& tensors, const ShapeOf& shape_of,
                  std::optional<bool> transposed) {
  exchange_matrices(tensors, shape_of);
  std::vector<ExportedTensor> result;
  std::map<std::string, Fusion> fusions;
  for (ExportedTensor& tensor : tensors) {
    const std::string& name = tensor.entry.name;
    std::optional<OtherForm> form;
    if (shape_of(name) == nullptr) form = other_form(name, tensor.entry.shape, having(shape_of));
    if (form && form->place) {
      const std::string& fused = form->place->fused;
      fusions.try_emplace(fused, fused, *shape_of(fused), transposed)
          .first->second.add(tensor, *form->place);
    } else if (form && !form->parts.empty()) {
      std::ranges::move(taken_apart(tensor, std::move(form->parts)), std::back_inserter(result));
    } else {
      if (form) tensor.entry.name = std::move(form->renamed);
      result.push_back(std::move(tensor));
    }
  }
  for (auto& [name, fusion] : fusions) result.push_back(fusion.take());
  tensors = std::move(result);
}

}  // namespace ferry
