// Hand-made Megatron checkpoints for the tests of convert/: arguments from JSON, tensors with
// known elements, in every way in which Megatron spells and stacks them.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/model/hybrid_layers.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "convert/model/family.h"
#include "tests/io/memory_file_system.h"

namespace ferry::test {

inline Value add_value(Draft& draft, const nlohmann::json& json, std::string_view class_name) {
  if (json.is_boolean()) return draft.boolean(json.get<bool>());
  if (json.is_number_integer()) return draft.integer(json.get<int64_t>());
  if (json.is_number()) return draft.real(json.get<double>());
  if (json.is_string()) return draft.string(json.get<std::string>());
  if (json.is_array()) {
    const Value list = draft.list();
    for (const auto& item : json) draft.append(list, add_value(draft, item, class_name));
    return list;
  }
  if (!json.is_object()) return draft.none();
  const Value object = draft.instance(class_name);
  for (const auto& [key, value] : json.items()) {
    draft.add(object, key, add_value(draft, value, "argparse.Namespace"));
  }
  return object;
}

inline LoadedValue loaded(const nlohmann::json& json,
                          const std::string& class_name = "argparse.Namespace") {
  Draft draft;
  const Value root = add_value(draft, json, class_name);
  return std::move(draft).finish(root);
}

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

/// The names of the models in fixtures/hf_names.
inline std::vector<std::string> model_names() {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(FERRY_FIXTURES "/hf_names")) {
    names.insert(file.path().stem().string());
  }
  return {names.begin(), names.end()};
}

/// What fixtures/hf_names has of a model: its "config", "args" and more.
inline nlohmann::json named_model(const std::string& name) {
  return read_json(FERRY_FIXTURES "/hf_names/" + name + ".json");
}

