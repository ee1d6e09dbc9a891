#include "convert/state_dict/state_dict.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "convert/adapters.h"
#include "convert/base_only.h"
#include "convert/check/known_model.h"
#include "convert/config_json.h"
#include "convert/language_part.h"
#include "convert/state_dict/prefix.h"
#include "convert/state_dict/torchtitan.h"
#include "convert/state_dict/whole_model.h"

namespace ferry {
namespace {

constexpr uint64_t kTitanHeadBytes = uint64_t{16} << 20;
constexpr std::string_view kOwnConfigFolder = "/huggingface";  // in a checkpoint, of verl's

// What config.json says, if it is of a model that is known here.
struct ReadModel {
  std::optional<ReadConfig> config;
  std::string problem;  // why not; empty where it is
};

ReadModel read_known_model(const Checkpoint& checkpoint, const std::string& folder,
                           const StateDictOptions& options) {
  const std::string path = join(folder, "config.json");
  const auto config = read_hugging_face_config(*checkpoint.catalog->file_system, folder);
  if (!config) {
    fail(ErrorKind::not_found, "{}: does not exist; {} names the folder that holds it", path,
         option("config_folder"));
  }
  try {
    const auto part = options.language_part ? language_part(*config, options.family) : std::nullopt;
    return {read_config(part ? *part : *config, options.family, path, options.ignored_members), {}};
  } catch (const Error& error) {
    if (options.family || error.kind() != ErrorKind::unsupported) throw;
    return {std::nullopt, error.what()};
  }
}

class StateDictReader {
 public:
  StateDictReader(const Checkpoint& checkpoint, const StateDictOptions& options)
      : checkpoint_(checkpoint), options_(options) {}

  StateDict read() {
    result_.config_folder =
        find_config_folder(checkpoint_, options_.config_folder, options_.fill_from);
    result_.top_files_only = checkpoint_.format != Format::hugging_face &&
                             options_.config_folder.empty() &&
                             !result_.config_folder.ends_with(kOwnConfigFolder);
    ReadModel known = read_known_model(checkpoint_, result_.config_folder, options_);
    choose();
    if (known.config)
      expected_ = KnownModel{known.config->family, known.config->architecture}.names();
    if (known.config && find_titan(*known.config)) {
      make_titan_model(*known.config);
    } else {
      name(known);
      make_model();
      if (known.config) {
        const KnownModel model{known.config->family, known.config->architecture};
        model.name_embedding(result_.model.catalog.edit());
      }
    }
    if (options_.names_only) return std::move(result_);
    if (known.config) {
      require_model(*known.config, expected_, options_, result_);
    } else {
      result_.warnings.push_back(fmt::format(
          "whether the model is whole was not checked, as its family is not known here: {}",
          known.problem));
    }
    return std::move(result_);
  }

 private:
  bool is_chosen(const Entry& entry) const {
    return options_.is_chosen ? options_.is_chosen(entry.name) : entry.role == Role::model;
  }

  void choose() {
    const auto& entries = checkpoint_.catalog->entries;
    const std::vector<AdapterTensor> adapter = resolve_adapter();
    for (uint32_t i = 0; i < entries.size(); ++i) {
      const Entry& entry = entries[i];
      if (!is_chosen(entry) || (!adapter.empty() && adapter[i].part != AdapterPart::none)) continue;
      chosen_.push_back(i);
      const std::string name = options_.rename ? options_.rename(entry.name) : entry.name;
      if (adapter.empty()) {
        names_.push_back(without_wrappers(name));
      } else {
        names_.push_back(name == entry.name ? adapter[i].name : name_without_wrappers(name));
      }
      if (entry.name.ends_with("_flat_param") || entry.name.ends_with(".flat_param")) {
        fail(ErrorKind::unsupported,
             "{}: tensor {} is a parameter that FSDP flattened, without the shapes of its parts; "
             "save with StateDictType.SHARDED_STATE_DICT or FULL_STATE_DICT",
             checkpoint_.path, entry.name);
      }
    }
    if (chosen_.empty()) {
      fail(ErrorKind::not_found, "{}: holds no tensor of a model ({} tensors in all)",
           checkpoint_.path, entries.size());
    }
  }

