// What `ferry inspect` prints of runs, training states and MTP layers.
#include <fmt/format.h>

#include <algorithm>

#include "tools/inspect/inspect_report.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr size_t kIterationsShown = 8;
constexpr size_t kModulesShown = 12;

}  // namespace

std::string to_text(const RunFacts& run) {
  std::string text = grouped(static_cast<int64_t>(run.iterations.size())) + ": ";
  const size_t count = run.iterations.size();
  if (count > kIterationsShown) text += "..., ";
  for (size_t i = count - std::min(count, kIterationsShown); i < count; ++i) {
    text += (i + 1 < count ? fmt::format("{}, ", run.iterations[i])
                           : std::to_string(run.iterations[i]));
  }
  if (run.release) text += count > 0 ? ", release" : "release";
  return text + (run.tracker.empty() ? " (no tracker)"
                                     : fmt::format(" (the tracker names {})", run.tracker));
}

std::string to_text(const TrainingFacts& training) {
  const TrainingFolder& folder = training.folder;
  if (!folder.step) return {};
  std::string text = "step " + grouped(*folder.step);
  if (folder.last_step && *folder.last_step > 0) text += " of " + grouped(*folder.last_step);
  if (folder.epoch) text += fmt::format(", epoch {:.6g}", *folder.epoch);
  return training.program.empty() ? text : text + fmt::format(" ({})", training.program);
}

std::string to_text(const std::vector<TrainingPart>& parts) {
  std::string text;
  for (const TrainingPart& part : parts) {
    text += (text.empty() ? "" : ", ") + part.name + (part.is_folder ? "/" : "");
    if (part.count > 1) text += fmt::format(" ({})", part.count);
  }
  return text;
}

std::string to_text(const PredictionLayers& prediction) {
  std::string text = human_count(prediction.parameters) + " parameters in ";
  for (size_t i = 0; i < prediction.modules.size() && i < kModulesShown; ++i) {
    text += (i > 0 ? ", " : "") + prediction.modules[i];
  }
  if (prediction.modules.size() > kModulesShown) text += ", ...";
  return text;
}

}  // namespace ferry::tool
