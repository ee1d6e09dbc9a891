#include "trainer/checkpoint/run_checkpoint.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "ckpt/megatron/optimizer/matrix_optimizer.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "ckpt/memory/run_state_memory.h"
#include "trainer/arguments/complete.h"

namespace ferry {

namespace {

// Calls `make` with a draft and returns the document with the root that it returns.
template <typename Make>
LoadedValue drafted(const Make& make) {
  Draft draft;
  const Value root = make(draft);
  return std::move(draft).finish(root);
}

// A parameter group, identified by the keys that Megatron-LM matches groups by when loading.
struct GroupKind {
  bool decays = true, experts = false;
  bool has_own_rates = false;  // of learning
};

Value param_group(Draft& draft, const GroupKind& kind, const Schedule& schedule,
                  const RunProgress& progress, const OptimizerOptions& optimizer) {
  const Value group = draft.dict();
  const auto put = [&](const char* name, const Value& value) { draft.put(group, name, value); };
  const double decay = kind.decays ? weight_decay(schedule, progress.schedule_samples) : 0;
  put("wd_mult", draft.real(kind.decays ? 1 : 0));
  put("lr_mult", draft.real(1));
  put("is_expert_parallel", draft.boolean(kind.experts));
  put("is_decoupled_lr", draft.boolean(false));
  const OptimizerOptions::Rates rates =
      kind.has_own_rates ? *optimizer.input_and_output
                         : OptimizerOptions::Rates{schedule.max_lr, schedule.min_lr};
  const double rate = learning_rate(schedule, progress.schedule_samples, rates.max, rates.min);
  put("default_config", draft.boolean(!kind.has_own_rates));
  put("max_lr", draft.real(rates.max));
  put("min_lr", draft.real(rates.min));
  put("lr", draft.real(rate));
  put("weight_decay", draft.real(decay));
  if (optimizer.kind == OptimizerOptions::Kind::sgd) {
    put("momentum", draft.real(optimizer.momentum));
    put("dampening", draft.real(0));
    put("nesterov", draft.boolean(false));
    return group;
  }
  put("bias_correction", draft.boolean(true));
  if (optimizer.kind == OptimizerOptions::Kind::ademamix) {
    put("betas", draft.tuple({draft.real(optimizer.beta1), draft.real(optimizer.beta2),
                              draft.real(optimizer.beta3)}));
    put("alpha", draft.real(optimizer.alpha));
    put("beta3_warmup", draft.integer(optimizer.beta3_warmup));
    put("alpha_warmup", draft.integer(optimizer.alpha_warmup));
  } else {
    put("betas", draft.tuple({draft.real(optimizer.beta1), draft.real(optimizer.beta2)}));
  }
  put("eps", draft.real(optimizer.epsilon));
  put("step", draft.integer(progress.optimizer_steps));
  return group;
}

// The optimizers of a run and their non-empty parameter groups: with weight decay, then without.
std::vector<LoadedValue> param_groups(const StateLayout& model, const Schedule& schedule,
                                      const RunProgress& progress,
                                      const OptimizerOptions& optimizer) {
  const bool separate = model.choice.separate_experts;
  const auto groups = [&](const std::vector<GroupKind>& kinds) {
    return drafted([&](Draft& draft) {
      const Value list = draft.list();
      for (const GroupKind& kind : kinds) {
        draft.append(list, param_group(draft, kind, schedule, progress, optimizer));
      }
      return list;
    });
  };
  // In Megatron-LM's order of groups: those with their own learning rate before those without
  // decay.
  std::vector<GroupKind> kinds{{true, false, false}, {false, false, false}};
  if (optimizer.input_and_output) kinds.insert(kinds.begin() + 1, {true, false, true});
  std::vector<LoadedValue> optimizers{groups(kinds)};
  if (!separate) return optimizers;
  std::vector<GroupKind> experts{{true, true, false}};
  if (model.layout.has_expert_biases()) experts.push_back({false, true, false});
  optimizers.push_back(groups(experts));
  return optimizers;
}

// `of_masters`: how fp32 master weights are saved.
std::vector<StateTensor> tensors_of(const StateLayout& model, const std::vector<std::string>& kinds,
                                    DType of_masters) {
  std::vector<StateTensor> tensors;
  for (const ModelTensor& tensor : model.layout.tensors()) {
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape, {}, Role::model});
  }
  const size_t count = tensors.size();
  for (size_t i = 0; i < count; ++i) {
    if (is_buffer(tensors[i].name)) continue;
    std::vector<std::string> all = kinds;
    if (tensors[i].dtype != DType::f32) all.insert(all.begin(), "param");
    for (const std::string& kind : all) {
      tensors.push_back({optimizer_entry_name(kind, tensors[i].name),
                         kind == "param" ? of_masters : DType::f32,
                         tensors[i].shape,
                         {},
                         Role::optimizer});
    }
  }
  return tensors;
}

