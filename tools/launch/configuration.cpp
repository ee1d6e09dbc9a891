#include "tools/launch/configuration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/config/yaml.h"
#include "ops/output/paths.h"
#include "tools/launch/configuration_keys.h"
#include "tools/launch/presets.h"
#include "tools/terminal/text.h"
#include "tools/terminal/validators.h"
#include "trainer/arguments/argument_row.h"

namespace ferry::tool {
namespace {

constexpr std::string_view kArguments = "arguments";

// As words of a command line.
std::string text_of(const Value& value, const std::string& where) {
  switch (value.kind()) {
    case ValueKind::boolean:
      return *value.boolean() ? "true" : "false";
    case ValueKind::string: {
      const std::string text(value.string().value_or(""));
      if (text.find('\0') != std::string::npos) {
        fail(ErrorKind::invalid, "{}: a text with a zero byte cannot be handed to a program",
             where);
      }
      return text;
    }
    default:
      fail(ErrorKind::invalid, "{}: must be one text or number", where);
  }
}

std::vector<std::string> texts_of(const Value& value, const std::string& where) {
  if (value.kind() != ValueKind::list) return {text_of(value, where)};
  std::vector<std::string> texts;
  for (size_t i = 0; i < value.size(); ++i) texts.push_back(text_of(value[i], where));
  return texts;
}

std::vector<std::string> words_in(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

void set_text(std::string& member, const ConfigurationKey& key, const Value& value,
              const std::string& where) {
  std::string text = value.is_none() ? "" : text_of(value, where);
  const std::vector<std::string> words = words_in(key.choices);
  if (!words.empty() && std::find(words.begin(), words.end(), text) == words.end()) {
    fail(ErrorKind::invalid, "{}: '{}' is none of {}", where, printable(text), key.choices);
  }
  member = std::move(text);
}

void set_number(int64_t& member, const ConfigurationKey& key, const Value& value,
                const std::string& where) {
  const std::vector<std::string> bounds = words_in(key.choices);
  const int64_t least = std::stoll(bounds.at(0)), most = std::stoll(bounds.at(1));
  std::string text(value.string().value_or(""));
  if (!whole_number(least, most)(text).empty()) {
    fail(ErrorKind::invalid, "{}: must be a whole number from {} to {}", where, least, most);
  }
  member = std::stoll(text);
}

void set_pair(Pairs& pairs, const std::string& name, std::string text) {
  const auto same = [&](const auto& pair) { return pair.first == name; };
  const auto found = std::find_if(pairs.begin(), pairs.end(), same);
  if (found == pairs.end()) {
    pairs.emplace_back(name, std::move(text));
  } else {
    found->second = std::move(text);
  }
}

void set_pairs(Pairs& member, const Value& value, const std::string& where) {
  if (value.is_none()) return;
  if (value.kind() != ValueKind::dict) {
    fail(ErrorKind::invalid, "{}: must be names with values (NAME: VALUE)", where);
  }
  for (size_t i = 0; i < value.pair_count(); ++i) {
    const std::string name(value.pair_key(i).string().value_or(""));
    if (value.pair_value(i).is_none()) {
      std::erase_if(member, [&](const auto& pair) { return pair.first == name; });
    } else {
      set_pair(member, name, text_of(value.pair_value(i), where + "." + name));
    }
  }
}

void set_member(LaunchConfiguration& configuration, const ConfigurationKey& key, const Value& value,
                const std::string& where) {
  const auto set = [&](auto pointer) {
    auto& member = configuration.*pointer;
    using Member = std::remove_reference_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, std::string>) {
      set_text(member, key, value, where);
    } else if constexpr (std::is_same_v<Member, bool>) {
      if (value.kind() != ValueKind::boolean) {
        fail(ErrorKind::invalid, "{}: must be true or false", where);
      }
      member = *value.boolean();
    } else if constexpr (std::is_same_v<Member, int64_t>) {
      set_number(member, key, value, where);
    } else if constexpr (std::is_same_v<Member, Pairs>) {
      set_pairs(member, value, where);
    } else {
      member = value.is_none() ? std::vector<std::string>() : texts_of(value, where);
    }
  };
  std::visit(set, key.member);
}

bool is_section(const std::string& name) {
  return std::ranges::any_of(configuration_keys(), [&](const ConfigurationKey& key) {
    return key.name.starts_with(name + ".");
  });
}

[[noreturn]] void fail_unknown(const std::string& key, const std::string& what) {
  const std::string nearest = nearest_key(key);
  fail(ErrorKind::invalid, "{}: {} is not a key of a launch{}{}", what, printable(key),
       nearest.empty() ? "" : "; the nearest is ", nearest);
}

// "save_interval", "--save-interval" and "save-interval" are one.
std::string argument_name(std::string name) {
  name.erase(0, name.find_first_not_of('-'));
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// One argument spelled in two ways in one file: the first would have no effect.
void refuse_two_spellings(const Value& arguments, const std::string& what) {
  std::map<std::string, std::string> spellings;
  for (size_t i = 0; i < arguments.pair_count(); ++i) {
    const std::string key(arguments.pair_key(i).string().value_or(""));
    const auto [first, is_new] = spellings.emplace(argument_name(key), key);
    if (is_new) continue;
    fail(ErrorKind::invalid, "{}: arguments: {} and {} are one argument; remove one of the two",
         what, printable(first->second), printable(key));
  }
}

// What --set gives is text as it stands, so that nobody needs YAML's quotes besides the shell's.
// Only lists, mappings, true, false, null and nothing at all are read as in a file.
std::shared_ptr<const Document> value_of_set(std::string_view text, const std::string& what) {
  const auto is_between = [&](char first, char last) {
    return text.starts_with(first) && text.ends_with(last);
  };
  const bool is_yaml = text.empty() || text == "true" || text == "false" || text == "null" ||
                       is_between('[', ']') || is_between('{', '}');
  if (is_yaml) return parse_yaml(text, what, YamlNumbers::text);
  Draft draft;
  const Value value = draft.string(text);
  return std::move(draft).finish(value).document;
}

bool has_control(std::string_view text) {
  return std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

}  // namespace

void ConfigurationReader::take(std::string_view yaml, const std::string& what) {
  const auto document = parse_yaml(yaml, what, YamlNumbers::text);
  const Value root = document->root();
  if (root.is_none()) return;
  if (root.kind() != ValueKind::dict) {
    fail(ErrorKind::invalid, "{}: is not a mapping of keys to values", what);
  }
  if (root.has("preset")) take_preset(text_of(root.get("preset"), what + ": preset"));
  take_section(root, "", what);
}

void ConfigurationReader::take_preset(const std::string& name) {
  constexpr int kMostDepth = 8;
  if (++depth_ > kMostDepth) {
    fail(ErrorKind::invalid, "preset {}: presets name each other without end", name);
  }
  take(preset(name), "preset " + name);
  --depth_;
}

void ConfigurationReader::set(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) {
    fail(ErrorKind::invalid, "--set {}: expected KEY=VALUE; a configuration FILE goes before --set",
         printable(word));
  }
  const std::string key = word.substr(0, equals), what = "--set " + key;
  const std::string text = word.substr(equals + 1);
  if (key == "preset") {
    fail(ErrorKind::invalid, "--set preset: a preset comes first; give it as --preset");
  }
  const size_t dot = key.find('.');
  const std::string section = key.substr(0, dot);
  if (section == "environment" && dot != std::string::npos) {
    return set_pair(configuration_.environment, key.substr(dot + 1), text);
  }
  const auto document = value_of_set(text, what);
  if (section == kArguments && dot != std::string::npos) {
    take_argument(key.substr(dot + 1), document->root(), what);
  } else {
    take_value(key, document->root(), "--set");
  }
}

void ConfigurationReader::take_section(const Value& section, const std::string& prefix,
                                       const std::string& what) {
  for (size_t i = 0; i < section.pair_count(); ++i) {
    const std::string name(section.pair_key(i).string().value_or(""));
    const std::string key = prefix.empty() ? name : prefix + "." + name;
    if (key != "preset") take_value(key, section.pair_value(i), what);
  }
}

void ConfigurationReader::take_value(const std::string& key, const Value& value,
                                     const std::string& what) {
  if (const ConfigurationKey* row = find_key(key)) {
    return set_member(configuration_, *row, value, what + ": " + key);
  }
  const bool is_mapping = value.kind() == ValueKind::dict;
  if (key == kArguments || is_section(key)) {
    if (value.is_none()) return;
    if (!is_mapping) fail(ErrorKind::invalid, "{}: {} is a section of keys", what, key);
    if (key != kArguments) return take_section(value, key, what);
    refuse_two_spellings(value, what);
    for (size_t i = 0; i < value.pair_count(); ++i) {
      take_argument(std::string(value.pair_key(i).string().value_or("")), value.pair_value(i),
                    what + ": arguments");
    }
    return;
  }
  fail_unknown(key, what);
}

void ConfigurationReader::take_argument(std::string name, const Value& value,
                                        const std::string& what) {
  name = argument_name(std::move(name));
  const std::string flag = "--" + name;
  if (find_flag(flag) == nullptr) {
    const std::string nearest = nearest_flag(flag);
    fail(ErrorKind::invalid, "{}: {} is not an argument of training{}{}", what, printable(flag),
         nearest.empty() ? "" : "; the nearest is ", nearest);
  }
  std::erase_if(configuration_.arguments, [&](const auto& other) { return other.name == name; });
  NamedArgument argument{name, {}};
  argument.is_left_out = value.is_none();
  if (value.kind() == ValueKind::boolean) {
    argument.is_off = !*value.boolean();
  } else if (!value.is_none()) {
    argument.values = texts_of(value, what + "." + name);
    if (argument.values.empty()) fail(ErrorKind::invalid, "{}: {} has an empty list", what, name);
  }
  configuration_.arguments.push_back(std::move(argument));
}

LaunchConfiguration ConfigurationReader::finish() {
  LaunchConfiguration& c = configuration_;
  const auto is_of_a_name = [](unsigned char x) {
    return std::isalnum(x) != 0 || x == '-' || x == '_' || x == '.';
  };
  if (c.name.empty() || c.name.size() > 63 || !std::ranges::all_of(c.name, is_of_a_name) ||
      std::isalnum(static_cast<unsigned char>(c.name[0])) == 0) {
    fail(ErrorKind::invalid,
         "name: '{}' cannot name jobs: up to 63 letters, digits, and . _ - after the first",
         printable(c.name));
  }
  if (c.folder.empty()) {
    fail(ErrorKind::invalid,
         "folder is missing: the folder of the experiment; give --set folder=PATH");
  }
  if (has_control(c.folder)) {
    fail(ErrorKind::invalid, "folder: '{}' has control characters", printable(c.folder));
  }
  c.folder = absolute(c.folder);
  while (c.folder.size() > 1 && c.folder.ends_with('/')) c.folder.pop_back();
  for (const auto& [name, value] : c.environment) {
    const auto is_of_a_variable = [](unsigned char x) { return std::isalnum(x) != 0 || x == '_'; };
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0 ||
        !std::ranges::all_of(name, is_of_a_variable)) {
      fail(ErrorKind::invalid, "environment: '{}' is not a name of a variable", printable(name));
    }
  }
  if (c.program == "megatron" && c.code.empty()) {
    fail(ErrorKind::invalid, "program.code: where is Megatron-LM? Give its folder");
  }
  if (c.container != "none" && c.image.empty()) {
    fail(ErrorKind::invalid, "container.image: {} needs an image", c.container);
  }
  return c;
}

std::string configuration_help() {
  std::string text;
  for (const ConfigurationKey& key : configuration_keys()) {
    const bool is_number = std::holds_alternative<int64_t LaunchConfiguration::*>(key.member);
    text += fmt::format("  {:<27} {}{}\n", key.name, key.meaning,
                        key.choices.empty() || is_number ? "" : fmt::format(" ({})", key.choices));
  }
  return text + fmt::format(
                    "  {:<27} {}\n", "arguments",
                    "Megatron-LM's arguments: save-interval: 100; true for a flag, null to remove");
}

}  // namespace ferry::tool