/// A tensor of f32 elements that are all different, within and across tensors.
struct Tensor {
  Dims shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;  // by name

/// What layers without keys or values of their own have in their place: zeros, or the keys again.
inline void fill_unused(const Link& link, const Architecture& architecture, Tensor& tensor) {
  const bool is_zero = link.rule->transform == Transform::unused;
  if (is_zero) std::ranges::fill(tensor.values, 0.0F);
  const bool has_no_keys = link.rule->transform == Transform::queries;
  const bool has_no_values =
      link.hugging_face.size() == 3 && link.hugging_face[1] == link.hugging_face[2];
  if (!has_no_keys && !has_no_values) return;
  const Architecture a = architecture.in_layer(link.layer);
  const auto head = static_cast<size_t>(a.head_dim * a.hidden);
  const size_t queries = head * static_cast<size_t>(a.heads / a.groups);
  for (size_t at = queries; at < tensor.values.size(); at += queries + 2 * head) {
    for (size_t i = at; i < at + head; ++i) {
      if (has_no_keys) tensor.values[i] = 0;
      tensor.values[i + head] = tensor.values[i];
    }
  }
}

/// The canonical tensors of a model, each once.
inline Tensors canonical_tensors(const Family& family, const Architecture& architecture) {
  Tensors tensors;
  float next = 1;
  for (const Link& link : expand(family, architecture)) {
    if (link.megatron.empty() || tensors.contains(link.megatron)) continue;
    Tensor& tensor = tensors[link.megatron];
    tensor.shape = link.shape;
    tensor.values.resize(static_cast<size_t>(element_count(link.shape, link.megatron)));
    for (float& value : tensor.values) value = next++;
    fill_unused(link, architecture, tensor);
  }
  return tensors;
}

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

/// Stacks the tensors whose names differ only in the number after `before`, when all of them are
/// there, in the order of their numbers.
inline Tensors stacked(const Tensors& tensors, const std::string& before, int64_t count) {
  std::map<std::string, std::map<int64_t, const Tensor*>> groups;
  Tensors result;
  for (const auto& [name, tensor] : tensors) {
    const size_t at = name.find(before);
    if (at == std::string::npos) {
      result[name] = tensor;
      continue;
    }
    const size_t begin = at + before.size();
    const size_t dot = name.find('.', begin);
    groups[name.substr(0, begin) + name.substr(dot + 1)][std::stoll(name.substr(begin))] = &tensor;
  }
  for (const auto& [name, members] : groups) {
    if (static_cast<int64_t>(members.size()) != count) throw std::runtime_error("gaps in " + name);
    Tensor& all = result[name];
    for (const auto& [number, member] : members) {
      all.shape = member->shape;
      all.values.insert(all.values.end(), member->values.begin(), member->values.end());
    }
    all.shape.insert(all.shape.begin(), count);
  }
  return result;
}

/// In the pieces that torch_dist stores parameters in which it never stores whole.
inline Tensors in_pieces(const Tensors& tensors, const Architecture& a) {
  Tensors result;
  for (const auto& [name, tensor] : tensors) {
    const auto parameter = find_parameter(name);
    if (!parameter || parameter->row->pieces.empty()) {
      result[name] = tensor;
      continue;
    }
    auto begin = tensor.values.begin();
    for (const RowPiece& piece : parameter->row->pieces) {
      Tensor& part = result[name + std::string(piece.suffix)];
      part.shape = tensor.shape;
      part.shape[0] = piece.rows(a);
      if (tensor.values.empty()) continue;  // shapes alone
      const auto end = begin + element_count(part.shape, name);
      part.values.assign(begin, end);
      begin = end;
    }
  }
  return result;
}

inline Tensors renamed(const Tensors& tensors,
                       const std::vector<std::pair<std::string, std::string>>& names) {
  Tensors result;
  for (const auto& [name, tensor] : tensors) {
    std::string other = name;
    for (const auto& [from, to] : names) other = replaced(other, from, to);
    result[other] = tensor;
  }
  return result;
}

/// The attention of layers with a window and of those without under names of their own.
inline Tensors attention_by_kind(const Tensors& tensors, const Architecture& a, bool stacks) {
  Tensors kinds[3];  // of layers with a window, of those without, all else
  int64_t layers[3] = {0, 0, a.layers};
  for (int64_t layer = 0; layer < a.layers; ++layer) ++layers[a.has_window(layer) ? 0 : 1];
  for (const auto& [name, tensor] : tensors) {
    const std::string before = "decoder.layers.";
    const bool is_attention = name.find(".self_attention.") != std::string::npos;
    const size_t kind = !is_attention                                          ? 2
                        : a.has_window(std::stoll(name.substr(before.size()))) ? 0
                                                                               : 1;
    kinds[kind][replaced(name, ".self_attention.",
                         kind == 0 ? ".self_attention_sliding." : ".self_attention_global.")] =
        tensor;
  }
  Tensors result;
  for (size_t kind = 0; kind < 3; ++kind) {
    result.merge(stacks ? stacked(kinds[kind], "decoder.layers.", layers[kind]) : kinds[kind]);
  }
  return result;
}

/// As today's Megatron-LM stores them: in pieces, experts stacked, and layers where all are alike.
/// Norms whose output an indexer takes, too, are modules of their own.
inline Tensors stacked_as_today(Tensors tensors, const Architecture& a) {
  tensors = in_pieces(tensors, a);
  if (a.is_hybrid()) {
    Tensors spelled;
    for (auto& [name, tensor] : tensors) spelled[hybrid_spelling(name)] = std::move(tensor);
    tensors = std::move(spelled);
  }
  if (a.index_heads > 0) {
    tensors = renamed(tensors, {{"linear_q_up_proj.layer_norm_", "q_layernorm."},
                                {"linear_kv_up_proj.layer_norm_", "kv_layernorm."}});
  }
  if (a.experts > 0) tensors = stacked(tensors, ".mlp.experts.experts.", a.experts);
  const bool are_alike = (a.experts == 0 || a.all_moe()) && !a.any_linear() && !a.is_hybrid() &&
                         a.index_every == 1 && !a.doubles_ffn;
  if (a.attention_by_kind) return attention_by_kind(tensors, a, are_alike);
  return are_alike ? stacked(tensors, "decoder.layers.", a.layers) : tensors;
}

/// Gate and up of the experts' first layer as tensors of their own.
inline Tensors split_halves(const Tensors& tensors) {
  Tensors result;
  for (const auto& [name, tensor] : tensors) {
    if (name.find(".linear_fc1.weight") == std::string::npos) {
      result[name] = tensor;
      continue;
    }
    const size_t half = tensor.values.size() / 2;
    Dims shape = tensor.shape;
    shape[0] /= 2;
    const auto begin = tensor.values.begin();
    const auto middle = begin + static_cast<std::ptrdiff_t>(half);
    result[name + "_w"] = {shape, {begin, middle}};
    result[name + "_v"] = {shape, {middle, tensor.values.end()}};
  }
  return result;
}

/// A checkpoint whose tensors follow each other in the file "ckpt/iter_0000001/data".
inline Checkpoint checkpoint_of(const Tensors& tensors, const nlohmann::json& args,
                                const std::shared_ptr<MemoryFileSystem>& files) {
  Checkpoint checkpoint;
  checkpoint.path = "ckpt/iter_0000001";
  checkpoint.args = loaded(args);
  checkpoint.catalog.edit().file_system = files;
  std::string bytes;
  for (const auto& [name, tensor] : tensors) {
    Entry entry;
    entry.name = name;
    entry.shape = tensor.shape;
    Chunk chunk;
    chunk.box = Box::whole(tensor.shape);
    chunk.extent.offset = bytes.size();
    chunk.extent.length = tensor.values.size() * sizeof(float);
    entry.chunks.push_back(chunk);
    bytes.append(reinterpret_cast<const char*>(tensor.values.data()), chunk.extent.length);
    checkpoint.catalog.edit().entries.push_back(std::move(entry));
  }
  const std::string path = checkpoint.path + "/data";
  checkpoint.catalog.edit().add_file(path, bytes.size());
  files->put(path, std::move(bytes));
  return checkpoint;
}

inline std::vector<float> floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

}  // namespace ferry::test
