#include "nemo/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "ckpt/base/error.h"
#include "ckpt/megatron/config/nemo_config.h"
#include "ckpt/megatron/config/yaml.h"

namespace ferry::mnist {
namespace {

using Json = nlohmann::ordered_json;

// What a run decides for itself, whatever it begins with.
const std::vector<std::string> kOwnFields{"initial_ckpt_skip_keys_with_these_prefixes",
                                          "override_parent_fields",
                                          "initial_ckpt_path_ignore_weights",
                                          "initial_ckpt_path",
                                          "model_cls",
                                          "bf16",
                                          "fp16",
                                          "train_metric",
                                          "valid_metric",
                                          "loss_cls"};

// A field of the same kind as `field`.
Field field_of(const Value& value, const Field& field, const std::string& name,
               const std::string& path) {
  const auto refuse = [&](const char* expected) {
    fail(ErrorKind::mismatch, "{}: field {} is not {}, as this model's is", path, name, expected);
  };
  if (std::holds_alternative<bool>(field)) {
    if (const auto flag = value.boolean()) return *flag;
    refuse("true or false");
  } else if (std::holds_alternative<int64_t>(field)) {
    if (const auto number = value.integer()) return *number;
    refuse("a whole number");
  } else if (std::holds_alternative<std::string>(field)) {
    if (const auto text = value.string()) return std::string(*text);
    refuse("text");
  } else if (value.kind() != ValueKind::list) {
    refuse("a list");
  }
  std::vector<std::string> items;
  for (size_t i = 0; i < value.size(); ++i) {
    items.emplace_back(value[i].string().value_or(""));
  }
  return items;
}

// JSON's scalars and strings are YAML's, too.
std::string yaml_of(const Field& field) {
  return std::visit([](const auto& value) { return Json(value).dump(); }, field);
}

// An object as fiddle writes it: a Config of a class, with values that are numbers, text, or
// references to other objects.
class FiddleObjects {
 public:
  Json reference(const std::string& key) const { return {{"type", "ref"}, {"key", key}}; }
  Json leaf(Json value) const {
    return {{"type", "leaf"}, {"value", std::move(value)}, {"paths", Json::array()}};
  }

  void add(const std::string& key, const std::string& module, const std::string& name,
           const std::vector<std::pair<std::string, Json>>& attributes) {
    Json items = Json::array();
    for (const auto& [attribute, value] : attributes) {
      items.push_back({"Attr(name='" + attribute + "')", value});
    }
    const std::string metadata = key + "_metadata";
    objects_[metadata] = {{"type", pyref("fiddle._src.config", "BuildableTraverserMetadata")},
                          {"items", {{"Attr(name='fn_or_cls')", pyref(module, name)}}},
                          {"metadata", pyref("fiddle._src.config", "BuildableTraverserMetadata")}};
    objects_[key] = {{"type", pyref("fiddle._src.config", "Config")},
                     {"items", items},
                     {"metadata", reference(metadata)},
                     {"paths", Json::array()}};
  }

  std::string text(const std::string& root) const {
    return Json({{"root", reference(root)}, {"objects", objects_}, {"version", "0.0.1"}}).dump();
  }

 private:
  static Json pyref(const std::string& module, const std::string& name) {
    return {{"type", "pyref"}, {"module", module}, {"name", name}};
  }

