#include "trainer/arguments/option_words.h"

#include <algorithm>
#include <optional>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

struct OptionWord {
  std::string_view name, argument;
};

constexpr OptionWord kOptionWords[] = {
    {"embedding_is_a_layer", "--account-for-embedding-in-pipeline-split"},
    {"first_stage_layers", "--decoder-first-pipeline-num-layers"},
    {"iteration", "--ckpt-step"},
    {"last_stage_layers", "--decoder-last-pipeline-num-layers"},
    {"loss_is_a_layer", "--account-for-loss-in-pipeline-split"},
    {"pipeline", "--pipeline-model-parallel-size"},
    {"stage_letters", "--pipeline-model-parallel-layout"},
    {"virtual_pipeline", "--num-virtual-stages-per-pipeline-rank"}};

std::optional<std::string> argument_of(const OptionName& option) {
  const auto row = std::ranges::find(kOptionWords, option.name, &OptionWord::name);
  if (row == std::end(kOptionWords)) return std::nullopt;
  std::string text(row->argument);
  if (option.value.empty()) return text;
  const bool is_word = option.value.find_first_of(" '\"|*") == std::string_view::npos;
  const std::string quote = is_word ? "" : "'";
  return text + " " + quote + std::string(option.value) + quote;
}

}  // namespace

std::string in_arguments(std::string_view message) { return spell_options(message, argument_of); }

}  // namespace ferry