TorchDistOptions options_of(const TrainArguments& arguments) {
  TorchDistOptions options;
  options.files_per_rank = static_cast<int>(arguments.dist_ckpt_workers);
  if (arguments.no_save_optim) {
    options.optimizer = ShardedOptimizer::none;
  } else if (!arguments.use_distributed_optimizer) {
    options.optimizer = ShardedOptimizer::plain;
  } else if (!arguments.dist_ckpt_optim_fully_reshardable) {
    options.optimizer = ShardedOptimizer::dp_reshardable;
  }
  return options;
}

// Remainders only in the format that Megatron-LM loads them from; other formats get whole master
// weights.
DType dtype_of_masters(const TrainArguments& arguments) {
  const bool in_buckets = arguments.ckpt_format != "torch" &&
                          options_of(arguments).optimizer == ShardedOptimizer::dp_reshardable;
  return in_buckets && keeps_remainders(arguments) ? DType::i16 : DType::f32;
}

// The loss scaler's only tensor, of one element.
std::string scale_bytes(const LoadedValue& scaler) {
  const StoredTensor* const scale = scaler.value.get("scale").tensor();
  if (scale == nullptr || scale->dtype != DType::f32) return {};
  const auto storage = scaler.document->storages.find(scale->storage_key);
  if (storage == scaler.document->storages.end()) return {};
  return storage->second.substr(static_cast<size_t>(scale->storage_offset) * sizeof(float),
                                sizeof(float));
}

void load_into(Stager* stager, const Checkpoint& checkpoint, const RunState& state,
               const std::vector<Region>& regions) {
  if (stager == nullptr) return load(tensors_of(checkpoint, state), regions);
  load_staged(checkpoint, state, regions, *stager);
}

}  // namespace

RunState state_to_save(const TrainArguments& arguments, const SavedProgress& saved,
                       const StateLayout& model, const RunProgress& progress,
                       const Schedule& schedule, const OptimizerOptions& optimizer) {
  RunState state;
  state.args = drafted([&](Draft& draft) {
    const Value args = write_namespace(arguments, saved, draft);
    // There is no random number state: random numbers follow from the seed and the step.
    draft.put(args, "no_save_rng", draft.boolean(true));
    return args;
  });
  state.iteration = progress.iteration;
  const auto add = [&](const char* name, LoadedValue value) {
    state.common.emplace_back(name, std::move(value));
  };
  add("checkpoint_version", drafted([](Draft& draft) { return draft.real(3.0); }));
  add("opt_param_scheduler", drafted([&](Draft& draft) {
        return write_schedule(schedule, progress.schedule_samples, draft);
      }));
  add("num_floating_point_operations_so_far",
      drafted([&](Draft& draft) { return draft.real(progress.operations); }));
  if (!arguments.no_save_optim) {
    state.param_groups = param_groups(model, schedule, progress, optimizer);
    state.tensors = tensors_of(model, optimizer.state_kinds(), dtype_of_masters(arguments));
  } else {
    state.tensors = tensors_of(model, {}, DType::f32);
  }
  if (arguments.fp16) {
    state.grad_scaler =
        drafted([&](Draft& draft) { return write_loss_scaler(progress.scaler, draft); });
  }
  state.modules = model.choice.modules;
  return state;
}

std::vector<ConstRegion> regions_to_save(const TrainArguments& arguments,
                                         const ModelState& memory) {
  std::vector<ConstRegion> all;
  const auto add = [&](const std::vector<Region>& regions) {
    for (const Region& region : regions) {
      all.push_back(
          {region.name, region.dtype, region.shape, region.shard, region.data, region.half});
    }
  };
  add(memory.model_regions());
  if (!arguments.no_save_optim) add(memory.optimizer_regions(ModelState::Purpose::save));
  return all;
}

Snapshot snapshot_of(const TrainArguments& arguments, const ModelState& memory, RunState state) {
  return snapshot_of(arguments, regions_to_save(arguments, memory), std::move(state));
}

Snapshot snapshot_of(const TrainArguments& arguments, std::vector<ConstRegion> tensors,
                     RunState state) {
  Snapshot snapshot;
  snapshot.iteration = state.iteration.value_or(0);
  snapshot.tensors = std::move(tensors);
  if (arguments.ckpt_format == "torch") {
    snapshot.format = legacy_format(std::move(state), !arguments.no_save_optim);
  } else {
    snapshot.format = torch_dist_format(std::move(state), options_of(arguments));
  }
  return snapshot;
}

void check_optimizer_state(const Checkpoint& checkpoint, const RunState& state) {
  const auto refuse = [&](ErrorKind kind, const std::string& why) {
    throw SharedError(kind, fmt::format("{}: {} --no-load-optim starts with a new optimizer.",
                                        checkpoint.path, why));
  };
  if (!checkpoint.shifted_state.empty()) refuse(ErrorKind::mismatch, checkpoint.shifted_state);
  if (const auto matrices = matrix_optimizer(checkpoint.args.value); matrices.any) {
    refuse(ErrorKind::unsupported,
           fmt::format("its matrices were trained with {}{}, which ferry train does not have (it "
                       "has adam, sgd and ademamix): Megatron-LM can continue it.",
                       matrices.name, matrices.layer_wise ? " (layer-wise)" : ""));
  }
  if (!checkpoint.optimizer_problem.empty()) {
    refuse(ErrorKind::unsupported, checkpoint.optimizer_problem);
  }
  if (state.param_groups.empty()) {
    refuse(ErrorKind::mismatch, "it has no optimizer state to resume from.");
  }
}

