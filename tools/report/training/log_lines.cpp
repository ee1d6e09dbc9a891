#include "tools/report/training/log_lines.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr size_t kMostFigures = 64, kMostName = 80;  // of a line; bytes
constexpr size_t kDateBytes = 19;                    // "2026-11-22 06:27:19"
constexpr size_t kMostErrorText = 200;               // bytes

using FigureNames = std::pair<std::string_view, std::string_view>;
// Names in the log, and in --metrics-json.
constexpr std::array kFigureNames = {
    FigureNames{"elapsed time per iteration (ms)", "milliseconds"},
    FigureNames{"throughput per GPU (TFLOP/s/GPU)", "teraflops"},
    FigureNames{"learning rate", "learning_rate"},
    FigureNames{"global batch size", "global_batch_size"},
    FigureNames{"consumed samples", "consumed_samples"},
    FigureNames{"skipped samples", "skipped_samples"},
    FigureNames{"loss scale", "loss_scale"},
    FigureNames{"grad norm", "grad_norm"},
    FigureNames{"num zeros", "num_zeros"},
    FigureNames{"params norm", "params_norm"},
    FigureNames{"number of skipped iterations", "skipped_iterations"},
    FigureNames{"number of nan iterations", "nan_iterations"}};

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// All of `text` as a number; Python writes NaN as nan, or NAN.
std::optional<double> number_of(std::string_view text) {
  text = trimmed(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || text.empty()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::numeric_limits<double>::infinity();
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// Reads a whole number, after optional blanks, from the start of `text` and removes it.
std::optional<int64_t> take_whole(std::string_view& text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

// What follows `words` in `line`.
std::optional<std::string_view> after(std::string_view line, std::string_view words) {
  const size_t at = line.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + words.size());
}

bool is_date(std::string_view text) {
  constexpr std::string_view kForm = "dddd-dd-dd dd:dd:dd";
  if (text.size() < kDateBytes) return false;
  for (size_t i = 0; i < kDateBytes; ++i) {
    const bool is_digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == 'd' ? !is_digit : text[i] != kForm[i]) return false;
  }
  return true;
}

// The last date in `text`, which may have a fraction of a second.
std::string date_in(std::string_view text) {
  for (size_t at = text.rfind('-'); at != std::string_view::npos && at > 0;
       at = text.rfind('-', at - 1)) {
    if (at >= 7 && is_date(text.substr(at - 7)))
      return std::string(text.substr(at - 7, kDateBytes));
  }
  return "";
}

void add_figure(LogRecord& record, std::string_view name, double value) {
  if (name.empty() || name.size() > kMostName || record.figures.size() >= kMostFigures) return;
  record.figures.emplace_back(name, value);
}

bool is_loss(std::string_view name) {
  for (const auto& [in_log, in_json] : kFigureNames) {
    if (name == in_json) return false;
  }
  return true;
}

// Where all iterations of a line were skipped, Megatron-LM prints losses of 0.
void drop_losses_of_none(LogRecord& record) {
  double skipped = 0;
  for (const auto& [name, value] : record.figures) {
    if (name == "skipped_iterations") skipped = value;
  }
  if (skipped <= 0) return;
  std::erase_if(record.figures,
                [](const auto& figure) { return figure.second == 0 && is_loss(figure.first); });
}

// It prints none where they were NaN, but counts such iterations.
void add_loss_of_nan(LogRecord& record) {
  double nan = 0;
  bool has_loss = false;
  for (const auto& [name, value] : record.figures) {
    if (name == "nan_iterations") nan = value;
    has_loss = has_loss || is_loss(name);
  }
  if (nan > 0 && !has_loss) add_figure(record, "lm loss", std::numeric_limits<double>::quiet_NaN());
}

// "ferry: error: ...", which is the end of a job.
LogRecord error_record(std::string_view error) {
  LogRecord record;
  record.kind = LogRecord::Kind::exit;
  record.text = "error: " + shortened(std::string(error), kMostErrorText);
  auto of_loss = error.find(" is not finite") == std::string_view::npos
                     ? std::nullopt
                     : after(error, "the loss of iteration ");
  const auto iteration = of_loss ? take_whole(*of_loss) : std::nullopt;
  if (!iteration) return record;
  record.iteration = *iteration;
  add_figure(record, "lm loss", std::numeric_limits<double>::quiet_NaN());
  return record;
}

// "iteration 5/ 30 | consumed samples: 40 | ... |"
LogRecord training_record(std::string_view line, std::string_view fields) {
  LogRecord record;
  const auto iteration = take_whole(fields);
  if (!iteration || !fields.starts_with('/')) return {};
  fields.remove_prefix(1);
  record.planned = take_whole(fields).value_or(0);
  record.iteration = *iteration;
  record.when = date_in(line.substr(0, line.size() - fields.size()));
  while (true) {
    const size_t bar = fields.find('|');
    const std::string_view field = fields.substr(0, bar);
    if (const size_t colon = field.find(':'); colon != std::string_view::npos) {
      std::string_view name = trimmed(field.substr(0, colon));
      for (const auto& [in_log, in_json] : kFigureNames) {
        if (name == in_log) name = in_json;
      }
      if (const auto value = number_of(field.substr(colon + 1))) add_figure(record, name, *value);
    }
    if (bar == std::string_view::npos) break;  // a line that was cut has no bar at its end
    fields.remove_prefix(bar + 1);
  }
  drop_losses_of_none(record);
  add_loss_of_nan(record);
  if (!record.figures.empty()) record.kind = LogRecord::Kind::figures;
  return record;
}

// " validation loss at iteration 1000 on validation set | lm loss value: 2.3E+00 | lm loss PPL:
// ..."
LogRecord validation_record(std::string_view line, std::string_view at) {
  LogRecord record;
  auto rest = after(at, "iteration ");
  const auto iteration = rest ? take_whole(*rest) : std::nullopt;
  if (!iteration) return {};
  record.iteration = *iteration;
  record.is_validation = true;
  record.when = date_in(line.substr(0, static_cast<size_t>(at.data() - line.data())));
  const bool is_test = rest->substr(0, rest->find('|')).find("test set") != std::string_view::npos;
  while (const auto next = after(*rest, "|")) {
    rest = next;
    const std::string_view field = rest->substr(0, rest->find('|'));
    const size_t value_at = field.find(" value:");
    if (value_at == std::string_view::npos) continue;
    const auto value = number_of(field.substr(value_at + 7));
    const std::string name(trimmed(field.substr(0, value_at)));
    if (value) add_figure(record, name + (is_test ? " test" : " validation"), *value);
  }
  if (!record.figures.empty()) record.kind = LogRecord::Kind::figures;
  return record;
}

LogRecord json_record(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  const auto found = json.is_object() ? json.find("iteration") : json.end();
  if (found == json.end() || !found->is_number_integer()) return {};
  LogRecord record;
  record.is_json = true;
  record.iteration = found->is_number_unsigned() && found->get<uint64_t>() > INT64_MAX
                         ? -1
                         : found->get<int64_t>();
  if (record.iteration < 0) return {};
  for (const auto& [name, value] : json.items()) {
    if (name == "iteration") continue;
    if (value.is_number()) add_figure(record, name, value.get<double>());
    if (value.is_null()) add_figure(record, name, std::numeric_limits<double>::quiet_NaN());
    record.is_validation = record.is_validation || name.ends_with(" validation");
  }
  if (!record.figures.empty()) record.kind = LogRecord::Kind::figures;
  return record;
}

// Fields between tabs: when, job, ranks, message, "Iteration: 100", ...
LogRecord progress_record(std::string_view line) {
  LogRecord record;
  if (is_date(line)) record.when = line.substr(0, kDateBytes);
  if (line.find("\tStarting job") != std::string_view::npos) {
    record.kind = LogRecord::Kind::job_began;
    return record;
  }
  auto rest = after(line, "\tIteration: ");
  if (line.find("\tSaved ") == std::string_view::npos || !rest) return {};
  const auto iteration = take_whole(*rest);
  if (!iteration) return {};
  record.iteration = *iteration;
  record.kind = LogRecord::Kind::saved;
  return record;
}

LogRecord event_record(std::string_view line) {
  LogRecord record;
  if (auto rest = after(line, "successfully saved checkpoint from iteration")) {
    const auto iteration = take_whole(*rest);
    if (!iteration) return {};
    record.iteration = *iteration;
    record.kind = LogRecord::Kind::saved;
  } else if (line.find("[before the start of training step]") != std::string_view::npos) {
    record.kind = LogRecord::Kind::job_began;
    record.when = date_in(line);
  } else if (const auto why = after(line, "[exiting program")) {
    record.kind = LogRecord::Kind::exit;
    record.text = "exiting program" + std::string(why->substr(0, why->find(']')));
    record.when = date_in(line);
  } else if (const auto error = after(line, "ferry: error: ")) {
    return error_record(*error);
  } else if (auto dots = after(line, " seq_length ..")) {
    dots->remove_prefix(std::min(dots->find_first_not_of('.'), dots->size()));
    const auto length = take_whole(*dots);
    if (!length) return {};
    record.iteration = *length;
    record.kind = LogRecord::Kind::sequence_length;
  }
  return record;
}

}  // namespace

LogRecord read_log_line(std::string_view line) {
  // A file that was emptied while it was written has a hole before the next line.
  line.remove_prefix(std::min(line.find_first_not_of('\0'), line.size()));
  const std::string_view text = trimmed(line);
  if (text.starts_with('{')) return json_record(text);
  if (line.find("\tJob ID: ") != std::string_view::npos) return progress_record(line);
  if (const auto at = after(line, "validation loss at ")) return validation_record(line, *at);
  if (text.starts_with("iteration ")) return training_record(line, *after(line, "iteration "));
  if (const auto rest = after(line, "] iteration ")) return training_record(line, *rest);
  if (const auto rest = after(line, ": iteration ")) return training_record(line, *rest);
  return event_record(line);
}

}  // namespace ferry::tool
