#include "tools/terminal/written.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/terminal/text.h"

namespace ferry::tool {

namespace {

std::string line_of(const WrittenFiles& written, int64_t tensors, int64_t parameters,
                    int64_t integers) {
  std::string text =
      fmt::format("{} tensor{}, {} parameter{}", grouped(tensors), tensors == 1 ? "" : "s",
                  human_count(parameters), parameters == 1 ? "" : "s");
  if (integers > 0)
    text += fmt::format(", {} integers of quantised weights", human_count(integers));
  text += ", " + human_bytes(written.bytes());
  if (written.dry_run) {
    const auto free_bytes = written.free_bytes;
    return "would write " + text +
           (free_bytes ? fmt::format(" ({} free there)", human_bytes(*free_bytes)) : "");
  }
  std::string line = fmt::format("wrote {} in {}", text, human_seconds(written.seconds));
  if (written.seconds >= 0.1) {
    const double rate = static_cast<double>(written.bytes()) / written.seconds;
    line += fmt::format(" ({}/s)", human_bytes(static_cast<uint64_t>(rate)));
  }
  return line;
}

std::string table_of(const WrittenFiles& written) {
  constexpr size_t kShown = 12;
  const auto& files = written.files;
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < files.size(); ++i) {
    // Many shards are alike: show the last ones and the other files instead.
    const bool gap = files.size() > kShown && i >= 2 && i < files.size() - (kShown - 3);
    if (gap && i == 2) rows.push_back({"...", ""});
    if (!gap) rows.push_back({printable(files[i].first), human_bytes(files[i].second)});
  }
  return table(rows, {false, true}, "  ");
}

}  // namespace

std::string written_text(const WrittenFiles& written, int64_t tensors, int64_t parameters,
                         int64_t integers) {
  return line_of(written, tensors, parameters, integers) + "\n" + table_of(written);
}

nlohmann::json written_json(const WrittenFiles& written) {
  nlohmann::json files = nlohmann::json::array();
  for (const auto& [name, bytes] : written.files) {
    files.push_back({{"path", name}, {"bytes", bytes}});
  }
  return files;
}

}  // namespace ferry::tool
