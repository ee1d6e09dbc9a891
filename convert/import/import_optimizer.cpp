#include "convert/import/import_optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "ckpt/megatron/optimizer/param_groups.h"
#include "ckpt/megatron/state/edit.h"
#include "convert/model/hugging_face_tensors.h"

namespace ferry {
namespace {

constexpr std::string_view kAdamKinds[] = {"exp_avg", "exp_avg_sq"};
constexpr size_t kMostNamesShown = 4;
constexpr int64_t kScheduleSamples = int64_t{1} << 40;  // of a schedule that changes nothing

[[noreturn]] void fail_without(const Checkpoint& checkpoint, std::string_view what) {
  fail(ErrorKind::unsupported, "{}: {}; without {} the model alone is written, as a release",
       checkpoint.path, what, option("optimizer"));
}

bool has_kind(const Catalog& catalog, std::string_view kind) {
  const std::string prefix = optimizer_entry_name(kind, "");
  return std::ranges::any_of(catalog.entries, [&](const Entry& entry) {
    return entry.role == Role::optimizer && entry.name.starts_with(prefix);
  });
}

bool is_of_adam(std::string_view name) {
  return std::ranges::any_of(kAdamKinds, [&](std::string_view kind) {
    return name.starts_with(optimizer_entry_name(kind, ""));
  });
}

// Parameters that were not trained have no state.
void warn_of_stateless(const ImportedTensors& tensors, size_t models,
                       std::vector<std::string>& warnings) {
  std::unordered_set<std::string_view> with_state;
  for (size_t i = models; i < tensors.tensors.size(); ++i) {
    with_state.insert(model_name(tensors.tensors[i].name));
  }
  std::vector<std::string> without;
  for (size_t i = 0; i < models; ++i) {
    const std::string& name = tensors.tensors[i].name;
    const bool buffer = name.find(".router.expert_bias") != std::string::npos;
    if (!with_state.contains(name) && !buffer) without.push_back(name);
  }
  if (without.empty()) return;
  const auto shown = static_cast<std::ptrdiff_t>(std::min(without.size(), kMostNamesShown));
  warnings.push_back(
      fmt::format("{} tensors have no optimizer state, as they were not trained: {}{}",
                  without.size(), fmt::join(without.begin(), without.begin() + shown, ", "),
                  without.size() > kMostNamesShown ? ", ..." : ""));
}

// What the parameter groups of another program say, as far as Megatron-LM's can say it.
struct Hyperparameters {
  double lr = 0, weight_decay = 0, epsilon = 1e-8, beta1 = 0.9, beta2 = 0.999;
  int64_t steps = 0;
};

class GroupReader {
 public:
  GroupReader(const Checkpoint& checkpoint, std::vector<std::string>& warnings)
      : checkpoint_(checkpoint), groups_(checkpoint.param_groups.value), warnings_(warnings) {}

  Hyperparameters read() {
    if (groups_.kind() != ValueKind::list || groups_.size() == 0) {
      fail_without(checkpoint_,
                   "its optimizer has no parameter groups (learning rate, betas, weight decay), "
                   "which Megatron-LM's optimizer needs");
    }
    Hyperparameters read;
    read.lr = one_for_all("lr", groups_[0].get("lr"), 0);
    read.epsilon = one_for_all("eps", groups_[0].get("eps"), read.epsilon);
    const Value betas = groups_[0].get("betas");
    read.beta1 = number(betas[0]).value_or(read.beta1);
    read.beta2 = number(betas[1]).value_or(read.beta2);
    read.weight_decay = decay();
    const auto steps =
        checkpoint_.optimizer_steps ? checkpoint_.optimizer_steps : checkpoint_.iteration;
    if (!steps) fail_without(checkpoint_, "nothing says how many steps its optimizer has made");
    read.steps = *steps;
    return read;
  }

 private:
  static std::optional<double> number(const Value& value) {
    const auto real = value.real();
    return real && std::isfinite(*real) ? real : std::nullopt;
  }

  double one_for_all(std::string_view name, const Value& first, double otherwise) {
    const double value = number(first).value_or(otherwise);
    for (size_t i = 1; i < groups_.size(); ++i) {
      const auto other = number(groups_[i].get(name));
      if (!other || *other == value) continue;
      warnings_.push_back(fmt::format(
          "the optimizer's parameter groups have several values of {} ({} and {}): the first is "
          "kept, as Megatron-LM has one",
          name, value, *other));
      break;
    }
    return value;
  }

  // Megatron-LM decays what has two axes or more, and nothing else.
  double decay() {
    std::set<double> values;
    for (size_t i = 0; i < groups_.size(); ++i) {
      values.insert(number(groups_[i].get("weight_decay")).value_or(0));
    }
    const double largest = *values.rbegin();
    if (values.size() > 2 || (values.size() == 2 && *values.begin() != 0)) {
      warnings_.push_back(fmt::format(
          "the optimizer's parameter groups have the weight decays {}: {} is kept for tensors of "
          "two axes or more, 0 for norms and biases, which is what Megatron-LM has",
          fmt::join(values, ", "), largest));
    } else if (values.size() == 1 && largest != 0) {
      warnings_.push_back(fmt::format(
          "the optimizer decayed all parameters by {}: from here on norms and biases are not "
          "decayed, as in Megatron-LM",
          largest));
    }
    return largest;
  }

