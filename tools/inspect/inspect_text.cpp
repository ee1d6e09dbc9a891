// The people's half of `ferry inspect`.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ckpt/base/utf8.h"
#include "ckpt/megatron/optimizer/masters/compare.h"
#include "ckpt/megatron/optimizer/masters/remainders.h"
#include "convert/adapters.h"
#include "ops/inspect/optimizer_kinds.h"
#include "tools/inspect/inspect_report.h"
#include "tools/terminal/flags.h"
#include "tools/terminal/layout.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr size_t kFilesShown = 6;
constexpr size_t kDtypesShown = 4;
constexpr size_t kLineWidth = 96;
constexpr size_t kValueWidth = 400;

std::string_view description(Format format) {
  switch (format) {
    case Format::torch_dist:
      return "Megatron-LM distributed checkpoint";
    case Format::dcp:
      return "PyTorch distributed checkpoint";
    case Format::fsdp_dtensor:
      return "Megatron-LM checkpoint of Megatron-FSDP";
    case Format::torch_dcp:
      return "Megatron-LM checkpoint of PyTorch FSDP2";
    case Format::megatron_torch:
      return "Megatron-LM legacy checkpoint";
    case Format::nemo:
      return "NeMo 2 checkpoint";
    case Format::hugging_face:
      return "Hugging Face model";
    case Format::safetensors:
      return "safetensors file";
    case Format::torch_file:
      return "torch.save file";
    case Format::fsdp:
      return "files of FSDP's ranks";
    case Format::deepspeed:
      return "DeepSpeed checkpoint";
  }
  return "";
}

std::string plural(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(count), noun, count == 1 ? "" : "s");
}

