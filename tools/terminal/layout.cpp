#include "tools/terminal/layout.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/terminal/text.h"

namespace ferry::tool {

std::string layout_text(const ParallelLayout& layout) {
  std::string text;
  const auto add = [&](std::string_view word, int64_t size, int64_t least) {
    if (size >= least) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", word, size);
  };
  add("TP", layout.tensor, 1);
  add("PP", layout.pipeline, 1);
  add("VPP", layout.virtual_pipeline, 2);
  add("EP", layout.expert, 2);
  if (layout.expert > 1) add("ETP", layout.expert_tensor, 1);
  add("CP", layout.context, 2);
  add("DP", layout.data, 1);
  if (layout.world_size == 0) return text;
  return fmt::format("{}{}{} rank{}", text, text.empty() ? "" : " on ", grouped(layout.world_size),
                     layout.world_size == 1 ? "" : "s");
}

nlohmann::json layout_json(const ParallelLayout& layout) {
  using nlohmann::json;
  const auto known = [](int64_t size) { return size > 0 ? json(size) : json(nullptr); };
  return {{"tensor_parallel", known(layout.tensor)},
          {"pipeline_parallel", known(layout.pipeline)},
          {"virtual_pipeline", known(layout.virtual_pipeline)},
          {"expert_parallel", known(layout.expert)},
          {"expert_tensor_parallel", known(layout.expert_tensor)},
          {"data_parallel", known(layout.data)},
          {"context_parallel", known(layout.context)},
          {"world_size", known(layout.world_size)}};
}

}  // namespace ferry::tool
