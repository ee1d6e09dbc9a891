#include "tools/launch/training_words.h"

#include <algorithm>

#include "ckpt/base/error.h"
#include "tools/terminal/text.h"
#include "trainer/arguments/argument_row.h"

namespace ferry::tool {
namespace {

// Parsers take such a word for the name of an argument.
bool looks_like_a_name(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         word.find_first_not_of("-+.0123456789eE") != std::string::npos;
}

class TrainingWords {
 public:
  void add(const NamedArgument& argument) {
    const std::string flag = "--" + argument.name;
    if (argument.is_left_out) return;
    const ArgumentRow* row = find_flag(flag);
    if (argument.is_off) {
      const std::string no = "--no-" + argument.name;
      const bool has_no = row != nullptr && row->kind == ArgumentKind::either;
      if (has_no) words_.push_back(no);
      return;
    }
    const auto& values = argument.values;
    if (values.size() == 1 && (looks_like_a_name(values[0]) || values[0].empty())) {
      words_.push_back(flag + "=" + values[0]);
      return;
    }
    words_.push_back(flag);
    for (const std::string& value : values) {
      if (looks_like_a_name(value)) {
        fail(ErrorKind::invalid, "arguments: {}: '{}' in a list would be taken for an argument",
             argument.name, printable(value));
      }
      words_.push_back(value);
    }
  }

  std::vector<std::string> take() { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

// Under any of its names.
const NamedArgument* given_argument(const LaunchConfiguration& configuration,
                                    const std::string& name) {
  const ArgumentRow* row = find_flag("--" + name);
  for (const NamedArgument& argument : configuration.arguments) {
    if (argument.name == name || (row != nullptr && find_flag("--" + argument.name) == row)) {
      return &argument;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> training_words(const LaunchConfiguration& c) {
  TrainingWords words;
  for (const NamedArgument& argument : c.arguments) words.add(argument);
  const auto add = [&](const std::string& name, std::vector<std::string> values = {}) {
    if (given_argument(c, name) == nullptr) words.add({name, std::move(values)});
  };
  const NamedArgument* save = given_argument(c, "save");
  const bool saves = save == nullptr || (!save->is_left_out && !save->values.empty());
  const std::string folder = save != nullptr && saves ? save->values[0] : c.folder + "/checkpoints";
  if (saves) {
    add("save", {folder});
    add("load", {folder});
    add("log-progress");
  }
  add("tensorboard-dir", {c.folder + "/logging/tensorboard"});
  add("exit-signal-handler");
  add("exit-signal", {c.exit_signal});
  if (c.triggers) add("trigger-path", {c.folder + "/triggers"});
  std::vector<std::string> all = words.take();
  all.insert(all.end(), c.words.begin(), c.words.end());
  return all;
}

}  // namespace ferry::tool