// Parts that are not empty, with ", " between them.
std::string listed(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

std::string when(int64_t value, std::string_view format) {
  return value > 0 ? fmt::format(fmt::runtime(format), value) : "";
}

std::string attention(const ModelSummary& model) {
  if (model.heads <= 0) return "";
  std::string text = plural(model.heads, "head");
  if (model.head_dim > 0) text += fmt::format(" of {}", model.head_dim);
  if (model.kv_heads > 0 && model.kv_heads != model.heads) {
    text += fmt::format(" ({} key-value)", model.kv_heads);
  }
  return text;
}

std::string shape(const ModelSummary& model) {
  return listed({model.layers > 0 ? plural(model.layers, "layer") : "",
                 when(model.hidden, "hidden {}"), attention(model),
                 when(model.ffn_hidden, "ffn {}"),
                 model.mtp_layers > 0 ? plural(model.mtp_layers, "MTP layer") : ""});
}

std::string experts(const ModelSummary& model) {
  if (model.experts <= 0) return "";
  return listed({when(model.experts, "{} experts"), when(model.experts_per_token, "{} a token"),
                 when(model.expert_ffn_hidden, "ffn {}"),
                 when(model.shared_expert_ffn_hidden, "shared ffn {}")});
}

std::string vocabulary(const ModelSummary& model) {
  if (model.padded_vocab <= 0 && model.vocab <= 0) return "";
  const bool padded = model.vocab > 0 && model.padded_vocab > model.vocab;
  return listed({grouped(model.vocab > 0 ? model.vocab : model.padded_vocab) +
                     (padded ? " padded to " + grouped(model.padded_vocab) : ""),
                 model.tied_embeddings ? "tied embeddings" : "",
                 model.sequence > 0 ? "sequence " + grouped(model.sequence) : ""});
}

// "BF16", or "BF16 x 56, F32 x 3" with the most frequent first.
std::string dtypes(const TensorGroup& group) {
  std::vector<std::pair<std::string, int64_t>> all(group.dtypes.begin(), group.dtypes.end());
  if (all.size() == 1) return all.front().first;
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> parts;
  for (size_t i = 0; i < all.size() && i < kDtypesShown; ++i) {
    parts.push_back(fmt::format("{} x {}", all[i].first, all[i].second));
  }
  if (all.size() > kDtypesShown) parts.push_back(fmt::format("{} more", all.size() - kDtypesShown));
  return listed(parts);
}

// `value` on lines of at most kLineWidth columns, the second and later ones indented.
std::string wrapped(const std::string& value, std::string_view indent) {
  std::string text, current;
  size_t at = 0;
  while (at < value.size()) {
    const size_t end = std::min(value.find(' ', at), value.size());
    const std::string word = value.substr(at, end - at);
    if (!current.empty() && indent.size() + current.size() + 1 + word.size() > kLineWidth) {
      text += current + "\n" + std::string(indent);
      current.clear();
    }
    current += (current.empty() ? "" : " ") + word;
    at = end + 1;
  }
  return text + current;
}

// "4.00 B, of which 3.50 B are 4-bit values packed in 437.5 M elements; 2.1 M of scales besides".
std::string parameters_line(const ParameterCount& count) {
  std::string text = human_count(count.parameters);
  if (count.packed_elements > 0) {
    const std::string width = count.bits > 0 ? fmt::format("{}-bit ", count.bits) : "";
    text += fmt::format(", of which {} are {}values packed in {} elements",
                        human_count(count.packed_parameters), width,
                        human_count(count.packed_elements));
  }
  if (count.integers > 0) {
    text += fmt::format("; {} integers of quantised weights, which may hold several each",
                        human_count(count.integers));
  }
  if (count.quantisation_elements > 0) {
    text += fmt::format("; {} of scales and the like besides",
                        human_count(count.quantisation_elements));
  }
  return text;
}

std::string family_line(const ModelSummary& model) {
  if (!model.family.empty()) return model.family;
  return "not recognised" + (model.reasons.empty() ? "" : ": " + in_flags(model.reasons.front()));
}

std::string adapter_line(const AdapterSummary& adapter) {
  if (!adapter.any()) return "";
  if (adapter.tensors == 0) {
    return fmt::format("its tensors are not here; {} of the model's are inside its wrappers",
                       plural(adapter.wrapped, "tensor"));
  }
  return fmt::format("{}: {}, {} parameters{}", to_text(adapter), plural(adapter.tensors, "tensor"),
                     human_count(adapter.parameters), adapter.alone ? ", without the model" : "");
}

std::string optimizer_line(const Checkpoint& checkpoint) {
  std::string text = checkpoint.optimizer == OptimizerLayout::none
                         ? "none"
                         : std::string(name(checkpoint.optimizer));
  const std::string kind = optimizer_name(checkpoint);
  const std::string states = to_text(optimizer_kinds(checkpoint.catalog));
  if (!kind.empty()) text += fmt::format(" ({})", kind);
  if (!states.empty()) text += ": " + states;
  if (has_remainders(checkpoint.catalog)) {
    text += ", masters as 16-bit remainders of the weights (read as the fp32 that they stand for)";
  }
  if (!checkpoint.optimizer_problem.empty()) {
    text += ". " + in_flags(checkpoint.optimizer_problem);
  }
  return text;
}

std::string head(const InspectReport& report) {
  std::string text;
  for (const auto& [key, value] : facts(report)) {
    if (key == "model") text += '\n';
    const bool wraps = key == "optimizer" || key == "beside" || key == "adapter";
    text += fmt::format("{:<12} {}\n", key,
                        printable(wraps ? wrapped(value, std::string(13, ' ')) : value, wraps));
  }
  return text;
}

std::string tensor_table(const InspectReport& report) {
  std::vector<std::vector<std::string>> rows{{"", "tensors", "elements", "bytes", "dtypes"}};
  const auto add = [&](const char* what, const TensorGroup& group) {
    if (group.tensors == 0) return;
    rows.push_back({what, grouped(group.tensors), grouped(group.elements), human_bytes(group.bytes),
                    dtypes(group)});
  };
  add("model", report.model_tensors);
  add("adapter", report.adapter_tensors);
  add("optimizer", report.optimizer_tensors);
  add("training", report.training_tensors);
  return "\n" + table(rows, {false, true, true, true, false}, "");
}

std::string base_name(const InspectReport& report, const std::string& path) {
  const std::string& folder = report.checkpoint->path;
  if (path.starts_with(folder + "/")) return path.substr(folder.size() + 1);
  return path.substr(path.rfind('/') + 1);
}

std::string file_table(const InspectReport& report) {
  const auto& files = report.checkpoint->catalog->files;
  const size_t objects = report.checkpoint->catalog->objects.size();
  std::string text = fmt::format(
      "\n{}, {}{}\n", plural(static_cast<int64_t>(files.size()), "data file"),
      human_bytes(report.file_bytes),
      objects ? "; " + plural(static_cast<int64_t>(objects), "object") + " besides the tensors"
              : "");
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < files.size() && i < kFilesShown; ++i) {
    rows.push_back({printable(base_name(report, files[i].path)), human_bytes(files[i].bytes)});
  }
  if (files.size() > kFilesShown) {
    rows.push_back({fmt::format("and {} more", files.size() - kFilesShown), ""});
  }
  return text + table(rows, {false, true}, "  ");
}

