// The tutorial's configurations: what a checkpoint's context says of the model, and what of that a
// later run takes over.
//
// Source: BioNeMo bionemo-llm model/config.py (load_settings_from_checkpoint, override_parent_
// fields), bionemo-core's example_model; NeMo 2 lightning/io (context/model.yaml, io.json).
#pragma once

#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "ckpt/io/file_system.h"
#include "network.h"
#include "trainer/arguments/train_arguments.h"

namespace ferry::mnist {

/// A field's value; a list has text alone.
using Field = std::variant<bool, int64_t, std::string, std::vector<std::string>>;

/// PretrainConfig or ExampleFineTuneConfig: fields by name, in the order of names.
struct Config {
  std::string class_name;  // "model_components.PretrainConfig"
  std::map<std::string, Field> fields;

  explicit Config(Task task);

  int64_t number(const std::string& name) const { return std::get<int64_t>(fields.at(name)); }
  std::vector<std::string>& list(const std::string& name) {
    return std::get<std::vector<std::string>>(fields.at(name));
  }
  NetworkShape shape(Task task, const TrainArguments& arguments) const;
};

/// Takes every field that both have from the configuration in `checkpoint`/context/model.yaml, but
/// for those that `config` lists as override_parent_fields. Returns their names. not_found without
/// that file; mismatch, naming the field, where its value is of another kind.
std::vector<std::string> load_settings(const FileSystem& files, const std::string& checkpoint,
                                       Config& config);

/// The files of a checkpoint's context folder: what NeMo reads a run's settings from.
struct ContextFile {
  std::string name, text;
};
std::vector<ContextFile> context_files(const Config& config, const TrainArguments& arguments);

}  // namespace ferry::mnist
