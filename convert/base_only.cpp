#include "convert/base_only.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/format/other_programs.h"
#include "convert/check/names.h"

namespace ferry {
namespace {

std::string counted(const AdapterSummary& adapter) {
  return fmt::format("{}: {} tensor{}", to_text(adapter), adapter.tensors,
                     adapter.tensors == 1 ? "" : "s");
}

bool is_megatron(const Checkpoint& checkpoint) {
  switch (checkpoint.format) {
    case Format::torch_dist:
    case Format::fsdp_dtensor:
    case Format::torch_dcp:
    case Format::megatron_torch:
    case Format::nemo:
      return true;
    default:
      return false;
  }
}

std::string_view way_to_merge(const Checkpoint& checkpoint, const AdapterSummary& adapter) {
  if (is_megatron(checkpoint)) {
    return "Merge them with the program that trained them, and convert the merged model";
  }
  if (adapter.methods == std::vector<std::string>{"prompt_encoder"} && adapter.replaced.empty()) {
    return "What was learnt as a prompt has no place in a model's weights: PEFT loads both";
  }
  return "Merge them with PEFT (get_peft_model(), load_state_dict(), merge_and_unload(), "
         "save_pretrained()) and convert the merged model";
}

// A name that only PEFT's model around a whole model gives.
bool has_outer_wrapper(const Catalog& catalog) {
  return std::ranges::any_of(catalog.entries, [](const Entry& entry) {
    return entry.name.find("base_model.model.") != std::string::npos;
  });
}

// Removes the adapter's entries; those that are left keep what they refer to.
void erase_adapter(Catalog& catalog, const std::vector<AdapterTensor>& tensors) {
  std::vector<uint32_t> positions(tensors.size());
  std::vector<Entry> kept;
  for (size_t i = 0; i < tensors.size(); ++i) {
    positions[i] = static_cast<uint32_t>(kept.size());
    if (tensors[i].part != AdapterPart::none) continue;
    Entry& entry = kept.emplace_back(std::move(catalog.entries[i]));
    if (entry.role == Role::model) entry.name = tensors[i].name;
  }
  for (Entry& entry : kept) {
    if (entry.remainders) entry.remainders->upper = positions[entry.remainders->upper];
  }
  catalog.entries = std::move(kept);
}

bool has_adapter_file(const Checkpoint& checkpoint) {
  const FileSystem& files = *checkpoint.catalog->file_system;
  return checkpoint.format == Format::hugging_face && adapter_base(files, checkpoint.path);
}

// For a model next to whose weights an adapter's files are.
std::string resolve_adapter_file(const std::string& path, bool base_only) {
  if (base_only) {
    return fmt::format("{}: the folder's adapter (adapter_config.json) is left out",
                       option("base_only"));
  }
  fail(ErrorKind::unsupported,
       "{}: holds a model and an adapter in files of its own (adapter_config.json), which "
       "transformers loads with it. Merge them with PEFT (merge_and_unload(), save_pretrained()) "
       "and convert the merged model; {} writes the model without the adapter",
       path, option("base_only"));
}

void check_names(const Checkpoint& checkpoint) {
  std::vector<std::string_view> names;
  for (const Entry& entry : checkpoint.catalog->entries) names.push_back(entry.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice == names.end()) return;
  fail(ErrorKind::mismatch,
       "{}: without what an adapter puts into names, two tensors would be called {}",
       checkpoint.path, *twice);
}

}  // namespace

void refuse_adapter(const Checkpoint& checkpoint, const AdapterSummary& adapter) {
  const std::string& path = checkpoint.path;
  if (adapter.tensors == 0) {
    fail(ErrorKind::unsupported,
         "{}: {} tensors have the names of modules that an adapter wraps (base_layer), but the "
         "adapter's own tensors are not here: this is a part of what was trained. {} "
         "writes the model without its adapter",
         path, adapter.wrapped, option("base_only"));
  }
  if (adapter.alone && is_megatron(checkpoint)) {
    fail(ErrorKind::unsupported,
         "{}: is an adapter without its model ({}); with Megatron Bridge, merge it into the model "
         "or export it for PEFT (AutoBridge.export_adapter_ckpt), and convert the merged model",
         path, counted(adapter));
  }
  if (adapter.alone) {
    fail(ErrorKind::unsupported,
         "{}: is an adapter without its model ({}); merge it into that first (peft's "
         "merge_and_unload() and save_pretrained()), and convert the merged model",
         path, counted(adapter));
  }
  fail(ErrorKind::unsupported,
       "{}: holds a model and an adapter of it ({}), which cannot be merged here yet. {}. "
       "{} writes the model without the adapter; {} copies all tensors under their names",
       path, counted(adapter), way_to_merge(checkpoint, adapter), option("base_only"),
       option("to", "safetensors"));
}

void check_no_adapter(const Checkpoint& checkpoint) {
  const Catalog& catalog = checkpoint.catalog;
  const AdapterSummary adapter = summarise(catalog, adapter_tensors(catalog));
  if (adapter.any()) refuse_adapter(checkpoint, adapter);
}

void refuse_adapter_folder(const Checkpoint& checkpoint) {
  const auto base = adapter_base(*checkpoint.catalog->file_system, checkpoint.path);
  if (!base) return;
  const Catalog& catalog = checkpoint.catalog;
  const AdapterSummary adapter = summarise(catalog, adapter_tensors(catalog));
  if (!adapter.alone && adapter.any()) return;
  // Other methods have names of their own in files, but a model has a config.json.
  const std::string config = join(checkpoint.path, "config.json");
  if (!adapter.alone && catalog.file_system->status(config).kind == PathKind::file) return;
  fail(ErrorKind::unsupported, "{}: {}", checkpoint.path, what_adapter(*base));
}

bool is_adapter_file(const std::string& name) {
  return name == "adapter_config.json" || name == "adapter_model.safetensors" ||
         name == "adapter_model.bin";
}

void refuse_base_only(const std::string& path) {
  fail(ErrorKind::invalid, "{}: holds no adapter, so {} has no effect", path, option("base_only"));
}

std::string left_out_text(const AdapterSummary& adapter) {
  if (adapter.tensors == 0) {
    return "the names are without what an adapter put into them (base_layer): its own tensors are "
           "not in the checkpoint";
  }
  return fmt::format("{}: the adapter is left out ({}), so the model is without what it learnt",
                     option("base_only"), counted(adapter));
}

AdapterSummary take_adapter_out(Checkpoint& checkpoint) {
  const std::vector<AdapterTensor> tensors = adapter_tensors(checkpoint.catalog);
  AdapterSummary adapter = summarise(checkpoint.catalog, tensors);
  if (!adapter.any()) return adapter;
  erase_adapter(checkpoint.catalog.edit(), tensors);
  check_names(checkpoint);
  if (std::string note = unwrap_names(checkpoint); !note.empty()) {
    checkpoint.notes.push_back(std::move(note));
  }
  return adapter;
}

std::string resolve_adapter(Checkpoint& checkpoint, bool base_only, bool keeps_names) {
  const bool has_file = has_adapter_file(checkpoint);
  if (has_file) refuse_adapter_folder(checkpoint);
  const Catalog& catalog = checkpoint.catalog;
  const AdapterSummary adapter = summarise(catalog, adapter_tensors(catalog));
  if (!adapter.any() && has_file) return resolve_adapter_file(checkpoint.path, base_only);
  if (!adapter.any()) {
    if (base_only) refuse_base_only(checkpoint.path);
    return {};
  }
  if (!base_only && keeps_names && !adapter.alone && !has_outer_wrapper(catalog)) {
    return fmt::format(
        "the model holds an adapter ({}), which is copied under its names: whether the model's "
        "class loads it is not known here",
        counted(adapter));
  }
  if (!base_only || adapter.alone) refuse_adapter(checkpoint, adapter);
  return left_out_text(take_adapter_out(checkpoint));
}

}  // namespace ferry
