#include "ckpt/megatron/state/model_class.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/model/hybrid_layers.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "ckpt/megatron/model/pipeline_layout.h"
#include "ckpt/megatron/state/edit.h"

namespace ferry {
namespace {

constexpr std::string_view kLayersOfDecoder = "decoder.layers.";
constexpr std::string_view kFinalNormOfGpt = "decoder.final_layernorm.",
                           kFinalNormOfHybrid = "decoder.final_norm.";
constexpr std::string_view kShardPart = "/shard_";

// What hybrid models are made of unless a program says otherwise.
bool is_hybrid_stack(const Value& spec) {
  if (spec.size() != 2) return false;
  const auto function = spec[1].string();
  return function == "hybrid_stack_spec" || function == "mamba_stack_spec";
}

// Layers of several kinds, and settings that mean other layers once there are twice as many.
void check_arguments(const Value& args) {
  constexpr std::pair<const char*, const char*> kFlags[] = {
      {"multi_latent_attention", "latent attention"},
      {"apply_query_key_layer_scaling", "scaling of scores by the layer's number"}};
  constexpr std::pair<const char*, const char*> kTexts[] = {
      {"experimental_attention_variant", "another attention"}};
  constexpr std::pair<const char*, const char*> kAbsent[] = {
      {"linear_attention_freq", "linear attention in some layers"},
      {"window_attn_skip_freq", "windows in some layers"},
      {"no_rope_freq", "positions in some layers"}};
  std::vector<std::string> reasons;
  const auto add = [&](const auto& row) {
    reasons.push_back(fmt::format("{} ({})", row.second, row.first));
  };
  for (const auto& row : kFlags) {
    if (args.get(row.first).boolean().value_or(false)) add(row);
  }
  for (const auto& row : kTexts) {
    if (!args.get(row.first).string().value_or("").empty()) add(row);
  }
  for (const auto& row : kAbsent) {
    if (!args.get(row.first).is_none()) add(row);
  }
  const Value spec = args.get("spec");
  if (!spec.is_none() && !is_hybrid_stack(spec)) reasons.push_back("modules of its own (spec)");
  if (args.get("mtp_num_layers").integer().value_or(0) > 0) {
    reasons.push_back("MTP layers (mtp_num_layers)");
  }
  const Value frequency = args.get("moe_layer_freq");
  bool mixed = frequency.integer().value_or(1) != 1;
  for (size_t layer = 0; layer < frequency.size(); ++layer) {
    mixed |= frequency[layer].integer() != 1;
  }
  if (mixed) reasons.push_back("experts in some layers (moe_layer_freq)");
  if (reasons.empty()) return;
  fail(ErrorKind::unsupported,
       "{}: a GPT and a hybrid model have the same layers only where all of them are attention and "
       "an MLP or experts, and nothing depends on their numbers; this run has {}",
       option("model"), fmt::join(reasons, ", "));
}

// What belongs to attention in a layer; all else is the MLP's or the experts'.
bool is_attention(std::string_view suffix) {
  return suffix.starts_with("self_attention.") || suffix.starts_with("input_layernorm.");
}

bool is_mlp(std::string_view suffix) {
  return suffix.starts_with("mlp.") || suffix.starts_with("pre_mlp_layernorm.");
}

int64_t place_in_layer(std::string_view name, std::string_view suffix) {
  if (is_attention(suffix)) return 0;
  if (is_mlp(suffix)) return 1;
  fail(ErrorKind::unsupported, "{}: tensor {} is known to be neither attention's nor the MLP's",
       option("model"), name);
}

std::string replaced(std::string name, std::string_view from, std::string_view to) {
  if (name.starts_with(from)) name.replace(0, from.size(), to);
  return name;
}

// A tensor's name, in optimizer state after "optimizer.state.<kind>.".
struct KeyOfKind {
  std::string_view kind, key;
};

KeyOfKind split(std::string_view name) {
  const std::string_view key = model_name(name);
  return {name.substr(0, name.size() - key.size()), key};
}

// Layer `layer` of a tensor that has all of them along its first axis.
StateTensor layer_of(const StateTensor& all, int64_t layer) {
  Box box = Box::whole(all.shape);
  box.offset[0] = layer;
  box.size[0] = 1;
  StateTensor one = all;
  one.shape.erase(one.shape.begin());
  one.recipe.moves.clear();
  one.recipe.zeros.clear();
  for (const Move& move : all.recipe.moves) {
    for (Move& part : clip_output(move, box)) {
      part.out_origin.erase(part.out_origin.begin());
      std::erase_if(part.loops, [](const Loop& loop) { return loop.out_axis == 0; });
      for (Loop& loop : part.loops) --loop.out_axis;
      one.recipe.moves.push_back(std::move(part));
    }
  }
  for (Box zeros : all.recipe.zeros) {
    if (layer < zeros.offset[0] || layer >= zeros.offset[0] + zeros.size[0]) continue;
    zeros.offset.erase(zeros.offset.begin());
    zeros.size.erase(zeros.size.begin());
    one.recipe.zeros.push_back(std::move(zeros));
  }
  return one;
}

// Puts `one` into `all` as its layer `layer`.
void add_layer(const StateTensor& one, int64_t layer, StateTensor& all) {
  const auto inputs = static_cast<uint32_t>(all.recipe.inputs.size());
  all.recipe.inputs.insert(all.recipe.inputs.end(), one.recipe.inputs.begin(),
                           one.recipe.inputs.end());
  for (Move move : one.recipe.moves) {
    move.input += inputs;
    move.out_origin.insert(move.out_origin.begin(), layer);
    for (Loop& loop : move.loops) ++loop.out_axis;
    all.recipe.moves.push_back(std::move(move));
  }
  for (Box zeros : one.recipe.zeros) {
    zeros.offset.insert(zeros.offset.begin(), layer);
    zeros.size.insert(zeros.size.begin(), 1);
    all.recipe.zeros.push_back(std::move(zeros));
  }
  for (Addend addend : one.recipe.addends) {
    addend.input += inputs;
    all.recipe.addends.push_back(addend);
  }
}

std::vector<StateTensor> numbered_layers(std::vector<StateTensor> tensors, int64_t layers) {
  std::vector<StateTensor> made;
  for (StateTensor& tensor : tensors) {
    const auto [kind, key] = split(tensor.name);
    if (!key.starts_with(kLayersOfDecoder)) {
      tensor.name =
          std::string(kind) + replaced(std::string(key), kFinalNormOfGpt, kFinalNormOfHybrid);
      made.push_back(std::move(tensor));
      continue;
    }
    std::string_view suffix = key.substr(kLayersOfDecoder.size()), rest;
    const auto number = leading_number(suffix, &rest);
    if (number) suffix = rest;
    const int64_t place = place_in_layer(tensor.name, suffix);
    const auto name = [&](int64_t layer) {
      return fmt::format("{}{}{}.{}", kind, kLayersOfDecoder, 2 * layer + place, suffix);
    };
    if (number) {
      tensor.name = name(*number);
      made.push_back(std::move(tensor));
      continue;
    }
    if (tensor.shape.empty() || tensor.shape[0] != layers) {
      fail(ErrorKind::mismatch, "tensor {} has not {} layers along its first axis", tensor.name,
           layers);
    }
    for (int64_t layer = 0; layer < layers; ++layer) {
      made.push_back(layer_of(tensor, layer));
      made.back().name = name(layer);
    }
  }
  return made;
}

// Parameters that Megatron-LM stores for all layers at once take the place of the first of them.
std::vector<StateTensor> gpt_layers(std::vector<StateTensor> tensors, int64_t layers, bool stacks) {
  std::vector<StateTensor> made;
  std::map<std::string, std::pair<size_t, int64_t>, std::less<>> found;  // place, layers
  for (StateTensor& tensor : tensors) {
    const auto [kind, key] = split(tensor.name);
    std::string_view suffix;
    const auto number = key.starts_with(kLayersOfDecoder)
                            ? leading_number(key.substr(kLayersOfDecoder.size()), &suffix)
                            : std::nullopt;
    if (!number) {
      tensor.name =
          std::string(kind) + replaced(std::string(key), kFinalNormOfHybrid, kFinalNormOfGpt);
      made.push_back(std::move(tensor));
      continue;
    }
    if (*number % 2 != place_in_layer(tensor.name, suffix) || *number / 2 >= layers) {
      fail(ErrorKind::mismatch, "tensor {} is in a layer that the pattern gives to something else",
           tensor.name);
    }
    const int64_t layer = *number / 2;
    if (!stacks) {
      tensor.name = fmt::format("{}{}{}.{}", kind, kLayersOfDecoder, layer, suffix);
      made.push_back(std::move(tensor));
      continue;
    }
    std::string name = fmt::format("{}{}{}", kind, kLayersOfDecoder, suffix);
    const auto [place, is_first] = found.try_emplace(name, made.size(), 0);
    if (is_first) {
      StateTensor all = tensor;
      all.name = std::move(name);
      all.shape.insert(all.shape.begin(), layers);
      all.recipe = {};
      all.recipe.half = tensor.recipe.half;
      made.push_back(std::move(all));
    }
    StateTensor& all = made[place->second.first];
    const Dims shape(all.shape.begin() + 1, all.shape.end());
    if (shape != tensor.shape || all.dtype != tensor.dtype) {
      fail(ErrorKind::unsupported,
           "{}: tensor {} differs from that of other layers in shape or type: a GPT of these "
           "arguments has one tensor for all layers",
           option("model"), tensor.name);
    }
    add_layer(tensor, layer, all);
    ++place->second.second;
  }
  for (const auto& [name, place] : found) {
    if (place.second == layers) continue;
    fail(ErrorKind::mismatch, "{} of {} layers have a tensor {}", place.second, layers, name);
  }
  return made;
}

// "decoder.layers.<suffix>/shard_2.0_4.8": index and extent of the axes of layers and experts.
struct ModuleShard {
  std::string name;
  std::vector<std::string> index, shape;
};

std::vector<std::string> fields(std::string_view text, char separator) {
  std::vector<std::string> all(1);
  for (const char c : text) {
    if (c == separator) {
      all.emplace_back();
    } else {
      all.back() += c;
    }
  }
  return all;
}

std::optional<ModuleShard> module_shard(const std::string& key) {
  const size_t at = key.rfind(kShardPart);
  if (at == std::string::npos) return std::nullopt;
  const auto halves = fields(std::string_view(key).substr(at + kShardPart.size()), '_');
  if (halves.size() != 2) return std::nullopt;
  return ModuleShard{key.substr(0, at), fields(halves[0], '.'), fields(halves[1], '.')};
}

std::string object_name(const ModuleShard& shard) {
  return fmt::format("{}{}{}_{}", shard.name, kShardPart, fmt::join(shard.index, "."),
                     fmt::join(shard.shape, "."));
}

// Extra states of modules, which are stored by layer as the parameters are.
void rename_objects(RunState& state, int64_t layers, bool to_hybrid, bool stacks) {
  for (KeptObject& object : state.objects) {
    object.name = to_hybrid ? replaced(std::move(object.name), kFinalNormOfGpt, kFinalNormOfHybrid)
                            : replaced(std::move(object.name), kFinalNormOfHybrid, kFinalNormOfGpt);
    auto shard =
        object.name.starts_with(kLayersOfDecoder) ? module_shard(object.name) : std::nullopt;
    if (!shard) continue;
    std::string_view rest;
    const std::string around = shard->name.substr(kLayersOfDecoder.size());
    const auto number = leading_number(around, &rest);
    const std::string_view suffix = number ? rest : std::string_view(around);
    int64_t layer = number.value_or(0);
    if (!number) {
      layer = std::atoll(shard->index.front().c_str());
      shard->index.erase(shard->index.begin());
      shard->shape.erase(shard->shape.begin());
      if (shard->index.empty()) shard->index = {"0"}, shard->shape = {"1"};
    }
    if (to_hybrid) {
      layer = 2 * layer + place_in_layer(object.name, suffix);
    } else {
      layer /= 2;
    }
    if (to_hybrid || !stacks) {
      shard->name = fmt::format("{}{}.{}", kLayersOfDecoder, layer, suffix);
    } else {
      shard->name = fmt::format("{}{}", kLayersOfDecoder, suffix);
      const bool of_layer_alone = shard->shape == std::vector<std::string>{"1"};
      if (of_layer_alone) shard->index.clear(), shard->shape.clear();
      shard->index.insert(shard->index.begin(), fmt::to_string(layer));
      shard->shape.insert(shard->shape.begin(), fmt::to_string(layers));
    }
    object.name = object_name(*shard);
  }
}

// Stages stand in the pattern of a hybrid model, and in arguments of their own in a GPT's.
void clear_stages(Draft& draft, const Value& args) {
  for (const char* name :
       {"num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank",
        "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers",
        "pipeline_model_parallel_layout"}) {
    if (args.has(name)) draft.put(args, name, draft.none());
  }
  for (const char* name :
       {"account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"}) {
    if (args.has(name)) draft.put(args, name, draft.boolean(false));
  }
}

void put_layers(Draft& draft, const Value& args, int64_t layers) {
  draft.put(args, "num_layers", draft.integer(layers));
  if (args.has("encoder_num_layers")) draft.put(args, "encoder_num_layers", draft.integer(layers));
}

void put_gpt_stages(const HybridPattern& pattern, const RunArguments& run, Draft& draft,
                    const Value& args) {
  const std::vector<int64_t>& stages = pattern.stage_layers;
  if (stages.size() < 2) return;
  for (const int64_t layers : stages) {
    if (layers % 2 == 0) continue;
    fail(ErrorKind::unsupported,
         "{}: the pattern {} has a stage that ends between attention and its MLP, which a GPT "
         "cannot have; reshard it to other stages first ({})",
         option("model"), pattern.text(), option("pipeline"));
  }
  const bool even = std::ranges::all_of(stages, [&](int64_t n) { return n == stages.front(); });
  const auto chunks = static_cast<int64_t>(stages.size()) / run.pipeline;
  if (even && chunks > 1) {
    draft.put(args, "num_layers_per_virtual_pipeline_stage", draft.integer(stages.front() / 2));
  }
  if (even) return;
  std::string letters = "E";
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    if (stage > 0) letters += '|';
    letters.append(static_cast<size_t>(stages[stage] / 2), 't');
  }
  draft.put(args, "pipeline_model_parallel_layout", draft.string(letters + 'L'));
}

}  // namespace

