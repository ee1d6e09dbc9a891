#include "trainer/arguments/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "ckpt/base/error.h"
#include "trainer/arguments/argument_row.h"

namespace ferry {
namespace {

constexpr std::string_view kOfAHost[] = {"after_save",
                                         "data_args_path",
                                         "data_cache_path",
                                         "data_path",
                                         "device",
                                         "load",
                                         "merge_file",
                                         "metrics_json",
                                         "save",
                                         "staging_memory",
                                         "tensorboard_dir",
                                         "non_persistent_global_ckpt_dir",
                                         "test_data_path",
                                         "tokenizer_model",
                                         "train_data_path",
                                         "per_split_data_args_path",
                                         "trigger_path",
                                         "pretrained_checkpoint",
                                         "valid_data_path",
                                         "vocab_file"};

bool is_compared(const ArgumentRow& row) {
  return row.is_bound() && row.name() != "rank" &&
         (row.status == ArgumentStatus::used || row.status == ArgumentStatus::fork ||
          row.status == ArgumentStatus::derived);
}

std::vector<std::string_view> lines_of_agreement(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

}  // namespace

std::string agreement_text(const TrainArguments& arguments) {
  std::string text;
  for (const ArgumentRow& row : argument_rows()) {
    if (!is_compared(row)) continue;
    const std::string name = row.name();
    std::string value = python_text(row.kind, value_of(arguments, row));
    const bool is_of_host = std::ranges::find(kOfAHost, name) != std::end(kOfAHost);
    if (is_of_host && value != "None") value = "(given)";
    std::ranges::replace(value, '\n', ' ');
    text += fmt::format("{} {}\n", row.flags.empty() ? name : row.flag(), value);
  }
  return text;
}

void check_agreement(const std::string& own, const std::string& first, int rank) {
  constexpr size_t kMostNamed = 4;
  const auto ours = lines_of_agreement(own), theirs = lines_of_agreement(first);
  std::string here, there;
  size_t count = 0;
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    if (ours[i] == theirs[i] || ++count > kMostNamed) continue;
    here += fmt::format("{}{}", count == 1 ? "" : ", ", ours[i]);
    there += fmt::format("{}{}", count == 1 ? "" : ", ", theirs[i]);
  }
  if (count == 0 && ours.size() == theirs.size()) return;
  fail(ErrorKind::mismatch,
       "ranks were given different arguments: rank {} has {}{}, and rank 0 {}. Start all with the "
       "same arguments, and the same ferry",
       rank, count == 0 ? "others" : here, count > kMostNamed ? " and more" : "",
       count == 0 ? "not" : there);
}

}  // namespace ferry