  Json objects_ = Json::object();
};

std::string io_json(const Config& config, const TrainArguments& arguments) {
  const size_t dot = config.class_name.rfind('.');
  const std::string module = config.class_name.substr(0, dot);
  FiddleObjects objects;
  std::vector<std::pair<std::string, Json>> fields;
  for (const auto& [name, field] : config.fields) {
    if (std::holds_alternative<std::vector<std::string>>(field)) continue;
    fields.emplace_back(name, std::visit([&](const auto& x) { return objects.leaf(x); }, field));
  }
  objects.add("config_1", module, config.class_name.substr(dot + 1), fields);
  objects.add("bionemo_lightning_module_1", module, "BionemoLightningModule",
              {{"config", objects.reference("config_1")}});
  objects.add("mnist_data_module_1", module, "MNISTDataModule",
              {{"batch_size", objects.leaf(arguments.global_batch_size.value_or(1))}});
  objects.add(
      "megatron_strategy_1", "nemo.lightning.pytorch.strategies.megatron_strategy",
      "MegatronStrategy",
      {{"tensor_model_parallel_size", objects.leaf(arguments.tensor_model_parallel_size)},
       {"pipeline_model_parallel_size", objects.leaf(arguments.pipeline_model_parallel_size)}});
  objects.add("trainer_1", "nemo.lightning.pytorch.trainer", "Trainer",
              {{"strategy", objects.reference("megatron_strategy_1")},
               {"devices", objects.leaf(arguments.world_size)},
               {"num_nodes", objects.leaf(1)},
               {"max_steps", objects.leaf(arguments.train_iters.value_or(0))}});
  objects.add("trainer_context_1", "nemo.lightning.io.pl", "TrainerContext",
              {{"model", objects.reference("bionemo_lightning_module_1")},
               {"trainer", objects.reference("trainer_1")},
               {"datamodule", objects.reference("mnist_data_module_1")}});
  return objects.text("trainer_context_1");
}

}  // namespace

Config::Config(Task task)
    : class_name(task == Task::classifier ? "model_components.ExampleFineTuneConfig"
                                          : "model_components.PretrainConfig") {
  const bool is_classifier = task == Task::classifier;
  fields = {
      {"bf16", false},
      {"fp16", false},
      {"hidden_size", int64_t{64}},
      {"initial_ckpt_path", std::string()},
      {"initial_ckpt_path_ignore_weights", false},
      {"initial_ckpt_skip_keys_with_these_prefixes", std::vector<std::string>()},
      {"loss_cls", std::string(is_classifier ? "ClassifierLossReduction" : "MSELossReduction")},
      {"model_cls", std::string(is_classifier ? "ExampleFineTuneModel" : "PretrainModel")},
      {"num_attention_heads", int64_t{1}},
      {"num_layers", int64_t{1}},
      {"override_parent_fields", kOwnFields},
      {"params_dtype", std::string("torch.float32")}};
}

NetworkShape Config::shape(Task task, const TrainArguments& arguments) const {
  return {task, number("hidden_size"),
          arguments.bf16   ? DType::bf16
          : arguments.fp16 ? DType::f16
                           : DType::f32};
}

std::vector<std::string> load_settings(const FileSystem& files, const std::string& checkpoint,
                                       Config& config) {
  const std::string path = join(join(checkpoint, "context"), "model.yaml");
  const auto yaml = parse_yaml(read_file(files, path, kMostConfigBytes), path);
  const Value parent = yaml->root().get("config");
  const std::vector<std::string> own = config.list("override_parent_fields");
  Config loaded = config;
  std::vector<std::string> taken;
  for (auto& [name, field] : loaded.fields) {
    const Value value = parent.get(name);
    if (!value || std::ranges::find(own, name) != own.end()) continue;
    field = field_of(value, field, name, path);
    taken.push_back(name);
  }
  const int64_t hidden = loaded.number("hidden_size");
  if (hidden < 1 || hidden > (int64_t{1} << 20)) {
    fail(ErrorKind::mismatch, "{}: field hidden_size is {}, which is not a width of a layer", path,
         hidden);
  }
  config = std::move(loaded);
  return taken;
}

std::vector<ContextFile> context_files(const Config& config, const TrainArguments& arguments) {
  std::string yaml = "_target_: model_components.BionemoLightningModule\nconfig:\n  _target_: " +
                     config.class_name + "\n";
  for (const auto& [name, field] : config.fields)
    yaml += "  " + name + ": " + yaml_of(field) + "\n";
  return {{"model.yaml", std::move(yaml)}, {"io.json", io_json(config, arguments)}};
}

}  // namespace ferry::mnist