void load_tensors(const Checkpoint& checkpoint, const RunState& state, Stager* stager,
                  ModelState& memory, Load what, std::span<const std::string> skipped_prefixes) {
  std::vector<Region> model = memory.model_regions();
  std::erase_if(model, [&](const Region& region) {
    return std::ranges::any_of(skipped_prefixes, [&](const std::string& prefix) {
      return region.name.starts_with(prefix);
    });
  });
  load_into(stager, checkpoint, state, model);
  memory.copy_to_masters();
  if (what == Load::weights) return;
  try {
    load_into(stager, checkpoint, state,
              what == Load::all ? memory.optimizer_regions(ModelState::Purpose::load)
                                : memory.main_weight_regions());
  } catch (const Error& error) {
    if (what != Load::all || error.kind() != ErrorKind::not_found) throw;
    fail(
        ErrorKind::mismatch,
        "{}: {}. It was saved by a run with another optimizer or weights of another type; give "
        "that run's --optimizer, --bf16 or --fp16, or start with a new optimizer (--no-load-optim)",
        checkpoint.path, error.what());
  }
  memory.copy_from_masters();
}

namespace {

// With --train-iters, the schedule's lengths are counted in samples of --global-batch-size, so
// another batch size changes them all. Report that instead of the first length that differs.
LoadedSchedule read_schedule_of(const RunState& state, const Value& value, const Schedule& schedule,
                                const TrainArguments& arguments, const std::string& path) {
  const ScheduleChoice choice = schedule_choice(arguments);
  const auto saved = state.args.value.get("global_batch_size").integer();
  const bool has_other_batch = saved && arguments.train_iters && arguments.global_batch_size &&
                               *saved > 0 && *saved != *arguments.global_batch_size;
  try {
    return read_schedule(value, schedule, choice, path);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::mismatch || !has_other_batch) throw;
    TrainArguments with_saved = arguments;
    with_saved.global_batch_size = saved;
    // Other differences are reported by their own names.
    read_schedule(value, schedule_of(with_saved), choice, path);
    fail(ErrorKind::mismatch,
         "{}: --global-batch-size is {} in the checkpoint and {} now, and with --train-iters the "
         "learning rate schedule is counted in samples of it; give --global-batch-size {}, "
         "--use-checkpoint-opt-param-scheduler to keep the checkpoint's schedule in samples, or "
         "--override-opt-param-scheduler to use the arguments'",
         path, *saved, *arguments.global_batch_size, *saved);
  }
}

}  // namespace

RunProgress read_progress_of(const RunState& state, const std::string& path,
                             const TrainArguments& arguments, Schedule& schedule,
                             RunProgress progress) {
  progress.iteration = state.iteration.value_or(0);
  if (!arguments.no_load_optim) progress.optimizer_steps = progress.iteration;
  for (const auto& [name, value] : state.common) {
    if (name == "num_floating_point_operations_so_far") {
      progress.operations = value.value.real().value_or(0);
    } else if (name == "opt_param_scheduler" && !arguments.no_load_optim) {
      const LoadedSchedule loaded = read_schedule_of(state, value.value, schedule, arguments, path);
      schedule = loaded.schedule;
      progress.schedule_samples = loaded.samples;
    }
  }
  if (!state.param_groups.empty() && !arguments.no_load_optim) {
    const Value group = state.param_groups.front().value[0];
    progress.optimizer_steps = group.get("step").integer().value_or(progress.iteration);
  }
  if (state.grad_scaler.value && !arguments.no_load_optim) {
    read_loss_scaler(state.grad_scaler.value, scale_bytes(state.grad_scaler), path,
                     progress.scaler);
  }
  return progress;
}

std::vector<std::string> other_optimizer_arguments(const RunState& state,
                                                   const OptimizerOptions& optimizer) {
  std::vector<std::string> others;
  if (state.param_groups.empty()) return others;
  const Value group = state.param_groups.front().value[0];
  const auto compare = [&](const char* flag, const Value& saved, double here) {
    const double there = saved.real().value_or(here);
    if (there != here) others.push_back(fmt::format("{} {} (here {})", flag, there, here));
  };
  compare("--sgd-momentum", group.get("momentum"), optimizer.momentum);
  compare("--adam-eps", group.get("eps"), optimizer.epsilon);
  const Value betas = group.get("betas");
  compare("--adam-beta1", betas[0], optimizer.beta1);
  compare("--adam-beta2", betas[1], optimizer.beta2);
  compare("--ademamix-beta3", betas[2], optimizer.beta3);
  compare("--ademamix-alpha", group.get("alpha"), optimizer.alpha);
  return others;
}

}  // namespace ferry
