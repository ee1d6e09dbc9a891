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

bool is_preset(const std::string& name) {
  const std::vector<std::string> names = preset_names();
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

bool is_launch(const std::string& name, const FileSystem& files) {
  const PathKind kind = files.status(name).kind;
  if (kind == PathKind::missing) return is_preset(name);
  if (kind != PathKind::file || !(name.ends_with(".yaml") || name.ends_with(".yml"))) return false;
  // A launch configuration has sections; other files are those of --yaml-cfg.
  const std::string text = read_file(files, name, kMostConfigurationBytes);
  return text.starts_with("arguments:") || text.starts_with("preset:") ||
         text.find("\narguments:") != std::string::npos ||
         text.find("\npreset:") != std::string::npos;
}

EstimateSource read_launch_source(const std::string& name, std::span<const std::string> words,
                                  const FileSystem& files) {
  EstimateSource source;
  source.arguments = default_arguments();
  ConfigurationReader reader;
  reader.set(kAnyFolder);
  if (files.status(name).kind == PathKind::missing) {
    reader.take_preset(name);
    source.what = "preset " + name;
  } else {
    reader.take(read_file(files, name, kMostConfigurationBytes), name);
    source.what = "a launch configuration";
  }
  take_launch(source, reader.finish(), files);
  take_words(source, words, files);
  return source;
}

}  // namespace ferry::tool
