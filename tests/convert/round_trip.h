// Both directions of the conversion in memory: Megatron to Hugging Face files, and from those to a
// Megatron model whose tensors are in one file under their own names.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/run.h"
#include "ckpt/format/hugging_face/hugging_face_layout.h"
#include "ckpt/format/hugging_face/safetensors.h"
#include "ckpt/megatron/model/args.h"
#include "ckpt/megatron/rank_folders/write/writer.h"
#include "ckpt/megatron/torch_dist/torch_dist_writer.h"
#include "convert/import.h"
#include "tests/convert/support.h"

namespace ferry::test {

/// Writes an export into `folder` of `files` and opens it.
inline Checkpoint write_hugging_face(const Export& result, MemoryFileSystem& files,
                                     std::shared_ptr<const FileSystem> shared,
                                     const std::string& folder) {
  check(result.plan);
  files.create_folder(folder);
  run(result.plan, files, folder, {});
  for (const auto& [name, content] : result.small_files) files.put(folder + "/" + name, content);
  for (const CopiedFile& file : result.tokenizer_files) {
    files.put(folder + "/" + file.name, read_file(*shared, file.from, uint64_t{1} << 20));
  }
  return open_checkpoint(std::move(shared), folder);
}

/// Runs all recipes of a state: a checkpoint of Megatron's tensors and arguments.
inline Checkpoint write_state(const RunState& state, const std::shared_ptr<MemoryFileSystem>& files,
                              const std::string& folder) {
  std::vector<Entry> entries;
  for (const StateTensor& tensor : state.tensors) {
    entries.push_back({tensor.name, tensor.dtype, tensor.shape, {}, tensor.role});
  }
  HuggingFaceLayout layout = lay_out_hugging_face(entries);
  Plan plan;
  plan.source = state.source;
  plan.target = std::move(layout.target);
  plan.literals = std::move(layout.literals);
  for (const StateTensor& tensor : state.tensors) plan.recipes.push_back(tensor.recipe);
  plan.dropped = state.dropped;
  check(plan);
  files->create_folder(folder);
  EngineOptions options;
  options.threads = 1;
  run(plan, *files, folder, options);
  Checkpoint checkpoint;
  checkpoint.path = folder;
  checkpoint.args = state.args;
  checkpoint.catalog.edit().file_system = files;
  const std::string path = folder + "/model.safetensors";
  const auto file = files->open(path);
  checkpoint.catalog.edit().add_file(path, file->size());
  checkpoint.catalog.edit().entries = read_safetensors_header(*file, 0).entries;
  return checkpoint;
}

/// Writes a state as torch_dist, or as rank folders, and opens it.
inline Checkpoint write_run(const RunState& state, bool legacy,
                            const std::shared_ptr<MemoryFileSystem>& files,
                            const std::string& folder) {
  TorchDistOptions options;
  options.optimizer = ShardedOptimizer::none;
  const PlannedOutput output =
      legacy ? plan_legacy(state, {false}) : plan_torch_dist(state, options);
  check(output.plan);
  files->create_folder(folder);
  for (const auto& file : output.plan.target.files) {
    const size_t slash = file.path.rfind('/');
    if (slash != std::string::npos) files->create_folder(folder + "/" + file.path.substr(0, slash));
  }
  run(output.plan, *files, folder, {});
  for (const auto& [name, content] : output.small_files) files->put(folder + "/" + name, content);
  return open_checkpoint(files, folder);
}

struct Bytes {
  Dims shape;
  DType dtype = DType::f32;
  std::string data;
  bool operator==(const Bytes&) const = default;
};

/// The model's tensors, by name.
inline std::map<std::string, Bytes> tensors_of(const Checkpoint& checkpoint) {
  std::map<std::string, Bytes> tensors;
  for (const Entry& entry : checkpoint.catalog->entries) {
    if (entry.role != Role::model) continue;
    tensors[entry.name] = {entry.shape, entry.dtype,
                           read_tensor(checkpoint.catalog, entry, uint64_t{1} << 26)};
  }
  return tensors;
}

/// The same with zeros for the vocabulary's padding.
inline std::map<std::string, Bytes> without_padding(std::map<std::string, Bytes> tensors,
                                                    int64_t vocab) {
  for (const char* name : {"embedding.word_embeddings.weight", "output_layer.weight"}) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) continue;
    std::string& data = found->second.data;
    const size_t row = data.size() / static_cast<size_t>(found->second.shape[0]);
    const size_t kept = row * static_cast<size_t>(vocab);
    data.replace(kept, data.size() - kept, data.size() - kept, '\0');
  }
  return tensors;
}

inline ImportOptions layout_of(const Value& args) {
  ImportOptions options;
  options.make_vocab_size_divisible_by = args.get("make_vocab_size_divisible_by").integer().value();
  options.layout.tensor = args.get("tensor_model_parallel_size").integer();
  return options;
}

// Megatron -> Hugging Face -> Megatron -> Hugging Face. `same_names`: the checkpoint names its
// tensors as today's Megatron-LM does.
inline void expect_round_trip(const Checkpoint& megatron, bool same_names,
                              const ExportOptions& options = {}) {
  auto files = std::make_shared<MemoryFileSystem>();
  const Checkpoint first = write_hugging_face(plan_export(megatron, options), *files, files, "hf");
  const auto config = nlohmann::json::parse(files->get("hf/config.json"));

  const Import import = import_model(first, layout_of(megatron.args.value));
  EXPECT_EQ(import.family, config["model_type"].get<std::string>());
  const Checkpoint back = write_state(import.state, files, "megatron");
  const auto expected = without_padding(tensors_of(megatron), config["vocab_size"]);
  const auto found = tensors_of(back);
  for (const auto& [name, tensor] : expected) {
    if (!same_names) break;
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_EQ(found.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(found.at(name).dtype, tensor.dtype) << name;
    EXPECT_TRUE(found.at(name).data == tensor.data) << name;
  }
  if (same_names) {
    for (const auto& [name, tensor] : found) EXPECT_TRUE(expected.contains(name)) << name;
  }

  const Checkpoint second = write_hugging_face(plan_export(back, options), *files, files, "again");
  EXPECT_EQ(tensors_of(second), tensors_of(first));
  EXPECT_EQ(nlohmann::json::parse(files->get("again/config.json")), config);
}

/// A Hugging Face model that was imported for a layout: written as a run by the ranks of that
/// layout, opened and exported again, it is the same.
inline void expect_back_through_run(const Checkpoint& model, const Import& import, bool legacy,
                                    const std::shared_ptr<MemoryFileSystem>& files,
                                    const std::string& folder, const ExportOptions& options = {}) {
  const Checkpoint run = write_run(import.state, legacy, files, folder);
  const ParallelLayout layout = layout_from_args(import.state.args.value);
  EXPECT_EQ(run.layout.tensor, layout.tensor);
  EXPECT_EQ(run.layout.pipeline, layout.pipeline);
  const std::string exported = "hf_" + folder;
  const Checkpoint again = write_hugging_face(plan_export(run, options), *files, files, exported);
  EXPECT_EQ(tensors_of(again), tensors_of(model));
  EXPECT_EQ(nlohmann::json::parse(files->get(exported + "/config.json")),
            nlohmann::json::parse(files->get(model.path + "/config.json")));
}

}  // namespace ferry::test
