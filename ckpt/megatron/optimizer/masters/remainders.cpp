#include "ckpt/megatron/optimizer/masters/remainders.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ckpt/engine/tensor_reader.h"
#include "ckpt/megatron/optimizer/masters/weights.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"

namespace ferry {
namespace {

constexpr size_t kTensorsRead = 4;       // the largest ones, until one decides
constexpr int64_t kElementsRead = 4096;  // of each
// No matrix of weights has whole numbers only and one as large as this among them.
constexpr float kLargeRemainder = 100;
constexpr uint64_t kStreamBytes = uint64_t{16} << 20;

// Masters, and whether each has a bf16 weight of its shape.
struct PossibleMaster : StoredMaster {
  bool has_weight = false;
};

std::vector<PossibleMaster> possible_masters(const Catalog& catalog) {
  std::vector<PossibleMaster> masters;
  for (const StoredMaster& stored : stored_masters(catalog)) {
    const Entry* weight = stored.weight ? &catalog.entries[*stored.weight] : nullptr;
    masters.push_back({stored, weight && weight->dtype == DType::bf16 &&
                                   weight->shape == catalog.entries[stored.master].shape});
  }
  return masters;
}

enum class Evidence { remainders, masters, nothing };

Evidence evidence_of(const std::vector<float>& values) {
  float largest = 0;
  for (const float value : values) {
    const bool is_remainder = value >= -32768.0F && value <= 32767.0F && std::trunc(value) == value;
    if (!is_remainder) return Evidence::masters;
    largest = std::max(largest, std::fabs(value));
  }
  return largest >= kLargeRemainder ? Evidence::remainders : Evidence::nothing;
}

// The first elements of the last axis's first rows.
std::vector<float> first_values(const Catalog& catalog, uint32_t position) {
  const Entry& entry = catalog.entries[position];
  Box box = Box::whole(entry.shape);
  int64_t left = kElementsRead;
  for (size_t axis = entry.shape.size(); axis-- > 0;) {
    box.size[axis] = std::min(entry.shape[axis], left);
    left = box.size[axis] == entry.shape[axis] ? std::max<int64_t>(1, left / box.size[axis]) : 1;
  }
  Plan plan;
  plan.source = SharedCatalog::borrow(catalog);
  add_read_tensor(plan, entry.name, entry.dtype, box.size,
                  {{position}, {copy_box(box, Dims(box.size.size(), 0))}, {}});
  TensorSource source(plan, kStreamBytes, 1);
  TensorReader reader(source);
  std::vector<float> values(static_cast<size_t>(element_count(box.size, entry.name)));
  reader.read(0, plan.target.entries[0].chunks[0], Box::whole(box.size),
              std::as_writable_bytes(std::span(values)));
  return values;
}

// What the values of the largest tensors show, those most likely to hold a large remainder.
Evidence evidence_of_values(const Catalog& catalog, std::vector<PossibleMaster> masters) {
  std::erase_if(masters, [&](const PossibleMaster& master) {
    return !master.has_weight || catalog.entries[master.master].dtype != DType::f32 ||
           catalog.entries[master.master].elements() == 0;
  });
  const auto larger = [&](const PossibleMaster& a, const PossibleMaster& b) {
    return catalog.entries[a.master].elements() > catalog.entries[b.master].elements();
  };
  const size_t most = std::min(kTensorsRead, masters.size());
  std::partial_sort(masters.begin(), masters.begin() + static_cast<std::ptrdiff_t>(most),
                    masters.end(), larger);
  for (size_t i = 0; i < most; ++i) {
    const Evidence evidence = evidence_of(first_values(catalog, masters[i].master));
    if (evidence != Evidence::nothing) return evidence;
  }
  return Evidence::nothing;
}

// Whether fp32 masters of this run may be remainders. NeMo's arguments do not say.
bool may_be_remainders(const Checkpoint& checkpoint) {
  const Value flag = checkpoint.args.value.get("use_precision_aware_optimizer");
  if (flag) return flag.boolean().value_or(true);
  return !checkpoint.args.value || checkpoint.format == Format::nemo;
}

// `tensor` is the name of one of the entries, which go.
void leave_remainders_out(Checkpoint& checkpoint, std::string tensor) {
  std::erase_if(checkpoint.catalog.edit().entries,
                [](const Entry& entry) { return entry.role == Role::optimizer; });
  checkpoint.optimizer_problem = fmt::format(
      "The optimizer's state is left out: {} holds 16-bit remainders, which are values only "
      "together with a bf16 tensor of the model of the same shape, and there is none.",
      tensor);
}

}  // namespace

void recognise_remainders(Checkpoint& checkpoint) {
  Catalog& catalog = checkpoint.catalog.edit();
  const std::vector<PossibleMaster> masters = possible_masters(catalog);
  const auto stored = [&](const PossibleMaster& master) {
    return catalog.entries[master.master].dtype;
  };
  const bool by_dtype = std::ranges::any_of(
      masters, [](DType dtype) { return dtype == DType::i16; }, stored);
  bool by_values = false;
  if (!by_dtype && may_be_remainders(checkpoint)) {
    const Evidence evidence = evidence_of_values(catalog, masters);
    // Before the first step all are zero.
    const bool said =
        checkpoint.args.value.get("use_precision_aware_optimizer").boolean().value_or(false);
    by_values = evidence == Evidence::remainders || (evidence == Evidence::nothing && said);
  }
  if (!by_dtype && !by_values) return;
  for (const PossibleMaster& master : masters) {
    Entry& entry = catalog.entries[master.master];
    const DType dtype = entry.dtype;
    if (dtype == DType::i16 && !master.has_weight)
      return leave_remainders_out(checkpoint, entry.name);
    if (!master.has_weight || dtype != (by_dtype ? DType::i16 : DType::f32)) continue;
    entry.remainders = Remainders{dtype, *master.weight};
    entry.dtype = DType::f32;
  }
}

bool has_remainders(const Catalog& catalog) {
  return std::ranges::any_of(catalog.entries,
                             [](const Entry& entry) { return entry.remainders.has_value(); });
}

int64_t split_masters(RunState& state) {
  std::unordered_map<std::string_view, StateTensor*> model;
  for (StateTensor& tensor : state.tensors) {
    if (tensor.role == Role::model && tensor.dtype == DType::bf16) {
      model.emplace(tensor.name, &tensor);
    }
  }
  const auto count = [&](const Recipe& recipe, int64_t sign) {
    for (const Move& move : recipe.moves) {
      state.dropped.push_back({recipe.inputs.at(move.input), sign * move.elements()});
    }
  };
  int64_t split = 0;
  for (StateTensor& tensor : state.tensors) {
    const auto name = parse_optimizer_entry_name(tensor.name);
    if (tensor.role != Role::optimizer || !name || name->state != "param") continue;
    const auto at = model.find(name->key);
    if (at == model.end()) continue;
    StateTensor& weight = *at->second;
    count(weight.recipe, 1);
    weight.recipe = tensor.recipe;
    weight.recipe.half = FloatHalf::upper;
    count(weight.recipe, -1);
    tensor.recipe.half = FloatHalf::lower;
    tensor.dtype = DType::i16;
    ++split;
  }
  return split;
}

}  // namespace ferry
