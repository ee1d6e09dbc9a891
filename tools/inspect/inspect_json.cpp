// The machine's half of `ferry inspect`.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ckpt/megatron/optimizer/masters/remainders.h"
#include "ops/inspect/optimizer_kinds.h"
#include "tools/inspect/inspect_report.h"
#include "tools/terminal/layout.h"

namespace ferry::tool {
namespace {

using nlohmann::json;

// NaN and infinity have no form in JSON.
json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json known(int64_t value) { return value > 0 ? json(value) : json(nullptr); }

json tensors_json(const Catalog& catalog) {
  json list = json::array();
  for (const Entry& entry : catalog.entries) {
    list.push_back({{"name", entry.name},
                    {"dtype", safetensors_name(entry.dtype)},
                    {"shape", entry.shape},
                    {"role", entry.role == Role::model ? "model" : "optimizer"}});
  }
  return list;
}

json model_json(const ModelSummary& model) {
  return {{"layers", known(model.layers)},
          {"hidden_size", known(model.hidden)},
          {"attention_heads", known(model.heads)},
          {"key_value_heads", known(model.kv_heads)},
          {"head_size", known(model.head_dim)},
          {"ffn_hidden_size", known(model.ffn_hidden)},
          {"vocab_size", known(model.vocab)},
          {"padded_vocab_size", known(model.padded_vocab)},
          {"sequence_length", known(model.sequence)},
          {"experts", known(model.experts)},
          {"experts_per_token", known(model.experts_per_token)},
          {"expert_ffn_hidden_size", known(model.expert_ffn_hidden)},
          {"shared_expert_ffn_hidden_size", known(model.shared_expert_ffn_hidden)},
          {"mtp_layers", model.mtp_layers},
          {"tied_embeddings", model.tied_embeddings},
          {"reasons", model.reasons}};
}

json objects_json(const InspectReport& report) {
  json list = json::array();
  if (report.options.objects) {
    for (const auto& [name, loaded] : report.objects) {
      list.push_back({{"name", name}, {"value", ferry::to_json(loaded.value)}});
    }
  } else {
    for (const Object& object : report.checkpoint->catalog->objects) {
      list.push_back({{"name", object.name}});
    }
  }
  return list;
}

json statistics_json(const InspectReport& report) {
  json list = json::array();
  for (const auto& [entry, values] : report.statistics) {
    json row{
        {"name", entry->name}, {"dtype", safetensors_name(entry->dtype)}, {"shape", entry->shape}};
    if (!values.problem.empty()) {
      row["problem"] = values.problem;
    } else {
      const bool some = values.finite > 0;
      row["min"] = some ? number(values.min) : json(nullptr);
      row["max"] = some ? number(values.max) : json(nullptr);
      row["mean"] = some ? number(values.mean) : json(nullptr);
      row["std"] = some ? number(values.std) : json(nullptr);
      row["nan"] = values.nan;
      row["inf"] = values.infinite;
    }
    list.push_back(std::move(row));
  }
  return list;
}

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

// Null where every element is a parameter.
json packed_json(const ParameterCount& count) {
  if (count.packed_elements == 0 && count.integers == 0 && count.quantisation_elements == 0) {
    return nullptr;
  }
  return {{"parameters", count.packed_parameters},
          {"elements", count.packed_elements},
          {"bits", known(count.bits)},
          {"integers", count.integers},
          {"quantisation_elements", count.quantisation_elements}};
}

json prediction_json(const PredictionLayers& prediction) {
  if (prediction.tensors == 0) return nullptr;
  return {{"tensors", prediction.tensors},
          {"parameters", prediction.parameters},
          {"modules", prediction.modules}};
}

// Null where there is none.
json adapter_json(const AdapterSummary& adapter) {
  if (!adapter.any()) return nullptr;
  return {{"methods", adapter.methods},
          {"tensors", adapter.tensors},
          {"parameters", adapter.parameters},
          {"ranks", adapter.ranks},
          {"targets", adapter.targets},
          {"trained_copies", adapter.replaced},
          {"names", adapter.names},
          {"wrapped_tensors", adapter.wrapped},
          {"alone", adapter.alone}};
}

json run_json(const std::optional<RunFacts>& run) {
  if (!run) return nullptr;
  return {{"iterations", run->iterations},
          {"release", run->release},
          {"tracker", text_or_null(run->tracker)}};
}

// Null where no training program left anything.
json training_json(const TrainingFacts& training) {
  const TrainingFolder& folder = training.folder;
  if (folder.empty() && training.program.empty()) return nullptr;
  json parts = json::array();
  for (const TrainingPart& part : folder.parts) {
    parts.push_back({{"kind", part.kind}, {"name", part.name}, {"count", part.count}});
  }
  return {{"program", text_or_null(training.program)},
          {"step", folder.step ? json(*folder.step) : json(nullptr)},
          {"last_step", folder.last_step ? json(*folder.last_step) : json(nullptr)},
          {"epoch", folder.epoch ? number(*folder.epoch) : json(nullptr)},
          {"beside", std::move(parts)}};
}

json comparison_json(const InspectReport& report) {
  json list = json::array();
  for (const MasterMismatch& mismatch : report.mismatches) {
    list.push_back({{"tensor", mismatch.tensor},
                    {"elements", mismatch.elements},
                    {"differing", mismatch.differing},
                    {"first", mismatch.first},
                    {"weight", number(mismatch.weight)},
                    {"master", number(mismatch.master)}});
  }
  return {{"compared", report.masters}, {"mismatches", std::move(list)}};
}

json notes_json(const InspectReport& report) {
  json notes = report.checkpoint->notes;
  const std::string& shifted = report.checkpoint->shifted_state;
  if (!shifted.empty()) notes.push_back(shifted);
  const std::string& training = report.further.training.folder.problem;
  if (!training.empty()) notes.push_back(training);
  for (const std::string& warning : report.check.warnings) notes.push_back(warning);
  for (const std::string& problem : report.object_problems) notes.push_back(problem);
  return notes;
}

// In which form the optimizer holds its copies of the parameters; null: it holds none.
json masters_word(const Catalog& catalog) {
  if (has_remainders(catalog)) return "remainders";
  const bool any = std::ranges::any_of(catalog.entries, [](const Entry& entry) {
    return entry.role == Role::optimizer && entry.name.starts_with("optimizer.state.param.");
  });
  return any ? json("fp32") : json(nullptr);
}

json states_json(const Catalog& catalog) {
  json all = json::array();
  for (const OptimizerKind& kind : optimizer_kinds(catalog)) {
    all.push_back({{"states", kind.states}, {"tensors", kind.tensors}});
  }
  return all;
}

json value_or_null(const LoadedValue& loaded) {
  return loaded.document ? ferry::to_json(loaded.value) : json(nullptr);
}

}  // namespace

json to_json(const InspectReport& report) {
  const Checkpoint& checkpoint = *report.checkpoint;
  json files = json::array();
  for (const FileInfo& file : checkpoint.catalog->files) {
    files.push_back({{"path", file.path}, {"bytes", file.bytes}});
  }
  json result{
      {"format", name(checkpoint.format)},
      {"path", checkpoint.path},
      {"writer", checkpoint.writer},
      {"iteration", checkpoint.iteration ? json(*checkpoint.iteration) : json(nullptr)},
      {"family", report.model.family.empty() ? json(nullptr) : json(report.model.family)},
      {"model", model_json(report.model)},
      {"parameters", report.count.parameters},
      {"packed", packed_json(report.count)},
      {"adapter", adapter_json(report.adapter)},
      {"quantisation", text_or_null(report.further.quantisation)},
      {"mtp", prediction_json(report.further.prediction)},
      {"run", run_json(report.further.run)},
      {"training", training_json(report.further.training)},
      {"by_ferry", report.further.by_ferry},
      {"bytes", report.model_tensors.bytes + report.adapter_tensors.bytes +
                    report.optimizer_tensors.bytes + report.training_tensors.bytes},
      {"tensors", tensors_json(checkpoint.catalog)},
      {"objects", objects_json(report)},
      {"layout", layout_json(checkpoint.layout)},
      {"args", value_or_null(checkpoint.args)},
      {"metadata", value_or_null(checkpoint.metadata)},
      {"optimizer",
       {{"layout", name(checkpoint.optimizer)},
        {"tensors", report.optimizer_tensors.tensors},
        {"kind", text_or_null(optimizer_name(checkpoint))},
        {"states", states_json(checkpoint.catalog)},
        {"masters", masters_word(checkpoint.catalog)},
        {"problem", checkpoint.optimizer_problem.empty() ? json(nullptr)
                                                         : json(checkpoint.optimizer_problem)}}},
      {"files", std::move(files)},
      {"problems", report.check.problems},
      {"notes", notes_json(report)}};
  if (report.options.check_masters) result["masters"] = comparison_json(report);
  if (report.options.stats) result["stats"] = statistics_json(report);
  return result;
}

}  // namespace ferry::tool