  // What is an adapter's, where it is one of the chosen tensors, or of their modules: a model is
  // not to be written without it because it was not chosen. Empty: there is none.
  std::vector<AdapterTensor> resolve_adapter() {
    std::vector<AdapterTensor> tensors = adapter_tensors(checkpoint_.catalog);
    const auto& entries = checkpoint_.catalog->entries;
    std::unordered_set<std::string_view> modules = {""};  // of all: learnt prompts
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!is_chosen(entries[i])) continue;
      const std::string_view name = tensors[i].name;
      if (tensors[i].part != AdapterPart::none) modules.insert(name);
      const std::vector<std::string_view> around = modules_around(name);
      modules.insert(around.begin(), around.end());
    }
    std::vector<AdapterTensor> chosen = tensors;
    for (size_t i = 0; i < entries.size(); ++i) {
      const bool own = tensors[i].part == AdapterPart::none;
      if (!own && modules.contains(tensors[i].name)) continue;
      chosen[i].part = AdapterPart::none;
      chosen[i].wrapped &= own && is_chosen(entries[i]);
    }
    const AdapterSummary adapter = summarise(checkpoint_.catalog, chosen);
    if (!adapter.any()) {
      if (options_.base_only) refuse_base_only(checkpoint_.path);
      return {};
    }
    if (!options_.base_only || adapter.alone) refuse_adapter(checkpoint_, adapter);
    result_.warnings.push_back(left_out_text(adapter));
    return tensors;
  }

  static std::string_view module_of(std::string_view name) {
    return name.substr(0, name.find_last_of('.'));
  }

  // Codes and scales of a quantised weight are in its module, under names that no family has.
  bool is_expected(const std::string& name) {
    if (expected_modules_.empty()) {
      for (const std::string& each : expected_) expected_modules_.insert(module_of(each));
    }
    return expected_.contains(name) || expected_modules_.contains(module_of(name));
  }

  void name(const ReadModel& known) {
    std::string base;
    if (known.config) {
      base = known.config->family->base_prefix;
      result_.prefix = find_prefix(names_, expected_, base, checkpoint_.path);
    } else {
      result_.prefix = container_in_paths(checkpoint_.paths.value, names_);
      if (result_.prefix.empty()) result_.prefix = guess_prefix(names_);
    }
    const std::string& prefix = result_.prefix;
    const bool is_part = options_.language_part && has_language_part(checkpoint_, options_.family);
    // Parts next to a language model without a prefix: "visual." next to "model.".
    const auto is_other_part = [&](const std::string& name) {
      return is_part && prefix.empty() && !base.empty() && !name.starts_with(base) &&
             !is_expected(name) && !is_expected(base + name);
    };
    std::vector<std::string> outside;
    std::vector<uint32_t> inside;
    std::vector<std::string> names;
    for (size_t i = 0; i < chosen_.size(); ++i) {
      if (is_other_part(names_[i])) {
        outside.push_back(checkpoint_.catalog->entries[chosen_[i]].name);
        continue;
      }
      if (!names_[i].starts_with(prefix)) {
        // The output layer and MTP layers of a model of several parts, whose decoder has a prefix.
        if (!names_[i].starts_with(base) && is_expected(names_[i])) {
          inside.push_back(chosen_[i]);
          names.push_back(names_[i]);
          continue;
        }
        outside.push_back(checkpoint_.catalog->entries[chosen_[i]].name);
        continue;
      }
      inside.push_back(chosen_[i]);
      names.push_back(names_[i].substr(prefix.size()));
      // A bare model's, which is an outermost module short.
      const std::string whole = base + names.back();
      if (!is_expected(names.back()) && is_expected(whole)) names.back() = whole;
    }
    if (!outside.empty()) {
      result_.warnings.push_back(
          fmt::format("{} tensors {} are left out: {}{}", outside.size(),
                      prefix.empty() ? "of other parts"
                                     : fmt::format("without the model's prefix '{}'", prefix),
                      some_of(outside),
                      is_part ? fmt::format("; convert with {} and {} puts them back later",
                                            option("to", "hugging_face"), option("fill_from"))
                              : std::string()));
    }
    chosen_ = std::move(inside);
    names_ = std::move(names);
  }