void make_hybrid(RunState& state) {
  const RunArguments& run = state.args.run;
  if (run.hybrid) return;
  check_arguments(state.args.value);
  HybridPattern pattern;
  for (int64_t layer = 0; layer < run.layers; ++layer) {
    pattern.decoder.push_back(LayerKind::attention);
    pattern.decoder.push_back(run.experts > 0 ? LayerKind::mixture : LayerKind::mlp);
  }
  const PipelineLayout stages(run);
  for (int64_t chunk = 0; chunk < stages.chunks() && run.pipeline > 1; ++chunk) {
    for (int64_t stage = 0; stage < stages.stages(); ++stage) {
      pattern.stage_layers.push_back(2 * stages.at(stage, chunk).layers);
    }
  }
  state.tensors = numbered_layers(std::move(state.tensors), run.layers);
  rename_objects(state, run.layers, true, false);
  Draft draft;
  const Value args = draft.copy(state.args.value);
  clear_stages(draft, args);
  put_layers(draft, args, 2 * run.layers);
  draft.put(args, "is_hybrid_model", draft.boolean(true));
  draft.put(args, "hybrid_layer_pattern", draft.string(pattern.text()));
  if (args.get("moe_layer_freq").kind() == ValueKind::list) {
    draft.put(args, "moe_layer_freq", draft.integer(1));
  }
  state.args = std::move(draft).finish(args);
}

