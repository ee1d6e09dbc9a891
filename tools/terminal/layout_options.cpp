#include "tools/terminal/layout_options.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>

#include "tools/terminal/validators.h"

namespace ferry::tool {

void add_layout_options(Command& command, ParallelTarget& layout, const char* silent) {
  const std::string group = fmt::format("Layout (what is not given {})", silent);
  const auto size = [&](const char* names, std::optional<int64_t>& number, const char* text) {
    command.add_option(names, number, text)
        .type_name("N")
        .check(whole_number(1, int64_t{1} << 24))
        .group(group);
  };
  size("--tp,--tensor-model-parallel-size", layout.tensor, "Tensor-parallel ranks");
  size("--pp,--pipeline-model-parallel-size", layout.pipeline, "Pipeline stages");
  size("--vpp,--virtual-pipeline-model-parallel-size", layout.virtual_pipeline,
       "Virtual stages per pipeline stage");
  size("--ep,--expert-model-parallel-size", layout.expert, "Expert-parallel ranks");
  size("--etp,--expert-tensor-parallel-size", layout.expert_tensor,
       "Tensor-parallel ranks of experts (default: --tp if the two were equal)");
  size("--dp,--data-parallel-size", layout.data, "Data-parallel ranks");
  size("--cp,--context-parallel-size", layout.context, "Context-parallel ranks");
  size("--decoder-first-pipeline-num-layers", layout.first_stage_layers,
       "Layers on the first stage, if it differs");
  size("--decoder-last-pipeline-num-layers", layout.last_stage_layers,
       "Layers on the last stage, if it differs");
  command
      .add_option("--pipeline-model-parallel-layout", layout.stage_letters,
                  "Layers of each stage in Megatron-LM's notation: 'Ettt|tt|tL'")
      .type_name("TEXT")
      .group(group);
  command
      .add_flag("--account-for-embedding-in-pipeline-split", layout.embedding_is_a_layer,
                "Count the embedding as a layer of the first stage")
      .group(group);
  command
      .add_flag("--account-for-loss-in-pipeline-split", layout.loss_is_a_layer,
                "Count the loss as a layer of the last stage")
      .group(group);
}

Option add_modules_option(Command& command, std::optional<bool>& transformer_engine) {
  const std::map<std::string, std::optional<bool>> modules = {{"local", false},
                                                              {"transformer_engine", true}};
  return command
      .add_choice(
          "--transformer-impl", transformer_engine, modules,
          "Modules that will load it, which decide the names of norms: transformer_engine or local")
      .type_name("NAME");
}

}  // namespace ferry::tool