  // Whether the names are torchtitan's own rather than transformers'.
  bool find_titan(const ReadConfig& config) {
    const TitanNames titan(config, expected_);
    const auto has = [&](std::string_view part) {
      return std::any_of(names_.begin(), names_.end(), [&](const std::string& name) {
        return name.find(part) != std::string::npos;
      });
    };
    if (titan.names().empty() || has("self_attn.") || !has("attention.wo.")) return false;
    result_.prefix = find_prefix(names_, titan.names(), {}, checkpoint_.path);
    return true;
  }

  void make_titan_model(const ReadConfig& config) {
    begin_model();
    result_.source = checkpoint_.catalog;
    const TitanNames titan(config, expected_);
    std::vector<std::string> others;
    std::vector<Entry>& entries = result_.model.catalog.edit().entries;
    for (size_t i = 0; i < chosen_.size(); ++i) {
      const Entry& entry = checkpoint_.catalog->entries[chosen_[i]];
      std::vector<TitanTensor> tensors;
      if (names_[i].starts_with(result_.prefix)) {
        tensors = titan.tensors_of(names_[i].substr(result_.prefix.size()), entry.shape);
      }
      if (tensors.empty()) others.push_back(entry.name);
      for (TitanTensor& tensor : tensors) {
        if (tensor.name == config.family->output_layer_name() && config.architecture.tied) {
          require_tied(entry);
          continue;
        }
        entries.push_back(
            {std::move(tensor.name), entry.dtype, std::move(tensor.shape), {}, Role::model});
        result_.recipes.push_back({{chosen_[i]}, std::move(tensor.moves), {}});
      }
    }
    if (options_.optimizer) add_titan_optimizer(titan);
    result_.warnings.push_back("the names are torchtitan's own");
    if (others.empty()) return;
    result_.warnings.push_back(
        fmt::format("{} tensors that are none of the model's are left out: {}", others.size(),
                    some_of(others)));
  }

  // torchtitan has an output layer of its own where it does not tie.
  void require_tied(const Entry& head) const {
    for (const uint32_t position : chosen_) {
      const Entry& entry = checkpoint_.catalog->entries[position];
      if (&entry == &head || entry.shape != head.shape) continue;
      if (same_elements(checkpoint_.catalog, entry, head, kTitanHeadBytes)) return;
    }
    fail(ErrorKind::mismatch,
         "{}: config.json ties the output layer to the embedding, but tensor {} differs from it; "
         "set tie_word_embeddings to false in a copy of config.json ({})",
         checkpoint_.path, head.name, option("config_folder"));
  }

  // Moments have the shapes of their parameters, and become what these become.
  void add_titan_optimizer(const TitanNames& titan) {
    std::vector<Entry>& entries = result_.model.catalog.edit().entries;
    for_each_state([&](uint32_t at, const OptimizerEntryName& state, const std::string& parameter) {
      const Entry& entry = checkpoint_.catalog->entries[at];
      if (state.state == "step" || !parameter.starts_with(result_.prefix)) return;
      for (TitanTensor& tensor :
           titan.tensors_of(parameter.substr(result_.prefix.size()), entry.shape)) {
        entries.push_back({optimizer_entry_name(state.state, tensor.name),
                           entry.dtype,
                           std::move(tensor.shape),
                           {},
                           Role::optimizer});
        result_.recipes.push_back({{at}, std::move(tensor.moves), {}});
      }
    });
  }