std::string notes(const InspectReport& report) {
  std::vector<std::string> all = report.checkpoint->notes;
  if (const std::string& shifted = report.checkpoint->shifted_state; !shifted.empty()) {
    all.push_back(shifted);
  }
  if (const std::string& problem = report.further.training.folder.problem; !problem.empty()) {
    all.push_back(problem);
  }
  all.insert(all.end(), report.check.warnings.begin(), report.check.warnings.end());
  all.insert(all.end(), report.object_problems.begin(), report.object_problems.end());
  std::string text = all.empty() ? "" : "\n";
  for (const std::string& note : all)
    text += "note: " + wrapped(message_text(note), "      ") + "\n";
  for (const std::string& problem : report.check.problems) {
    text += (text.empty() ? "\nproblem: " : "problem: ") + message_text(problem, true) + "\n";
  }
  return text;
}

std::string tensors_text(const InspectReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (const Entry* entry : report.listed) {
    rows.push_back({printable(entry->name), std::string(safetensors_name(entry->dtype)),
                    to_string(entry->shape)});
  }
  return "\n" + table(rows, {false, false, false}, "");
}

std::string statistics_text(const InspectReport& report) {
  std::vector<std::vector<std::string>> rows{
      {"", "dtype", "min", "max", "mean", "std", "NaN", "Inf"}};
  const auto number = [](double value) { return fmt::format("{:.6g}", value); };
  for (const auto& [entry, values] : report.statistics) {
    std::vector<std::string> row{printable(entry->name),
                                 std::string(safetensors_name(entry->dtype))};
    if (!values.problem.empty()) {
      row.insert(row.end(), {"-", "-", "-", "-", "-", "-", values.problem});
    } else if (values.finite == 0) {
      row.insert(row.end(), {"-", "-", "-", "-", grouped(values.nan), grouped(values.infinite)});
    } else {
      row.insert(row.end(), {number(values.min), number(values.max), number(values.mean),
                             number(values.std), grouped(values.nan), grouped(values.infinite)});
    }
    rows.push_back(std::move(row));
  }
  return "\n" + table(rows, {false, false, true, true, true, true, true, true, false}, "");
}

std::string masters_text(const InspectReport& report) {
  constexpr size_t kMostShown = 20;
  const size_t wrong = report.mismatches.size();
  std::string text =
      wrong == 0
          ? fmt::format("\nmasters      all {} belong to their weights\n", grouped(report.masters))
          : fmt::format("\nmasters      {} of {} do not belong to their weights\n",
                        grouped(static_cast<int64_t>(wrong)), grouped(report.masters));
  for (size_t i = 0; i < wrong && i < kMostShown; ++i) {
    text += "  " + printable(to_string(report.mismatches[i])) + "\n";
  }
  if (wrong > kMostShown) text += fmt::format("  and {} more, with --json\n", wrong - kMostShown);
  return text;
}

