#include "tools/terminal/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

struct Flag {
  std::string_view name, value;  // of the option
  std::string_view flag;
};

// Flags that are not called as the option is. A row without value is for those of no other row.
constexpr Flag kFlags[] = {
    {"bandwidth_bytes", "", "--bandwidth"},
    {"config_folder", "", "--config"},
    {"context", "", "--cp"},
    {"cut_tokens", "", "--force"},
    {"data", "", "--dp"},
    {"embedding_is_a_layer", "", "--account-for-embedding-in-pipeline-split"},
    {"expert", "", "--ep"},
    {"expert_tensor", "", "--etp"},
    {"first_stage_layers", "", "--decoder-first-pipeline-num-layers"},
    {"gpu_memory_bytes", "", "--gpu-memory"},
    {"ignore_index", "", "--index ignore"},
    {"ignored_members", "", "--ignore-member"},
    {"last_stage_layers", "", "--decoder-last-pipeline-num-layers"},
    {"layout", "", "a layout"},
    {"loss_is_a_layer", "", "--account-for-loss-in-pipeline-split"},
    {"max_shard_bytes", "", "--max-shard-size"},
    {"pipeline", "", "--pp"},
    {"quantise", "", "--quantize"},
    {"release", "", "--core-release"},
    {"renames", "", "--rename"},
    {"stage_letters", "", "--pipeline-model-parallel-layout"},
    {"tensor", "", "--tp"},
    {"to", "hugging_face", "--to hf"},
    {"tokenizer_folder", "", "--tokenizer"},
    {"virtual_pipeline", "", "--vpp"},
    {"zstd_level", "", "--compress"}};

// Members of --json that hold messages: texts, lists of them, or objects that have one.
constexpr std::string_view kMessages[] = {"advice",   "message", "no_plan", "notes",   "problem",
                                          "problems", "reason",  "reasons", "warnings"};

std::string flag_of(const OptionName& option) {
  const auto row = std::find_if(std::begin(kFlags), std::end(kFlags), [&](const Flag& flag) {
    return flag.name == option.name && (flag.value == option.value || flag.value.empty());
  });
  const bool listed = row != std::end(kFlags);
  if (listed && !row->value.empty()) return std::string(row->flag);
  std::string flag = listed ? std::string(row->flag) : "--" + std::string(option.name);
  if (!listed) std::ranges::replace(flag, '_', '-');
  return option.value.empty() ? flag : flag + " " + shell_word(option.value);
}

void put_in_flags(nlohmann::json& value, bool is_message) {
  if (value.is_object()) {
    for (auto& [key, member] : value.items()) {
      put_in_flags(member, std::ranges::find(kMessages, key) != std::end(kMessages));
    }
  } else if (value.is_array()) {
    for (nlohmann::json& element : value) put_in_flags(element, is_message);
  } else if (value.is_string() && is_message) {
    value = in_flags(value.get_ref<const std::string&>());
  }
}

}  // namespace

std::string in_flags(std::string_view message) { return spell_options(message, flag_of); }

void put_in_flags(nlohmann::json& report) { put_in_flags(report, false); }

std::string message_text(std::string_view message, bool keep_newlines) {
  return printable(in_flags(message), keep_newlines);
}

std::string note_lines(const std::vector<std::string>& notes, size_t most) {
  std::string text;
  for (size_t i = 0; i < notes.size() && i < most; ++i) {
    text += "note: " + message_text(notes[i]) + "\n";
  }
  if (notes.size() > most) {
    text += fmt::format("note: {} notes more, with --json\n", notes.size() - most);
  }
  return text;
}

}  // namespace ferry::tool
