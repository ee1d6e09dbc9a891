#include "ckpt/megatron/fsdp/fsdp.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/megatron/fsdp/fsdp_model.h"
#include "ckpt/megatron/fsdp/fsdp_names.h"
#include "ckpt/megatron/fsdp/fsdp_optimizer.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "ckpt/megatron/model/run_arguments.h"

namespace ferry {
namespace {

constexpr int64_t kMostGroupMembers = 1 << 20;  // of a parameter group

// Extra states of modules may be tensors, too.
std::optional<std::string_view> fsdp_parameter_of(const Entry& entry) {
  const auto name = fsdp_parameter(entry.name);
  return name && !name->ends_with("._extra_state") ? name : std::nullopt;
}

bool is_fsdp_parameter(const Entry& entry) {
  const auto name = fsdp_parameter_of(entry);
  return name && find_parameter(*name).has_value();
}

Format fsdp_format_of(const Checkpoint& checkpoint) {
  const Value& args = checkpoint.args.value;
  const bool by_name = args.get("ckpt_format").string() == "fsdp_dtensor" ||
                       args.get("use_megatron_fsdp").boolean().value_or(false) ||
                       std::ranges::any_of(checkpoint.catalog->objects, [](const Object& object) {
                         const auto key = parse_fsdp_optimizer_key(object.name);
                         return key && key->kind == FsdpOptimizerKey::Kind::group_by_name;
                       });
  return by_name ? Format::fsdp_dtensor : Format::torch_dcp;
}

// A tensor that is stored in one item is an object to those who read it whole.
bool is_fsdp_object(const Entry& entry) {
  return entry.chunks.size() == 1 && entry.chunks[0].extent.encoding == Encoding::torch_zip &&
         (entry.name.starts_with("rng_state.") ||
          (is_step_of_parameter(entry) && entry.name.starts_with("optimizer.")));
}

// The numbers of a group's members are one object a group.
std::vector<std::vector<int64_t>> fsdp_group_members(const Catalog& catalog) {
  std::map<int64_t, std::vector<int64_t>> groups;
  for (const Object& object : catalog.objects) {
    const auto key = parse_fsdp_optimizer_key(object.name);
    if (!key || key->kind != FsdpOptimizerKey::Kind::group || key->state != "params") continue;
    if (key->optimizer != 0) {
      fail(ErrorKind::unsupported,
           "{}: there are several optimizers, whose parameters have the same numbers", object.name);
    }
    const LoadedValue list = read_object(catalog, object);
    std::vector<int64_t>& members = groups[key->group];
    for (size_t i = 0; i < list.value.size() && i < kMostGroupMembers; ++i) {
      const auto number = list.value[i].integer();
      if (!number) fail(ErrorKind::mismatch, "{}: member {} is not a number", object.name, i);
      members.push_back(*number);
    }
  }
  std::vector<std::vector<int64_t>> all;
  for (auto& [group, members] : groups) {
    if (group != static_cast<int64_t>(all.size())) {
      fail(ErrorKind::mismatch, "parameter group {} of the optimizer is missing", all.size());
    }
    all.push_back(std::move(members));
  }
  return all;
}

class FsdpReader {
 public:
  FsdpReader(Checkpoint& checkpoint, const RunArguments& run)
      : checkpoint_(checkpoint),
        catalog_(checkpoint.catalog.edit()),
        parameters_(parameters()),
        model_(parameters_, run) {}

  void apply() {
    std::vector<Entry> entries = model_entries();
    for (const Entry& entry : entries) check_chunks(catalog_, entry);
    add_optimizer(entries);
    add_others(entries);
    catalog_.entries = std::move(entries);
    checkpoint_.format = fsdp_format_of(checkpoint_);
    checkpoint_.modules = model_.modules();
  }

 private:
  std::vector<ModelTensor> parameters() const {
    std::vector<ModelTensor> tensors;
    for (const Entry& entry : catalog_.entries) {
      if (const auto name = fsdp_parameter_of(entry)) {
        tensors.push_back({std::string(*name), entry.shape, entry.dtype});
      }
    }
    return tensors;
  }

  std::vector<Entry> model_entries() const {
    std::vector<Entry> entries;
    for (const ModelTensor& tensor : model_.tensors()) {
      entries.push_back({tensor.name, tensor.dtype, tensor.shape, {}, Role::model});
    }
    for (const Entry& stored : catalog_.entries) {
      const auto name = fsdp_parameter_of(stored);
      const FsdpPlace* place = name ? model_.find(*name) : nullptr;
      if (!place) continue;
      for (const Chunk& chunk : stored.chunks) {
        entries[place->tensor].chunks.push_back(FsdpModel::placed(chunk, *place));
      }
    }
    return entries;
  }

  void add_optimizer(std::vector<Entry>& entries) {
    const bool any = std::ranges::any_of(catalog_.entries, [](const Entry& entry) {
      return parse_fsdp_optimizer_key(entry.name).has_value();
    });
    checkpoint_.optimizer = OptimizerLayout::none;
    if (!any) return;
    const bool by_name = fsdp_format_of(checkpoint_) == Format::fsdp_dtensor;
    checkpoint_.optimizer = by_name ? OptimizerLayout::fsdp_dtensor : OptimizerLayout::plain;
    try {
      const auto members =
          by_name ? std::vector<std::vector<int64_t>>() : fsdp_group_members(catalog_);
      std::vector<Entry> state =
          fsdp_optimizer_entries(catalog_.entries, model_, parameters_, members);
      for (const Entry& entry : state) check_chunks(catalog_, entry);
      std::move(state.begin(), state.end(), std::back_inserter(entries));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported && error.kind() != ErrorKind::mismatch) throw;
      checkpoint_.optimizer_problem =
          fmt::format("The optimizer's state is left out: {}.", error.what());
    }
  }

  // What is neither of the model nor of the optimizer.
  void add_others(std::vector<Entry>& entries) {
    for (Entry& entry : catalog_.entries) {
      if (is_fsdp_object(entry)) {
        catalog_.objects.push_back({entry.name, entry.chunks[0].extent, {}});
      } else if (!fsdp_parameter(entry.name) && !parse_fsdp_optimizer_key(entry.name)) {
        entries.push_back(std::move(entry));
      }
    }
  }

  Checkpoint& checkpoint_;
  Catalog& catalog_;
  const std::vector<ModelTensor> parameters_;
  const FsdpModel model_;
};

}  // namespace

bool is_fsdp(Format format) noexcept {
  return format == Format::fsdp_dtensor || format == Format::torch_dcp;
}

void apply_fsdp_meaning(Checkpoint& checkpoint) {
  const auto& entries = checkpoint.catalog->entries;
  if (!checkpoint.args.value || !std::ranges::any_of(entries, is_fsdp_parameter)) return;
  try {
    FsdpReader(checkpoint, read_run_arguments(checkpoint.args.value)).apply();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported && error.kind() != ErrorKind::mismatch) throw;
    checkpoint.notes.push_back(
        fmt::format("its tensors are shown as they are stored: {}", error.what()));
  }
}

}  // namespace ferry
