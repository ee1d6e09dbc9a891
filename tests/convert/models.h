// Models of every family on both sides: made of Megatron's arguments, or of a Hugging Face file
// whose tensors a test may change.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/format/hugging_face/hugging_face_layout.h"
#include "convert/arguments/arguments.h"
#include "convert/recognise.h"
#include "tests/convert/round_trip.h"

namespace ferry::test {

inline std::vector<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(FERRY_FIXTURES + folder)) {
    names.insert(file.path().stem().string());
  }
  return {names.begin(), names.end()};
}

// A model with the tensors that its arguments ask for, stacked as today's Megatron-LM stacks them.
struct Model {
  nlohmann::json args;
  Architecture architecture;
  const Family* family = nullptr;
  Tensors tensors;
  std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();

  explicit Model(const std::string& name, const nlohmann::json& changes = nlohmann::json::object())
      : args(read_json(FERRY_FIXTURES "/hf_names/" + name + ".json")["args"]) {
    args.update(changes);
    architecture = read_arguments(loaded(args).value, name).architecture;
    family = &choose_family(architecture, std::nullopt, name);
    tensors = stacked_as_today(canonical_tensors(*family, architecture), architecture);
  }
  Checkpoint megatron() { return checkpoint_of(tensors, args, files); }
  Checkpoint hugging_face() {
    return write_hugging_face(plan_export(megatron(), {}), *files, files, "hf");
  }
};

// A Hugging Face file made by hand: tensors by name.
struct File {
  std::map<std::string, Bytes> tensors;
  nlohmann::json config;
  std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();

  explicit File(const std::string& name, const nlohmann::json& changes = nlohmann::json::object()) {
    Model model(name, changes);
    tensors = tensors_of(model.hugging_face());
    config = nlohmann::json::parse(model.files->get("hf/config.json"));
  }

  Checkpoint open() {
    files = std::make_shared<MemoryFileSystem>();
    put("hf/model.safetensors", tensors);
    files->put("hf/config.json", config.dump());
    return open_checkpoint(files, "hf");
  }

  void put(const std::string& path, const std::map<std::string, Bytes>& stored) const {
    std::vector<Entry> entries;
    for (const auto& [name, tensor] : stored) {
      entries.push_back({name, tensor.dtype, tensor.shape, {}, Role::model});
    }
    const HuggingFaceLayout layout = lay_out_hugging_face(entries);
    std::string bytes(layout.target.files[0].bytes, '\0');
    for (const Literal& literal : layout.literals) {
      bytes.replace(literal.offset, literal.bytes.size(), literal.bytes);
    }
    for (const Entry& entry : layout.target.entries) {
      const std::string& data = stored.at(entry.name).data;
      bytes.replace(entry.chunks[0].extent.offset, data.size(), data);
    }
    files->put(path, bytes);
  }

  std::map<std::string, Bytes> import(const ImportOptions& options = {}) {
    const Checkpoint checkpoint = open();
    return tensors_of(write_state(import_model(checkpoint, options).state, files, "megatron"));
  }

  std::string failure(ErrorKind kind, const ImportOptions& options = {}) {
    try {
      import(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      return error.what();
    }
    return "no error";
  }

  void rename(const std::string& from, const std::string& to) {
    std::map<std::string, Bytes> renamed;
    for (const auto& [name, tensor] : tensors) {
      renamed[replaced(name, from, to)] = tensor;
    }
    tensors = std::move(renamed);
  }

  // The experts of each layer in one tensor, as transformers 5 holds them.
  void fuse(const std::vector<std::string>& gate_up, const std::string& down) {
    std::map<std::string, Bytes> fused;
    for (const auto& [name, tensor] : tensors) {
      const size_t at = name.find(".experts.");
      if (at == std::string::npos) {
        fused[name] = tensor;
        continue;
      }
      const std::string layer = name.substr(0, at) + ".experts.";
      const bool is_down = name.ends_with(down);
      Bytes& all = fused[layer + (is_down ? "down_proj" : "gate_up_proj")];
      if (!all.shape.empty()) continue;
      for (int64_t expert = 0; expert < 4; ++expert) {
        for (const std::string& part : is_down ? std::vector{down} : gate_up) {
          const Bytes& one = tensors.at(layer + std::to_string(expert) + part);
          all.data += one.data;
          all.shape = {4, one.shape[0] * (is_down ? 1 : 2), one.shape[1]};
        }
      }
    }
    tensors = std::move(fused);
  }
};

}  // namespace ferry::test