  const Checkpoint& checkpoint_;
  const Value groups_;
  std::vector<std::string>& warnings_;
};

Value group_of(Draft& draft, const Hyperparameters& h, bool decays) {
  const Value group = draft.dict();
  const auto put = [&](const char* name, const Value& value) { draft.put(group, name, value); };
  put("wd_mult", draft.real(decays ? 1 : 0));
  put("lr_mult", draft.real(1));
  put("is_expert_parallel", draft.boolean(false));
  put("is_decoupled_lr", draft.boolean(false));
  put("default_config", draft.boolean(true));
  put("max_lr", draft.real(h.lr));
  put("min_lr", draft.real(h.lr));
  put("lr", draft.real(h.lr));
  put("weight_decay", draft.real(decays ? h.weight_decay : 0));
  put("bias_correction", draft.boolean(true));
  put("betas", draft.tuple({draft.real(h.beta1), draft.real(h.beta2)}));
  put("eps", draft.real(h.epsilon));
  put("step", draft.integer(h.steps));
  return group;
}

LoadedValue groups_of(const Hyperparameters& h) {
  Draft draft;
  const Value list = draft.list({group_of(draft, h, true), group_of(draft, h, false)});
  return std::move(draft).finish(list);
}

LoadedValue constant_schedule(const Hyperparameters& h) {
  Draft draft;
  const Value schedule = draft.dict();
  const auto put = [&](const char* name, const Value& value) { draft.put(schedule, name, value); };
  put("max_lr", draft.real(h.lr));
  put("lr_warmup_steps", draft.integer(0));
  put("num_steps", draft.integer(0));
  put("lr_decay_style", draft.string("constant"));
  put("lr_decay_steps", draft.integer(kScheduleSamples));
  put("min_lr", draft.real(h.lr));
  put("start_wd", draft.real(h.weight_decay));
  put("end_wd", draft.real(h.weight_decay));
  put("wd_incr_style", draft.string("constant"));
  put("wd_incr_steps", draft.integer(kScheduleSamples));
  return std::move(draft).finish(schedule);
}

LoadedValue with_optimizer(const LoadedValue& source, const Hyperparameters& h) {
  Draft draft;
  const Value args = draft.copy(source.value);
  draft.put(args, "no_save_optim", draft.boolean(false));
  draft.put(args, "use_distributed_optimizer", draft.boolean(true));
  draft.put(args, "optimizer", draft.string("adam"));
  draft.put(args, "adam_beta1", draft.real(h.beta1));
  draft.put(args, "adam_beta2", draft.real(h.beta2));
  draft.put(args, "adam_eps", draft.real(h.epsilon));
  draft.put(args, "lr", draft.real(h.lr));
  draft.put(args, "min_lr", draft.real(h.lr));
  draft.put(args, "weight_decay", draft.real(h.weight_decay));
  draft.put(args, "iteration", draft.integer(h.steps));
  return std::move(draft).finish(args);
}

}  // namespace

void add_optimizer(const Checkpoint& checkpoint, const Family& family,
                   const Architecture& architecture, bool drop_unknown, ImportedTensors& tensors) {
  const Catalog& catalog = checkpoint.catalog;
  if (!checkpoint.optimizer_problem.empty()) {
    fail_without(checkpoint, checkpoint.optimizer_problem);
  }
  for (const std::string_view kind : kAdamKinds) {
    if (has_kind(catalog, kind)) continue;
    fail_without(checkpoint, fmt::format("holds no {}, which the state of Adam has", kind));
  }
  const size_t models = tensors.tensors.size();
  for (const std::string_view kind : kAdamKinds) {
    ImportTensorOptions options;
    options.dtype = DType::f32;
    options.drop_unknown = drop_unknown;
    options.optimizer_kind = kind;
    HuggingFaceTensors state(catalog, family, options.optimizer_kind);
    ImportedTensors imported =
        import_tensors(catalog, state, family, architecture, options, checkpoint.path);
    std::ranges::move(imported.tensors, std::back_inserter(tensors.tensors));
    std::ranges::move(imported.dropped, std::back_inserter(tensors.dropped));
  }
  for (uint32_t i = 0; i < catalog.entries.size(); ++i) {
    const Entry& entry = catalog.entries[i];
    if (entry.role != Role::optimizer || is_of_adam(entry.name)) continue;
    tensors.dropped.push_back({i, entry.elements()});
  }
  warn_of_stateless(tensors, models, tensors.warnings);
}

void add_optimizer_state(const Checkpoint& checkpoint, RunState& state) {
  const Hyperparameters h = GroupReader(checkpoint, state.warnings).read();
  state.args = with_optimizer(state.args, h);
  state.iteration = checkpoint.iteration ? *checkpoint.iteration : h.steps;
  const bool has_biases = std::ranges::any_of(state.tensors, [](const StateTensor& tensor) {
    return tensor.name.ends_with(".bias") && tensor.name.find(".experts.") != std::string::npos;
  });
  state.param_groups =
      adapt_param_groups({groups_of(h)}, experts_are_separate(state.args.run), has_biases);
  state.common.emplace_back("opt_param_scheduler", constant_schedule(h));
  state.warnings.push_back(fmt::format(
      "the schedule of learning rates is made anew, as Megatron-LM's is another: {} throughout, "
      "unless the run that continues says otherwise (--override-opt_param-scheduler)",
      h.lr));
}

}  // namespace ferry
