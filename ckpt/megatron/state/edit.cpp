#include "ckpt/megatron/state/edit.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/model/parameter_names.h"

namespace ferry {
namespace {

constexpr std::string_view kOptimizerPrefix = "optimizer.state.";

void drop_inputs(const StateTensor& tensor, std::vector<Dropped>& dropped) {
  for (const Move& move : tensor.recipe.moves) {
    dropped.push_back({tensor.recipe.inputs.at(move.input), move.elements()});
  }
}

template <typename Predicate>
void leave_out(RunState& state, Predicate is_unwanted) {
  std::erase_if(state.tensors, [&](const StateTensor& tensor) {
    if (!is_unwanted(tensor)) return false;
    drop_inputs(tensor, state.dropped);
    return true;
  });
}

}  // namespace

std::string_view model_name(std::string_view name) {
  if (!name.starts_with(kOptimizerPrefix)) return name;
  const size_t dot = name.find('.', kOptimizerPrefix.size());
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

void keep_tensors(RunState& state, const std::function<bool(std::string_view)>& is_kept) {
  leave_out(state, [&](const StateTensor& tensor) {
    return !is_kept(tensor.name) && !is_kept(model_name(tensor.name));
  });
}

void drop_tensors(RunState& state, const std::function<bool(std::string_view)>& is_unwanted) {
  leave_out(state, [&](const StateTensor& tensor) {
    return is_unwanted(tensor.name) || is_unwanted(model_name(tensor.name));
  });
}

bool has_optimizer(const RunState& state) {
  return std::ranges::any_of(
      state.tensors, [](const StateTensor& tensor) { return tensor.role == Role::optimizer; });
}

void drop_optimizer(RunState& state) {
  leave_out(state, [](const StateTensor& tensor) { return tensor.role == Role::optimizer; });
  state.param_groups.clear();
  state.grad_scaler = {};
}

void rename_tensors(RunState& state, const std::function<std::string(std::string_view)>& rename) {
  std::unordered_set<std::string> names;
  for (StateTensor& tensor : state.tensors) {
    const std::string_view key = model_name(tensor.name);
    tensor.name.replace(tensor.name.size() - key.size(), key.size(), rename(key));
    if (!names.insert(tensor.name).second) {
      fail(ErrorKind::invalid, "two tensors would be called {}", tensor.name);
    }
  }
}

void cast_model(RunState& state, DType dtype) {
  if (!is_floating_point(dtype)) {
    fail(ErrorKind::invalid, "dtype {} is not a floating-point type", torch_name(dtype));
  }
  bool narrows = false;  // the range of numbers
  for (StateTensor& tensor : state.tensors) {
    const bool casts = tensor.role == Role::model && is_floating_point(tensor.dtype);
    if (!casts || is_fp32_buffer(tensor.name)) continue;
    narrows |= dtype == DType::f16 && size_bytes(tensor.dtype) > 1 && tensor.dtype != DType::f16;
    tensor.dtype = dtype;
  }
  if (narrows) {
    state.warnings.push_back(fmt::format(
        "fp16 holds numbers up to 65504: larger ones became infinite (inspect with {} counts them)",
        option("stats")));
  }
  if (!state.args.value) return;
  Draft draft;
  const Value args = draft.copy(state.args.value);
  draft.put(args, "bf16", draft.boolean(dtype == DType::bf16));
  draft.put(args, "fp16", draft.boolean(dtype == DType::f16));
  draft.put(args, "params_dtype", draft.dtype(dtype));
  state.args = std::move(draft).finish(args);
}

}  // namespace ferry
