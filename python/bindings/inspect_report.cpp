// What inspect() returns.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "ops/inspect.h"
#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/record.h"
#include "python/bindings/text.h"
#include "python/bindings/values.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

// A tensor's row of a list: what its entry says.
struct TensorRow {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  std::string role;
};

TensorRow row_of(const Entry& entry) {
  return {entry.name, entry.dtype, entry.shape, role_name(entry.role)};
}

struct StatisticsRow {
  TensorRow tensor;
  Statistics values;
};

template <double Statistics::*member>
std::optional<double> value_of(const StatisticsRow& row) {
  return row.values.finite > 0 ? std::optional(row.values.*member) : std::nullopt;
}

void bind_model(nb::module_& module) {
  using Model = ModelSummary;
  Record<Model>(module, "ModelSummary", "What a model is; None: not known, or it has none.")
      .field("family", text_or_none<&Model::family>, "'llama', ...; None: not recognised.")
      .field("reasons", messages<&Model::reasons>, "Not recognised: what does not fit.")
      .field("layers", known<&Model::layers>)
      .field("hidden_size", known<&Model::hidden>)
      .field("attention_heads", known<&Model::heads>)
      .field("key_value_heads", known<&Model::kv_heads>)
      .field("head_size", known<&Model::head_dim>)
      .field("ffn_hidden_size", known<&Model::ffn_hidden>)
      .field("vocab_size", known<&Model::vocab>, "Without padding.")
      .field("padded_vocab_size", known<&Model::padded_vocab>, "Rows of the embedding.")
      .field("experts", known<&Model::experts>)
      .field("experts_per_token", known<&Model::experts_per_token>)
      .field("expert_ffn_hidden_size", known<&Model::expert_ffn_hidden>)
      .field("shared_expert_ffn_hidden_size", known<&Model::shared_expert_ffn_hidden>)
      .field("mtp_layers", &Model::mtp_layers, "Layers for multi-token prediction.")
      .field("sequence_length", known<&Model::sequence>)
      .field("tied_embeddings", &Model::tied_embeddings);
  using Count = ParameterCount;
  Record<Count>(module, "ParameterCount", "Parameters, which are not always the stored elements.")
      .field("parameters", &Count::parameters, "Packed ones included.")
      .field("packed_parameters", &Count::packed_parameters)
      .field("packed_elements", &Count::packed_elements, "That hold them.")
      .field("bits", known<&Count::bits>, "Of a packed parameter.")
      .field("integers", &Count::integers,
             "Elements of quantized weights whose parameters cannot be counted.")
      .field("quantisation_elements", &Count::quantisation_elements, "Scales and the like.")
      .field("training_tensors", &Count::training_tensors)
      .field("training_elements", &Count::training_elements);
  using Adapter = AdapterSummary;
  Record<Adapter>(module, "AdapterSummary", "Adapters (LoRA and others) inside a checkpoint.")
      .field("tensors", &Adapter::tensors)
      .field("parameters", &Adapter::parameters)
      .field("ranks", &Adapter::ranks, "Rising.")
      .field("targets", &Adapter::targets, "Last parts of the names of the modules.")
      .field("names", &Adapter::names)
      .field("methods", &Adapter::methods, "'LoRA', 'DoRA', or parts of names of others.")
      .field("replaced", &Adapter::replaced, "Modules that were trained whole.")
      .field("wrapped", &Adapter::wrapped, "The model's own tensors inside wrappers.")
      .field("alone", &Adapter::alone, "The modules' own weights are not there.");
}

void bind_facts(nb::module_& module) {
  Record<RunFacts>(module, "RunFacts", "The run folder that was given.")
      .field("iterations", &RunFacts::iterations, "Rising; finished or not.")
      .field("release", &RunFacts::release)
      .field("tracker", text_or_none<&RunFacts::tracker>, "What it names; None: there is none.");
  Record<PredictionLayers>(module, "PredictionLayers", "Layers for multi-token prediction.")
      .field("tensors", &PredictionLayers::tensors)
      .field("parameters", &PredictionLayers::parameters)
      .field("modules", &PredictionLayers::modules);
  Record<TrainingPart>(module, "TrainingPart", "Files or folders of one kind.")
      .field("kind", &TrainingPart::kind, "'optimizer', 'scheduler', ...")
      .field("name", &TrainingPart::name)
      .field("count", &TrainingPart::count)
      .field("is_folder", &TrainingPart::is_folder);
  using Training = TrainingFacts;
  Record<Training>(module, "TrainingFacts", "What a training program left next to the model.")
      .field("program", text_or_none<&Training::program>)
      .field("step", [](const Training& facts) { return facts.folder.step; })
      .field("last_step", [](const Training& facts) { return facts.folder.last_step; })
      .field("epoch", [](const Training& facts) { return facts.folder.epoch; })
      .field("parts", [](const Training& facts) { return facts.folder.parts; })
      .field(
          "problem",
          [](const Training& facts) {
            const std::string& problem = facts.folder.problem;
            return problem.empty() ? std::nullopt : std::optional(in_keywords(problem));
          },
          "Why trainer_state.json says nothing.");
}