  void begin_model() {
    Checkpoint& model = result_.model;
    model.format = Format::hugging_face;
    model.path = checkpoint_.path;
    model.writer = checkpoint_.writer;
    model.iteration = checkpoint_.iteration;
    model.optimizer_problem = checkpoint_.optimizer_problem;
    model.param_groups = checkpoint_.param_groups;
    model.optimizer_steps = checkpoint_.optimizer_steps;
    Catalog& catalog = model.catalog.edit();
    catalog.file_system = checkpoint_.catalog->file_system;
    catalog.reader_locks = checkpoint_.catalog->reader_locks;
    if (checkpoint_.format != Format::hugging_face) return;
    model.notes = checkpoint_.notes;
    model.damage = checkpoint_.damage;
  }

  void make_model() {
    begin_model();
    const Catalog& from = checkpoint_.catalog;
    Catalog& to = result_.model.catalog.edit();
    to.files = from.files;
    to.locator = from.locator;
    std::unordered_map<std::string_view, uint32_t> seen;
    to.entries.reserve(chosen_.size());
    for (size_t i = 0; i < chosen_.size(); ++i) {
      const Entry& entry = from.entries[chosen_[i]];
      const auto [at, added] = seen.emplace(names_[i], chosen_[i]);
      if (!added) {
        fail(ErrorKind::invalid, "{}: tensors {} and {} would both be called {}; choose one ({})",
             checkpoint_.path, from.entries[at->second].name, entry.name, names_[i],
             option("only"));
      }
      to.entries.push_back(entry);
      to.entries.back().name = names_[i];
      to.entries.back().role = Role::model;
    }
    if (options_.optimizer) add_optimizer();
  }

  // What is stored as "optimizer.state.<kind>.<name>", of the tensors that were chosen: calls
  // visit(position, parsed name, name of the parameter here).
  template <typename Visit>
  void for_each_state(const Visit& visit) const {
    std::unordered_map<std::string_view, size_t> chosen;
    const auto& entries = checkpoint_.catalog->entries;
    for (size_t i = 0; i < chosen_.size(); ++i) chosen.emplace(entries[chosen_[i]].name, i);
    for (uint32_t i = 0; i < entries.size(); ++i) {
      if (entries[i].role != Role::optimizer) continue;
      const auto state = parse_optimizer_entry_name(entries[i].name);
      if (!state) continue;
      const auto parameter = chosen.find(state->key);
      if (parameter != chosen.end()) visit(i, *state, names_[parameter->second]);
    }
  }

  void add_optimizer() {
    std::vector<Entry>& entries = result_.model.catalog.edit().entries;
    for_each_state([&](uint32_t at, const OptimizerEntryName& state, const std::string& parameter) {
      Entry& added = entries.emplace_back(checkpoint_.catalog->entries[at]);
      added.name = optimizer_entry_name(state.state, parameter);
    });
  }

  const Checkpoint& checkpoint_;
  const StateDictOptions& options_;
  std::vector<uint32_t> chosen_;                           // positions in the checkpoint's catalog
  std::vector<std::string> names_;                         // of those
  std::unordered_set<std::string> expected_;               // transformers' names of the model
  std::unordered_set<std::string_view> expected_modules_;  // that those are of
  StateDict result_;
};

}  // namespace

StateDict read_state_dict(const Checkpoint& checkpoint, const StateDictOptions& options) {
  try {
    return StateDictReader(checkpoint, options).read();
  } catch (const Error& error) {
    const bool other_names =
        error.kind() == ErrorKind::not_found || error.kind() == ErrorKind::mismatch;
    if (!other_names || checkpoint.conversion.empty()) throw;
    fail(error.kind(), "{}; as a checkpoint of {}: {}", error.what(), checkpoint.writer,
         checkpoint.conversion);
  }
}

}  // namespace ferry
