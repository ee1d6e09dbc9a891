#include "ckpt/megatron/state_of.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/plain_value.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/megatron/fsdp/fsdp.h"
#include "ckpt/megatron/fsdp/fsdp_state.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "ckpt/megatron/optimizer/param_groups.h"

namespace ferry {
namespace {

// "rng_state/shard_0.1_2.2" as its key and numbers. Members of the common state have no such name.
struct ShardName {
  std::string_view key;
  Dims offsets, shape;
};

Dims parse_numbers(std::string_view text) {
  Dims numbers;
  while (!text.empty()) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return {};
    numbers.push_back(number);
    text.remove_prefix(end - text.data());
    if (!text.empty() && text.front() != '.') return {};
    if (!text.empty()) text.remove_prefix(1);
  }
  return numbers;
}

std::optional<ShardName> parse_shard_name(std::string_view name) {
  constexpr std::string_view kShard = "/shard_";
  const size_t at = name.rfind(kShard);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view numbers = name.substr(at + kShard.size());
  const size_t middle = numbers.find('_');
  if (middle == std::string_view::npos) return std::nullopt;
  return ShardName{name.substr(0, at), parse_numbers(numbers.substr(0, middle)),
                   parse_numbers(numbers.substr(middle + 1))};
}

// Held elsewhere in the state, or made anew by whoever writes it.
bool is_held_elsewhere(std::string_view member) {
  constexpr std::array<std::string_view, 5> kNames = {"args", "iteration", "optimizer",
                                                      "content_metadata", "rng_state"};
  return std::find(kNames.begin(), kNames.end(), member) != kNames.end();
}

// NeMo's common state is PyTorch Lightning's: of its members Megatron-LM knows none.
bool means_something(Format format, std::string_view member) {
  return format != Format::nemo || member == "opt_param_scheduler" ||
         member == "checkpoint_version" || member == "num_floating_point_operations_so_far";
}

// What the checkpoint is where it holds no run; empty where it does.
std::string_view other_than_run(const Checkpoint& checkpoint) {
  switch (checkpoint.format) {
    case Format::torch_dist:
    case Format::megatron_torch:
    case Format::nemo:
    case Format::fsdp_dtensor:
    case Format::torch_dcp:
      return {};
    case Format::hugging_face:
      return "a Hugging Face model";
    case Format::safetensors:
    case Format::torch_file:
      return "a single file of tensors";
    case Format::fsdp:
      return "the files of FSDP's ranks";
    case Format::deepspeed:
      return "a checkpoint of DeepSpeed's";
    case Format::dcp:
      break;
  }
  const auto is_known = [](const Entry& entry) { return find_parameter(entry.name).has_value(); };
  const auto& entries = checkpoint.catalog->entries;
  if (checkpoint.args.value && std::any_of(entries.begin(), entries.end(), is_known)) return {};
  return "a PyTorch distributed checkpoint without Megatron-LM's names or arguments";
}

StateTensor as_stored(const Catalog& catalog, uint32_t number) {
  const Entry& entry = catalog.entries[number];
  return {
      entry.name, entry.dtype, entry.shape, {{number}, {copy_all(entry.shape)}, {}}, entry.role};
}

class Collector {
 public:
  explicit Collector(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
    state_.source = checkpoint.catalog;
    state_.args = arguments();
    state_.iteration = checkpoint.iteration;
    state_.modules = checkpoint.modules;
  }

  RunState collect() {
    add_tensors();
    if (is_fsdp(checkpoint_.format)) {
      add_fsdp_state(checkpoint_, state_);
      return finish();
    }
    for (const Object& object : checkpoint_.catalog->objects) add_object(object);
    OptimizerGroups groups = read_param_groups(checkpoint_.catalog, optimizer_);
    if (has_optimizer_) {
      state_.param_groups = std::move(groups.param_groups);
      state_.grad_scaler = std::move(groups.grad_scaler);
    }
    return finish();
  }

 private:
  RunState finish() {
    if (!checkpoint_.optimizer_problem.empty()) {
      state_.warnings.push_back(checkpoint_.optimizer_problem);
    }
    report_left_out();
    return std::move(state_);
  }