void make_gpt(RunState& state) {
  const auto pattern = hybrid_pattern(state.args.value);
  if (!pattern) return;
  check_arguments(state.args.value);
  if (!mlp_of_gpt(pattern->decoder) || pattern->mtp_layers > 0) {
    fail(ErrorKind::unsupported,
         "{}: a GPT's layers are attention and an MLP, or attention and experts; the layers of "
         "this run are {} (expected *-*-... or *E*E...). Mamba layers, MTP layers and other orders "
         "have no counterpart, and leaving them out would make another model",
         option("model"), pattern->text());
  }
  const auto layers = static_cast<int64_t>(pattern->decoder.size() / 2);
  Draft draft;
  const Value args = draft.copy(state.args.value);
  clear_stages(draft, args);
  put_layers(draft, args, layers);
  put_gpt_stages(*pattern, state.args.run, draft, args);
  draft.put(args, "is_hybrid_model", draft.boolean(false));
  for (const char* name : {"hybrid_layer_pattern", "hybrid_override_pattern", "spec"}) {
    if (args.has(name)) draft.put(args, name, draft.none());
  }
  state.args = std::move(draft).finish(args);
  const bool stacks = state.args.run.stacks_layers;
  std::erase_if(state.objects, [](const KeptObject& object) {
    return object.name.starts_with("output_layer._extra_state/");  // which GPTs do not save
  });
  state.tensors = gpt_layers(std::move(state.tensors), layers, stacks);
  rename_objects(state, layers, false, stacks);
}

}  // namespace ferry
