#include "tools/estimate/launch_source.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "tools/launch/configuration.h"
#include "tools/launch/presets.h"
#include "tools/launch/training_words.h"
#include "trainer/arguments/parse.h"

namespace ferry::tool {
namespace {

// A launch has to have one, and an estimate asks for none; what is read next replaces it.
constexpr const char* kAnyFolder = "folder=.";
constexpr uint64_t kMostConfigurationBytes = 16 << 20;

// Places and moments of the run that saved a checkpoint, which are nothing of its size.
constexpr std::string_view kOfThatRun[] = {"load",
                                           "save",
                                           "rank",
                                           "tensorboard_dir",
                                           "data_path",
                                           "train_data_path",
                                           "valid_data_path",
                                           "test_data_path",
                                           "data_args_path",
                                           "per_split_data_args_path",
                                           "vocab_file",
                                           "merge_file",
                                           "tokenizer_type",
                                           "tokenizer_model",
                                           "data_cache_path",
                                           "pretrained_checkpoint",
                                           "metrics_json",
                                           "ckpt_step",
                                           "trigger_path",
                                           "use_checkpoint_args",
                                           "dry_run",
                                           "non_persistent_global_ckpt_dir",
                                           "eval_global_batch_size",
                                           "eval_micro_batch_size"};

// A launch's arguments, without those of places, and what it says of the vocabulary.
void take_launch(EstimateSource& source, const LaunchConfiguration& launch,
                 const FileSystem& files) {
  std::vector<std::string> words;
  bool is_known = false;
  std::string left_out;
  for (const std::string& word : training_words(launch)) {
    if (word.starts_with("--")) {
      const ArgumentRow* row = find_flag(std::string_view(word).substr(0, word.find('=')));
      is_known = row != nullptr && is_of_size(*row);
      if (row == nullptr) left_out += " " + word;
    }
    if (is_known) words.push_back(word);
  }
  source.arguments = parse_arguments(words, files);
  source.arguments.data_parallel_size =
      launch.ranks() / std::max<int64_t>(source.arguments.tensor_model_parallel_size *
                                             source.arguments.pipeline_model_parallel_size *
                                             source.arguments.context_parallel_size,
                                         1);
  if (!source.arguments.vocab_size && launch.vocab_size > 0) {
    source.arguments.vocab_size = launch.vocab_size;
  }
  if (!left_out.empty()) source.notes.push_back("left out:" + left_out);
}

}  // namespace

bool is_of_size(const ArgumentRow& row) {
  const bool counts = row.status == ArgumentStatus::used || row.status == ArgumentStatus::fork ||
                      row.status == ArgumentStatus::derived;
  return counts && row.is_bound() &&
         std::ranges::find(kOfThatRun, row.name()) == std::end(kOfThatRun);
}

// A launch configuration has sections; other files are those of --yaml-cfg.
void read_yaml(EstimateSource& source, const std::string& path, const FileSystem& files) {
  const std::string text = read_file(files, path, kMostConfigurationBytes);
  const bool is_launch = text.starts_with("arguments:") || text.starts_with("preset:") ||
                         text.find("\narguments:") != std::string::npos ||
                         text.find("\npreset:") != std::string::npos;
  if (!is_launch) {
    source.arguments = parse_arguments(std::vector<std::string>{"--yaml-cfg", path}, files);
    source.what = "arguments of a YAML file";
    return;
  }
  ConfigurationReader reader;
  reader.set(kAnyFolder);
  reader.take(text, path);
  take_launch(source, reader.finish(), files);
  source.what = "a launch configuration";
}

bool is_preset(const std::string& name) {
  const std::vector<std::string> names = preset_names();
  return std::ranges::find(names, name) != names.end();
}

void read_preset(EstimateSource& source, const std::string& name, const FileSystem& files) {
  ConfigurationReader reader;
  reader.set(kAnyFolder);
  reader.take_preset(name);
  take_launch(source, reader.finish(), files);
  source.what = "preset " + name;
}

}  // namespace ferry::tool
