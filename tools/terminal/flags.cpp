#include "tools/terminal/flags.h"

#include <algorithm>
#include <string_view>

#include "ckpt/base/option_name.h"

namespace ferry::tool {
namespace {

struct Flag {
  std::string_view name, value;  // of the option
  std::string_view flag;
};

// Flags that are not called as the option is. A row without value is for those of no other row.
constexpr Flag kFlags[] = {{"config_folder", "", "--config"},
                           {"cut_tokens", "", "--force"},
                           {"data", "", "--dp"},
                           {"ignored_members", "", "--ignore-member"},
                           {"layout", "", "a layout"},
                           {"max_shard_bytes", "", "--max-shard-size"},
                           {"quantise_fp8", "true", "--quantize fp8"},
                           {"quantise_fp8", "", "--quantize"},
                           {"release", "", "--core-release"},
                           {"renames", "", "--rename"},
                           {"to", "hugging_face", "--to hf"},
                           {"tokenizer_folder", "", "--tokenizer"},
                           {"zstd_level", "", "--compress"}};

std::string flag_of(const OptionName& option) {
  const auto row = std::find_if(std::begin(kFlags), std::end(kFlags), [&](const Flag& flag) {
    return flag.name == option.name && (flag.value == option.value || flag.value.empty());
  });
  const bool listed = row != std::end(kFlags);
  if (listed && !row->value.empty()) return std::string(row->flag);
  std::string flag = listed ? std::string(row->flag) : "--" + std::string(option.name);
  if (!listed) std::ranges::replace(flag, '_', '-');
  return option.value.empty() ? flag : flag + " " + std::string(option.value);
}

}  // namespace

std::string in_flags(std::string_view message) { return spell_options(message, flag_of); }

std::vector<std::string> in_flags(const std::vector<std::string>& messages) {
  std::vector<std::string> result;
  for (const std::string& message : messages) result.push_back(in_flags(message));
  return result;
}

}  // namespace ferry::tool
