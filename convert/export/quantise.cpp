#include "convert/export/quantise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "convert/check/embedding.h"
#include "convert/export/quantisation_config.h"
#include "convert/export/quantised_form.h"
#include "convert/model/mismatch.h"
#include "convert/model/numbered_name.h"
#include "convert/rewrite/expert_forms.h"

namespace ferry {
namespace {

constexpr std::string_view kWeightEnd = ".weight";

// Parts of names that are left as they are. "wte." and "wpe." are GPT-2's embeddings, and its "c_"
// layers keep their weights the other way round, as no linear layer does; ".gate." and
// "shared_expert_gate" are routers that are not linear layers where models are served; models of
// images and sound next to a language model, and what joins them, are published as they are.
constexpr std::string_view kLeftAsTheyAre[] = {"norm",
                                               "embed",
                                               "lm_head",
                                               "router",
                                               ".gate.",
                                               "shared_expert_gate",
                                               "eh_proj",
                                               "conv1d",
                                               "A_log",
                                               "dt_bias",
                                               "wte.",
                                               "weights_proj",
                                               "wpe.",
                                               "in_proj_a",
                                               "in_proj_b",
                                               "c_attn.",
                                               "c_fc.",
                                               "c_proj.",
                                               "relative_attention_bias",
                                               "mtp.fc.",
                                               "visual.",
                                               "vision",
                                               "audio",
                                               "multi_modal_projector",
                                               "mm_projector"};
// InternLM2's output layer, and the embedding of T5 and its like.
constexpr std::string_view kWholeNames[] = {"output.weight", "shared.weight"};
// A scale of a row keeps all of it in memory.
constexpr int64_t kMostColumns = int64_t{1} << 22;
// Projections of one input, which servers keep as one matrix with one second scale.
constexpr std::string_view kTogether[][3] = {
    {"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj", ""}, {"w1", "w3", ""}};

std::string_view first_module(std::string_view name) { return name.substr(0, name.find('.') + 1); }

// The module that holds most tensors: its name ("roberta_prelayernorm.") is the model's and says
// nothing of what is in it.
std::string outermost_module(const std::vector<ExportedTensor>& tensors) {
  std::map<std::string_view, size_t> counts;
  for (const ExportedTensor& each : tensors) {
    const std::string_view module = first_module(each.entry.name);
    if (++counts[module] * 2 > tensors.size()) return std::string(module);
  }
  return {};
}

bool is_linear(const Entry& entry, std::string_view outermost) {
  const size_t from = entry.name.starts_with(outermost) ? outermost.size() : 0;
  const auto holds = [&](std::string_view part) {
    return entry.name.find(part, from) != std::string::npos;
  };
  return entry.shape.size() == 2 && entry.elements() > 0 &&
         !has_name(kWholeNames, std::string_view(entry.name).substr(from)) &&
         entry.name.ends_with(kWeightEnd) && is_floating_point(entry.dtype) &&
         std::none_of(std::begin(kLeftAsTheyAre), std::end(kLeftAsTheyAre), holds);
}

// The shape of the embedding, which an output layer of any name has, too; empty: there is none.
Dims shape_of_output_layer(const std::vector<ExportedTensor>& tensors) {
  std::vector<const Entry*> entries;
  for (const ExportedTensor& tensor : tensors) entries.push_back(&tensor.entry);
  const Entry* embedding = embedding_of(entries);
  return embedding == nullptr ? Dims() : embedding->shape;
}

// A matrix for each expert, whatever it is called; the weights of convolutions have three axes,
// too, and tokens and positions of images have axes of one.
bool is_fused(const Entry& entry) {
  return entry.shape.size() == 3 && is_floating_point(entry.dtype) &&
         std::ranges::none_of(entry.shape, [](int64_t extent) { return extent == 1; }) &&
         entry.name.find("conv") == std::string::npos;
}

bool is_fused_expert(const Entry& entry) {
  return is_fused(entry) && entry.elements() > 0 &&
         (entry.name.ends_with(".experts.gate_up_proj") ||
          entry.name.ends_with(".experts.down_proj"));
}

std::string module_of(const std::string& name) {
  return name.ends_with(kWeightEnd) ? name.substr(0, name.size() - kWeightEnd.size()) : name;
}

// fp64 is rounded to fp32 first.
DType values_of(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 ? dtype : DType::f32;
}

// A recipe of [experts, in, out] as one of the rows [experts x out, in].
Recipe as_rows(Recipe recipe, const Dims& shape) {
  const int64_t rows = shape[2];
  const auto place = [&](const Dims& at) { return Dims{at[0] * rows + at[2], at[1]}; };
  for (Move& move : recipe.moves) {
    move.out_origin = place(move.out_origin);
    for (Loop& loop : move.loops) {
      if (loop.out_axis == 0) loop.out_step *= rows;
      loop.out_axis = loop.out_axis == 1 ? 1 : 0;
    }
  }
  std::vector<Box> zeros;
  for (const Box& box : recipe.zeros) {
    for (int64_t expert = 0; expert < box.size[0]; ++expert) {
      zeros.push_back({place({box.offset[0] + expert, box.offset[1], box.offset[2]}),
                       {box.size[2], box.size[1]}});
    }
  }
  recipe.zeros = std::move(zeros);
  return recipe;
}

// "model.layers.*.up_proj.weight, ...": each kind once.
std::string patterns_of(const std::vector<std::string>& names) {
  std::vector<std::string> patterns;
  for (NameGroup& group : grouped(names, {})) patterns.push_back(std::move(group.pattern));
  return some_of(patterns, 12);
}

class Quantiser {
 public:
  Quantiser(const WrittenForm& form, const QuantisedModel& model,
            std::vector<std::string>& warnings)
      : form_(form), model_(model), warnings_(warnings) {}

