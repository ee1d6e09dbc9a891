// A state dict held against the config.json that goes with it.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "convert/adapters.h"
#include "convert/check/known_model.h"
#include "convert/config_json.h"
#include "convert/state_dict/state_dict.h"

namespace ferry {
namespace {

std::string difference(const Misfit& misfit, const KnownModel& model, const std::string& folder) {
  return fmt::format("its tensors are not those of the model that {}/config.json describes ({}):{}",
                     folder, model.family->name, describe(misfit, model.family->name));
}

ModelCheck compare_names(const Checkpoint& checkpoint, const AdapterSummary& adapter) {
  StateDictOptions options;
  options.names_only = true;
  options.base_only = adapter.any();
  const StateDict state_dict = read_state_dict(checkpoint, options);
  Checkpoint described = state_dict.model;
  described.path = state_dict.config_folder;
  const auto model = known_model(described);
  ModelCheck check;
  if (!model) return check;
  Misfit misfit = model->compare(state_dict.model.catalog, true);
  // Weights that bitsandbytes packed are of other shapes by design.
  const bool is_packed =
      std::ranges::any_of(state_dict.model.catalog->entries,
                          [](const Entry& entry) { return !is_floating_point(entry.dtype); });
  Misfit misshapen;
  if (!is_packed) misshapen.misshapen = std::exchange(misfit.misshapen, {});
  if (misshapen.any()) {
    check.problems.push_back(difference(misshapen, *model, described.path));
  }
  if (misfit.any()) check.warnings.push_back(difference(misfit, *model, described.path));
  return check;
}

}  // namespace

ModelCheck check_state_dict(const Checkpoint& checkpoint) {
  const bool has_ranks = checkpoint.format == Format::dcp || checkpoint.format == Format::fsdp ||
                         checkpoint.format == Format::deepspeed;
  if (!has_ranks || !is_state_dict(checkpoint)) return {};
  try {
    const AdapterSummary adapter =
        summarise(checkpoint.catalog, adapter_tensors(checkpoint.catalog));
    if (adapter.alone) return {};
    return compare_names(checkpoint, adapter);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    if (error.kind() == ErrorKind::invalid) return {{}, {error.what()}};  // several models
    return {};  // there is no config.json, or what is there is no model
  }
}

}  // namespace ferry