// A value on one line, cut where it would fill the screen.
std::string value_text(const nlohmann::json& value) {
  const std::string text =
      printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (text.size() <= kValueWidth) return text;
  const std::string_view start(text.data(), utf8_prefix({text.data(), kValueWidth}, false));
  return fmt::format("{}... ({} characters; --json prints all)", start,
                     grouped(static_cast<int64_t>(text.size())));
}

// {"a": 1, "b": [1, 2]} as aligned lines.
std::string pairs_text(const nlohmann::json& values) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [key, value] : values.items()) {
    rows.push_back({printable(key), value_text(value)});
  }
  return table(rows, {false, false}, "  ");
}

std::string args_text(const Checkpoint& checkpoint) {
  if (!checkpoint.args.document) return "\nThe checkpoint holds no arguments.\n";
  nlohmann::json values = ferry::to_json(checkpoint.args.value);
  if (!values.is_object()) return "\narguments " + value_text(values) + "\n";
  values.erase("__class__");
  return "\narguments\n" + pairs_text(values);
}

// null, or lists of nothing else: Megatron-LM stores many such, one a layer and module.
bool is_empty(const nlohmann::json& value) {
  return value.is_null() || (value.is_array() && std::all_of(value.begin(), value.end(),
                                                             [](const nlohmann::json& item) {
                                                               return item.is_null();
                                                             }));
}

std::string objects_text(const InspectReport& report) {
  std::string text;
  int64_t empty = 0;
  for (const auto& [name, loaded] : report.objects) {
    const nlohmann::json value = ferry::to_json(loaded.value);
    if (is_empty(value)) {
      ++empty;
      continue;
    }
    text += fmt::format("\n{}\n", printable(name));
    text += value.is_object() ? pairs_text(value) : "  " + value_text(value) + "\n";
  }
  if (empty > 0) text += fmt::format("\n{} objects are empty; --json names them\n", grouped(empty));
  return text.empty() ? "\nThe checkpoint holds no objects besides its tensors.\n" : text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> facts(const InspectReport& report) {
  const Checkpoint& checkpoint = *report.checkpoint;
  std::vector<std::pair<std::string, std::string>> all;
  const auto add = [&](const char* key, std::string value) {
    if (!value.empty()) all.emplace_back(key, std::move(value));
  };
  add("checkpoint", checkpoint.path);
  add("format", fmt::format("{} ({})", description(checkpoint.format), name(checkpoint.format)));
  add("written by", checkpoint.writer + (report.further.by_ferry ? ", by ferry" : ""));
  add("iteration", checkpoint.iteration ? grouped(*checkpoint.iteration) : "");
  if (const auto& run = report.further.run; run && run->iterations.size() + run->release > 1) {
    add("iterations", to_text(*run));
  }
  add("training", to_text(report.further.training));
  add("beside", to_text(report.further.training.folder.parts));
  add("layout", layout_text(checkpoint.layout));
  add("model", family_line(report.model));
  add("shape", shape(report.model));
  add("experts", experts(report.model));
  add("vocabulary", vocabulary(report.model));
  if (report.further.prediction.tensors > 0) add("MTP", to_text(report.further.prediction));
  add("quantised", report.further.quantisation);
  if (!report.adapter.alone) add("parameters", parameters_line(report.count));
  add("adapter", adapter_line(report.adapter));
  if (report.optimizer_tensors.tensors > 0 || checkpoint.optimizer != OptimizerLayout::none) {
    add("optimizer", optimizer_line(checkpoint));
  }
  return all;
}

std::string to_text(const InspectReport& report) {
  std::string text = head(report) + tensor_table(report) + file_table(report) + notes(report);
  if (report.options.tensors) text += tensors_text(report);
  if (report.options.stats) text += statistics_text(report);
  if (report.options.check_masters) text += masters_text(report);
  if (report.options.args) text += args_text(*report.checkpoint);
  if (report.options.objects) text += objects_text(report);
  return text;
}

}  // namespace ferry::tool