  // With the elements of tensors among them, which opening a checkpoint does not read.
  LoadedValue arguments() const {
    const LoadedValue& args = checkpoint_.args;
    for (const Object& object : checkpoint_.catalog->objects) {
      if (object.name != "args" || checkpoint_.format == Format::nemo) continue;
      return with_storages(checkpoint_.catalog, object, args, std::span(&args.value, 1));
    }
    return args;
  }

  void add_tensors() {
    const auto& entries = checkpoint_.catalog->entries;
    state_.tensors.reserve(entries.size());
    for (uint32_t i = 0; i < entries.size(); ++i) {
      has_optimizer_ |= entries[i].role == Role::optimizer;
      state_.tensors.push_back(as_stored(checkpoint_.catalog, i));
    }
  }

  void add_object(const Object& object) {
    const Catalog& catalog = checkpoint_.catalog;
    const auto shard = parse_shard_name(object.name);
    if (!shard) {
      if (object.name == "optimizer") {
        optimizer_ = &object;
      } else if (!is_held_elsewhere(object.name)) {
        add_member(object);
      }
    } else if (shard->key == "rng_state") {
      add_rng(object, *shard);
    } else if (shard->key.find("optimizer.distributed.") == std::string_view::npos) {
      state_.objects.push_back({object.name, read_object_bytes(catalog, object)});
    }
  }

  void add_member(const Object& object) {
    if (means_something(checkpoint_.format, object.name)) {
      state_.common.emplace_back(object.name,
                                 read_object_with_storages(checkpoint_.catalog, object));
    } else {
      left_out_ += (left_out_.empty() ? "" : ", ") + object.name;
    }
  }

  void add_rng(const Object& object, const ShardName& name) {
    if (name.offsets.size() != 2 || name.shape.size() != 2) {
      state_.warnings.push_back(
          fmt::format("{} is left out: its name gives no grid of ranks", object.name));
      return;
    }
    LoadedValue value = read_object_with_storages(checkpoint_.catalog, object);
    // A sharded object is stored as a list of one: the list that it is.
    const Value inner = value.value[0];
    if (value.value.size() == 1 && inner.kind() == ValueKind::list) value.value = inner;
    state_.rng.push_back(
        {name.offsets[0], name.offsets[1], name.shape[0], name.shape[1], std::move(value)});
  }

  void report_left_out() {
    if (left_out_.empty()) return;
    state_.warnings.push_back("left out of the common state, as Megatron-LM does not know it: " +
                              left_out_);
  }

  const Checkpoint& checkpoint_;
  RunState state_;
  const Object* optimizer_ = nullptr;
  bool has_optimizer_ = false;
  std::string left_out_;
};

}  // namespace

bool holds_run(const Checkpoint& checkpoint) { return other_than_run(checkpoint).empty(); }

RunState state_of(const Checkpoint& checkpoint) {
  if (const std::string_view other = other_than_run(checkpoint); !other.empty()) {
    fail(ErrorKind::unsupported,
         "{}: {}, not a training checkpoint of Megatron-LM or NeMo; convert brings models from and "
         "to Hugging Face, and reshard with {} copies tensors as they are",
         checkpoint.path, other, option("to", "dcp"));
  }
  return Collector(checkpoint).collect();
}

RunState plain_state_of(const Checkpoint& checkpoint) {
  const Catalog& catalog = checkpoint.catalog;
  RunState state;
  state.source = checkpoint.catalog;
  state.iteration = checkpoint.iteration;
  state.paths = checkpoint.paths;
  for (uint32_t i = 0; i < catalog.entries.size(); ++i) {
    state.tensors.push_back(as_stored(catalog, i));
  }
  for (const Object& object : catalog.objects) {
    // Elsewhere than in a DCP an object is a part of a file, of which it is made anew.
    state.objects.push_back(
        {object.name,
         checkpoint.format == Format::dcp
             ? read_object_bytes(catalog, object)
             : write_torch_archive(
                   plain_value(read_object_with_storages(catalog, object).value).value)});
  }
  return state;
}

}  // namespace ferry