  QuantisedFiles run(ExportedTensors& tensors) {
    const bool takes_fused = form_.takes_fused;
    if (model_.experts != nullptr && !takes_fused) split_experts(tensors.tensors, *model_.experts);
    if (takes_fused && model_.transposed != true) {
      fail(ErrorKind::invalid,
           "{}: is not a gpt-oss, whose experts alone are quantised so ({}); mxfp4 is the form for "
           "other models",
           model_.path, option("quantise", form_.name));
    }
    const std::string outermost = outermost_module(tensors.tensors);
    const Dims output_layer = shape_of_output_layer(tensors.tensors);
    for (ExportedTensor& tensor : tensors.tensors) {
      if (is_floating_point(tensor.entry.dtype) && size_bytes(tensor.entry.dtype) == 1) {
        fail(ErrorKind::unsupported, "{}: tensor {} is of {} already", model_.path,
             tensor.entry.name, torch_name(tensor.entry.dtype));
      }
      const bool is_head = tensor.entry.shape == output_layer && !is_numbered(tensor.entry.name);
      const bool is_weight = takes_fused ? is_fused_expert(tensor.entry)
                                         : is_linear(tensor.entry, outermost) && !is_head;
      if (tensor.constant.empty() && is_weight && fits(tensor.entry)) {
        quantise(std::move(tensor));
      } else {
        leave(std::move(tensor));
      }
    }
    if (made_.empty()) {
      fail(ErrorKind::unsupported,
           "{}: no weight of a linear layer (a name that ends in .weight, two axes{}) is there to "
           "quantise",
           model_.path,
           form_.columns > 1 ? fmt::format(", rows of a multiple of {}", form_.columns) : "");
    }
    tensors.tensors = std::move(result_);
    return files();
  }

 private:
  // Whether the rows are whole groups of what has one scale.
  bool fits(const Entry& entry) {
    const int64_t columns = form_.takes_fused ? entry.shape[1] : entry.shape.back();
    const bool is_whole = !form_.is_strict || form_.columns == 0 || columns % form_.columns == 0;
    const bool is_small = form_.columns != 0 || columns <= kMostColumns;
    if (is_whole && is_small) return true;
    uneven_.push_back(entry.name);
    return false;
  }

  void leave(ExportedTensor tensor) {
    const Entry& entry = tensor.entry;
    if (entry.name.ends_with(kWeightEnd)) left_.push_back(module_of(entry.name));
    if (entry.shape.size() == 2 && tensor.constant.empty()) kept_.push_back(entry.name);
    if (is_fused(entry) && !form_.takes_fused) {
      fused_.push_back(entry.name);
      left_.push_back(entry.name.substr(0, entry.name.rfind('.')));
    }
    result_.push_back(std::move(tensor));
  }

  void quantise(ExportedTensor tensor) {
    made_.push_back(tensor.entry.name);
    const Entry weight = tensor.entry;
    Dims shape = weight.shape;
    if (form_.takes_fused) {
      shape = {element_count({weight.shape[0], weight.shape[2]}, weight.name), weight.shape[1]};
      tensor.recipe = as_rows(std::move(tensor.recipe), weight.shape);
    }
    Quantise how;
    how.rule = form_.rule;
    how.shape = shape;
    how.block = {form_.rows == 0 ? shape[0] : form_.rows,
                 form_.columns == 0 ? shape[1] : form_.columns};
    how.values = form_.takes_fused ? DType::bf16 : values_of(weight.dtype);
    how.together = group_of(weight.name);
    tensor.recipe.quantise = how;
    const std::string module = module_of(weight.name);
    tensor.entry.name = module + std::string(form_.codes_end);
    tensor.entry.dtype = codes_type(form_.rule);
    tensor.entry.shape = shape_of_codes(weight.shape, shape);
    const Dims grid = block_grid(shape, how.block);
    result_.push_back(std::move(tensor));
    for (const QuantisedOutput& part : parts_of(how)) add_part(module, part, weight.shape, grid);
    if (!form_.shape_end.empty()) add_shape(module, weight.shape);
    if (!form_.input_end.empty()) add_input_scale(module);
  }

  Dims shape_of_codes(const Dims& weight, const Dims& shape) const {
    const int64_t columns =
        shape[1] / codes_per_element(form_.rule) + (shape[1] % codes_per_element(form_.rule) != 0);
    if (!form_.takes_fused) return {shape[0], columns};
    return {weight[0], weight[2], shape[1] / form_.columns, form_.columns / 2};
  }