void bind_tensors(nb::module_& module) {
  Record<TensorGroup>(module, "TensorGroup", "Tensors of one role.")
      .field("tensors", &TensorGroup::tensors, "How many.")
      .field("elements", &TensorGroup::elements)
      .field("bytes", &TensorGroup::bytes)
      .field("dtypes", &TensorGroup::dtypes, "dtype ('BF16') -> tensors.");
  Record<TensorRow>(module, "TensorInfo", "A tensor of a list.")
      .field("name", &TensorRow::name)
      .field("dtype", &TensorRow::dtype)
      .field("shape", &TensorRow::shape)
      .field("role", &TensorRow::role, "'model' or 'optimizer'.");
  Record<StatisticsRow>(module, "TensorStatistics", "Statistics of a tensor's finite values.")
      .field("name", [](const StatisticsRow& row) { return row.tensor.name; })
      .field("dtype", [](const StatisticsRow& row) { return row.tensor.dtype; })
      .field("shape", [](const StatisticsRow& row) { return row.tensor.shape; })
      .field("min", value_of<&Statistics::min>)
      .field("max", value_of<&Statistics::max>)
      .field("mean", value_of<&Statistics::mean>)
      .field("std", value_of<&Statistics::std>, "Of the population.")
      .field("finite", [](const StatisticsRow& row) { return row.values.finite; })
      .field("nan", [](const StatisticsRow& row) { return row.values.nan; })
      .field("infinite", [](const StatisticsRow& row) { return row.values.infinite; })
      .field(
          "problem",
          [](const StatisticsRow& row) {
            const std::string& problem = row.values.problem;
            return problem.empty() ? std::nullopt : std::optional(problem);
          },
          "Why there are none.");
  Record<MasterMismatch>(module, "MasterMismatch",
                         "A weight that is not its fp32 master weight rounded.")
      .field("tensor", &MasterMismatch::tensor)
      .field("elements", &MasterMismatch::elements)
      .field("differing", &MasterMismatch::differing)
      .field("first", &MasterMismatch::first, "Position of the first, in row-major order.")
      .field("master", &MasterMismatch::master)
      .field("weight", &MasterMismatch::weight);
}

std::vector<std::string> all_notes(const InspectReport& report) {
  std::vector<std::string> notes = report.checkpoint->notes;
  const auto add = [&](const std::string& note) {
    if (!note.empty()) notes.push_back(note);
  };
  add(report.checkpoint->shifted_state);
  add(report.further.training.folder.problem);
  for (const std::string& warning : report.check.warnings) add(warning);
  for (const std::string& problem : report.object_problems) add(problem);
  for (std::string& note : notes) note = in_keywords(note);
  return notes;
}

nb::object objects_of(const InspectReport& report) {
  nb::dict objects;
  for (const auto& [name, loaded] : report.objects) objects[to_str(name)] = to_python(loaded);
  return objects;
}

using Report = InspectReport;

std::vector<TensorRow> listed(const Report& report) {
  std::vector<TensorRow> rows;
  for (const Entry* entry : report.listed) rows.push_back(row_of(*entry));
  return rows;
}

std::vector<StatisticsRow> statistics(const Report& report) {
  std::vector<StatisticsRow> rows;
  for (const auto& [entry, values] : report.statistics) rows.push_back({row_of(*entry), values});
  return rows;
}

void add_checkpoint(Record<Report>& record) {
  record.field("path", [](const Report& r) { return r.checkpoint->path; })
      .field("format", [](const Report& r) { return r.checkpoint->format; })
      .field("writer", [](const Report& r) { return r.checkpoint->writer; })
      .field("iteration", [](const Report& r) { return r.checkpoint->iteration; })
      .field("layout", [](const Report& r) { return r.checkpoint->layout; })
      .field(
          "optimizer_layout", [](const Report& r) { return r.checkpoint->optimizer; },
          "How the optimizer's state is laid out on disk.")
      .field(
          "optimizer_problem",
          [](const Report& r) {
            const std::string& problem = r.checkpoint->optimizer_problem;
            return problem.empty() ? std::nullopt : std::optional(in_keywords(problem));
          },
          "Why optimizer state that is on disk is not among the tensors.")
      .field(
          "args", [](const Report& r) { return to_python(r.checkpoint->args); },
          "Megatron-LM's arguments, with attributes; None: there are none.");
}

}  // namespace

void bind_inspect_report(nb::module_& module) {
  bind_model(module);
  bind_facts(module);
  bind_tensors(module);
  Record<Report> record(module, "InspectReport", "What inspect() found.");
  add_checkpoint(record);
  record.field("model", &Report::model)
      .field("parameters", &Report::count)
      .field("adapter", &Report::adapter)
      .field("model_tensors", &Report::model_tensors)
      .field("adapter_tensors", &Report::adapter_tensors)
      .field("optimizer_tensors", &Report::optimizer_tensors)
      .field("training_tensors", &Report::training_tensors)
      .field("file_bytes", &Report::file_bytes)
      .field("run", [](const Report& r) { return r.further.run; })
      .field(
          "quantization",
          [](const Report& r) {
            const std::string& words = r.further.quantisation;
            return words.empty() ? std::nullopt : std::optional(words);
          },
          "'gptq, 4 bits, groups of 128'; None: there is none.")
      .field("mtp", [](const Report& r) { return r.further.prediction; })
      .field("training", [](const Report& r) { return r.further.training; })
      .field(
          "by_ferry", [](const Report& r) { return r.further.by_ferry; },
          "It has ferry's manifest.")
      .field("tensors", listed, "With tensors=: those that match.")
      .field("statistics", statistics, "With stats=: of those that match.")
      .field("masters", &Report::masters,
             "With check_masters: fp32 master weights that were compared.")
      .field("mismatches", &Report::mismatches, "Of these.")
      .field("objects", objects_of, "With objects: name -> value.")
      .field(
          "problems", [](const Report& r) { return r.check.problems; },
          "Why transformers would not load the model whole.")
      .field("notes", all_notes);
}

}  // namespace ferry::python
