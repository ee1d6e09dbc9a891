#include "ops/inspect/further_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/parameter_count.h"
#include "ckpt/format/hugging_face/training_folder.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/integrity/manifest/manifest.h"
#include "ckpt/io/file_system.h"
#include "ckpt/store/run_folder.h"
#include "convert/check/mtp.h"
#include "convert/model/quantisation.h"
#include "convert/model/quantised_values.h"

namespace ferry {
namespace {

std::optional<RunFacts> run_facts(const FileSystem& files, const std::string& given) {
  if (files.status(given).kind != PathKind::folder || !is_run_folder(files, given)) return {};
  const RunFolder folder = read_run_folder(files, given);
  RunFacts run;
  for (const IterationFolder& one : folder.iterations) {
    if (one.iteration) {
      run.iterations.push_back(*one.iteration);
    } else {
      run.release = true;
    }
  }
  run.tracker = folder.tracker.content;
  return run;
}

std::optional<Quantisation> quantisation_in(const Checkpoint& checkpoint) {
  if (checkpoint.format != Format::hugging_face) return {};
  const FileSystem& files = *checkpoint.catalog->file_system;
  try {
    const auto config = read_hugging_face_config(files, checkpoint.path);
    return quantisation_of(config.get(), files, checkpoint.path);
  } catch (const Error&) {
    return {};  // reported where the model is recognised
  }
}

// "NVFP4 (28 weights)"; empty where nothing is quantised, or not in a form that is read.
std::string forms_in(const Checkpoint& checkpoint) {
  if (!has_quantised_weights(*checkpoint.catalog)) return {};
  try {
    return values_of(checkpoint).forms;
  } catch (const Error&) {
    return {};  // reported where the model is checked
  }
}

PredictionLayers prediction_of(const Catalog& catalog, const ModelSummary& model) {
  PredictionLayers found;
  const std::vector<CountedTensor> kinds = element_kinds(catalog);
  const int64_t decoder_layers = model.mtp_layers > 0 ? model.layers : 0;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const Entry& entry = catalog.entries[i];
    if (entry.role != Role::model) continue;
    const std::string_view inside = inside_mtp_layer(entry.name, decoder_layers);
    if (inside.empty()) continue;
    ++found.tensors;
    found.parameters =
        checked_add(found.parameters, parameters_in(entry, kinds[i]), "size of the checkpoint");
    std::string module(inside.substr(0, inside.find('.')));
    if (std::ranges::find(found.modules, module) == found.modules.end()) {
      found.modules.push_back(std::move(module));
    }
  }
  return found;
}

// The folder of a training state that the checkpoint is, or that it is the model of.
TrainingFolder training_folder(const Checkpoint& checkpoint) {
  const FileSystem& files = *checkpoint.catalog->file_system;
  if (files.status(checkpoint.path).kind == PathKind::folder) {
    TrainingFolder own = read_training_folder(files, checkpoint.path);
    if (!own.empty()) return own;
  }
  const std::string around = split_path(checkpoint.path).parent;
  if (around.empty() || files.status(around).kind != PathKind::folder) return {};
  TrainingFolder found = read_training_folder(files, around);
  const std::string name = split_path(checkpoint.path).name;
  const bool is_part = std::ranges::any_of(found.parts, [&](const TrainingPart& part) {
    return part.kind.starts_with("model") && (part.count > 1 || part.name == name);
  });
  return is_part ? found : TrainingFolder();
}

// A file of Lightning's says in itself how far training was.
TrainingFacts lightning_facts(const Checkpoint& checkpoint) {
  const auto value = [&](std::string_view name) {
    return read_object_if_readable(checkpoint.catalog, name);
  };
  TrainingFacts facts;
  const LoadedValue version = value("pytorch-lightning_version");
  if (!version.value.string()) return facts;
  facts.program = fmt::format("Lightning {}", *version.value.string());
  const auto step = value("global_step").value.integer(), epoch = value("epoch").value.integer();
  if (step && *step >= 0) facts.folder.step = step;
  if (epoch && *epoch >= 0) facts.folder.epoch = static_cast<double>(*epoch);
  return facts;
}

TrainingFacts training_facts(const Checkpoint& checkpoint) {
  if (checkpoint.format == Format::torch_file) {
    TrainingFacts facts = lightning_facts(checkpoint);
    if (!facts.program.empty()) return facts;
  }
  TrainingFacts facts{training_folder(checkpoint), {}};
  const auto has = [&](std::string_view kind) {
    return std::ranges::any_of(facts.folder.parts,
                               [&](const TrainingPart& part) { return part.kind == kind; });
  };
  if (has("state")) facts.program = "Trainer";
  return facts;
}

bool is_by_ferry(const Checkpoint& checkpoint) {
  const FileSystem& files = *checkpoint.catalog->file_system;
  if (files.status(checkpoint.path).kind != PathKind::folder) return false;
  return files.status(join(checkpoint.path, kManifestName)).kind == PathKind::file;
}

}  // namespace

FurtherFacts further_facts(const Checkpoint& checkpoint, const ModelSummary& model,
                           const std::string& given) {
  FurtherFacts facts;
  facts.prediction = prediction_of(checkpoint.catalog, model);
  if (!checkpoint.catalog->file_system) return facts;
  if (!given.empty()) facts.run = run_facts(*checkpoint.catalog->file_system, given);
  if (const auto quantisation = quantisation_in(checkpoint)) {
    facts.quantisation = to_text(*quantisation);
    facts.quantisation_bits = quantisation->bits;
  }
  if (const std::string forms = forms_in(checkpoint); !forms.empty()) {
    facts.quantisation += (facts.quantisation.empty() ? "" : "; ") + forms;
  }
  facts.training = training_facts(checkpoint);
  facts.by_ferry = is_by_ferry(checkpoint);
  return facts;
}

}  // namespace ferry