  void add_part(const std::string& module, const QuantisedOutput& part, const Dims& weight,
                const Dims& grid) {
    ExportedTensor scales;
    const bool is_zeros = part.kind == QuantisedOutput::zeros;
    scales.entry.name = module + std::string(part.kind == QuantisedOutput::scales ? form_.scales_end
                                             : is_zeros                           ? form_.zeros_end
                                                        : form_.global_end);
    scales.entry.dtype = part.dtype;
    if (part.kind == QuantisedOutput::global) {
      scales.entry.shape = form_.is_global_scalar ? Dims{} : Dims{1};
    } else if (form_.takes_fused) {
      scales.entry.shape = {weight[0], weight[2], grid[1]};
    } else {
      scales.entry.shape = {is_zeros ? (grid[0] + 7) / 8 : grid[0], grid[1]};
    }
    scales.recipe.is_scales = true;
    result_.push_back(std::move(scales));
  }

  void add_shape(const std::string& module, const Dims& weight) {
    ExportedTensor shape;
    shape.entry = {module + std::string(form_.shape_end), DType::i64, {2}, {}};
    shape.constant.resize(2 * sizeof(int64_t));
    std::memcpy(shape.constant.data(), weight.data(), shape.constant.size());
    result_.push_back(std::move(shape));
  }

  // Programs that serve the form multiply inputs by it; without calibration it is one.
  void add_input_scale(const std::string& module) {
    ExportedTensor scale;
    scale.entry = {module + std::string(form_.input_end), DType::f32, {}, {}};
    const float one = 1;
    scale.constant.assign(reinterpret_cast<const char*>(&one), sizeof one);
    result_.push_back(std::move(scale));
  }

  // The number of the group of tensors that have one second scale.
  uint32_t group_of(const std::string& name) {
    std::string group = module_of(name);
    const size_t dot = group.rfind('.') + 1;
    for (const auto& names : kTogether) {
      const bool is_one = std::ranges::find(names, group.substr(dot)) != std::end(names);
      if (is_one) group = group.substr(0, dot) + std::string(names[0]);
    }
    const auto number = static_cast<uint32_t>(groups_.size());
    return groups_.emplace(form_.has_shared_global ? group : name, number).first->second;
  }

  QuantisedFiles files() {
    std::sort(left_.begin(), left_.end());
    left_.erase(std::unique(left_.begin(), left_.end()), left_.end());
    if (!fused_.empty()) {
      const bool one = fused_.size() == 1;
      warnings_.push_back(fmt::format(
          "{} tensor{} of three axes (experts that are fused) {} not quantised: {}; programs that "
          "serve {} expect experts one by one",
          fused_.size(), one ? "" : "s", one ? "is" : "are", some_of(fused_, 3), form_.name));
    }
    if (model_.is_unknown) {
      warnings_.push_back(fmt::format(
          "the model's type is not known here: by their names and shapes {} matrices are taken for "
          "weights of linear layers and quantised ({}), {} are left ({})",
          made_.size(), patterns_of(made_), kept_.size(),
          kept_.empty() ? "none" : patterns_of(kept_)));
    }
    if (!uneven_.empty()) {
      const bool one = uneven_.size() == 1;
      warnings_.push_back(fmt::format("{} weight{} not quantised, as {} rows are {}: {}",
                                      uneven_.size(), one ? " is" : "s are", one ? "its" : "their",
                                      form_.columns == 0
                                          ? fmt::format("longer than {}", kMostColumns)
                                          : fmt::format("not a multiple of {}", form_.columns),
                                      some_of(uneven_, 3)));
    }
    if (!form_.input_end.empty()) {
      warnings_.push_back(fmt::format(
          "each {} is 1, as there are no inputs to measure: activations are scaled by what a "
          "server computes, or not at all",
          form_.input_end.substr(1)));
    }
    return {quantisation_config(form_, left_), model_opt_config(form_, left_)};
  }

  const WrittenForm& form_;
  const QuantisedModel& model_;
  std::vector<std::string>& warnings_;
  std::vector<ExportedTensor> result_;
  std::vector<std::string> made_;                   // weights that are quantised
  std::vector<std::string> left_, fused_, uneven_;  // modules; names of tensors
  std::vector<std::string> kept_;                   // matrices that are left
  std::map<std::string, uint32_t> groups_;
};

}  // namespace

std::vector<std::string_view> quantised_forms() {
  std::vector<std::string_view> names;
  for (const WrittenForm& form : written_forms()) names.push_back(form.name);
  return names;
}

QuantisedFiles quantise(std::string_view form, ExportedTensors& tensors,
                        const QuantisedModel& model, std::vector<std::string>& warnings) {
  const auto forms = written_forms();
  const auto found = std::ranges::find(forms, form, &WrittenForm::name);
  if (found == forms.end()) {
    fail(ErrorKind::invalid, "{}: there is no such form of quantised weights; there are {}",
         option("quantise", form), fmt::join(quantised_forms(), ", "));
  }
  return Quantiser(*found, model, warnings).run(tensors);
}

}  // namespace ferry
