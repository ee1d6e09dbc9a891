#include "trainer/run/rank_trainer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/group/together.h"
#include "ckpt/megatron/state/state_of.h"
#include "ckpt/memory/open_together.h"
#include "ckpt/memory/save.h"
#include "ckpt/store/run_folder.h"
#include "convert/arguments/arguments.h"
#include "convert/model/model_tensors.h"
#include "trainer/checkpoint/run_checkpoint.h"
#include "trainer/data/open_datasets.h"
#include "trainer/data/sampler.h"
#include "trainer/loop/batch_size.h"
#include "trainer/loop/flops.h"
#include "trainer/loop/training_log.h"
#include "trainer/model/initial_weights.h"
#include "trainer/parallel/pipeline.h"

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;

DType dtype_of(const TrainArguments& arguments) {
  return arguments.bf16 ? DType::bf16 : arguments.fp16 ? DType::f16 : DType::f32;
}

kernels::Type type_of(const TrainArguments& arguments) {
  return kernel_type(dtype_of(arguments), "parameters");
}

LoadedValue namespace_of(const TrainArguments& arguments) {
  Draft draft;
  const Value args = write_namespace(arguments, {}, draft);
  return std::move(draft).finish(args);
}

OptimizerOptions optimizer_options(const TrainArguments& arguments) {
  OptimizerOptions options;
  options.kind = arguments.optimizer == "sgd"        ? OptimizerOptions::Kind::sgd
                 : arguments.optimizer == "ademamix" ? OptimizerOptions::Kind::ademamix
                                                     : OptimizerOptions::Kind::adam;
  options.beta1 = arguments.adam_beta1;
  options.beta2 = arguments.adam_beta2;
  options.epsilon = arguments.adam_eps;
  options.momentum = arguments.sgd_momentum;
  options.beta3 = arguments.ademamix_beta3;
  options.alpha = arguments.ademamix_alpha;
  options.beta3_warmup = arguments.ademamix_beta3_warmup;
  options.alpha_warmup = arguments.ademamix_alpha_warmup;
  options.clip = arguments.clip_grad;
  return options;
}

Recompute recompute_of(const TrainArguments& arguments) {
  Recompute recompute;
  if (arguments.recompute_granularity == "full") {
    recompute.layers = arguments.recompute_method == "uniform" ? Recompute::Layers::in_blocks
                                                               : Recompute::Layers::first_ones;
    recompute.count = arguments.recompute_num_layers.value_or(1);
  } else if (arguments.recompute_granularity == "selective") {
    const auto& modules = arguments.recompute_modules;
    const auto has = [&](const char* name) { return std::ranges::count(modules, name) > 0; };
    recompute.norms = has("layernorm");
    recompute.latent_up = has("mla_up_proj");
    recompute.mlp = has("mlp");
    recompute.moe = has("moe");
    recompute.expert_activation = has("moe_act");
    recompute.shared_experts = has("shared_experts");
  }
  return recompute;
}

RouterOptions router_options(const TrainArguments& arguments) {
  RouterOptions options;
  options.bias_update_rate = arguments.moe_router_bias_update_rate;
  options.z_coefficient = arguments.moe_z_loss_coeff;
  for (size_t i = 0; i < arguments.moe_router_load_balancing_type.size(); ++i) {
    const std::string& kind = arguments.moe_router_load_balancing_type[i];
    const double coefficient =
        i < arguments.moe_aux_loss_coeff.size() ? arguments.moe_aux_loss_coeff[i] : 0;
    if (coefficient == 0 || kind == "none") continue;
    options.balance = kind == "seq_aux_loss" ? RouterOptions::Balance::sequence
                                             : RouterOptions::Balance::micro_batch;
    options.balance_coefficient = coefficient;
  }
  return options;
}

DataOptions data_options(const TrainArguments& arguments) {
  DataOptions options;
  options.data_path = arguments.data_path;
  options.split_data_path = {arguments.train_data_path, arguments.valid_data_path,
                             arguments.test_data_path};
  options.data_args_path = arguments.data_args_path;
  options.per_split_data_args_path = arguments.per_split_data_args_path;
  options.mock_data = arguments.mock_data;
  options.split = arguments.split;
  options.cache_path = arguments.data_cache_path;
  options.sequence_length = arguments.seq_length.value_or(0);
  options.seed = arguments.seed;
  const DataSizes sizes = data_sizes(arguments);
  options.samples = {sizes.train, sizes.validation, sizes.test};
  options.mid_level_dataset_surplus = arguments.mid_level_dataset_surplus;
  options.vocabulary_size = arguments.vocab_size.value_or(0);
  options.token_limit = arguments.padded_vocab_size.value_or(INT32_MAX);
  options.masks.eod_mask_loss = arguments.eod_mask_loss;
  options.masks.reset_position_ids = arguments.reset_position_ids;
  options.masks.reset_attention_mask = arguments.reset_attention_mask;
  options.masks.goldfish_loss = arguments.goldfish_loss;
  options.masks.goldfish_k = arguments.goldfish_k;
  options.masks.goldfish_h = arguments.goldfish_h;
  options.masks.end_of_document = static_cast<int32_t>(
      arguments.null_tokenizer_eod_id.value_or(arguments.vocab_size.value_or(0) - 1));
  return options;
}

// The model of a run: from its arguments, and where there is a checkpoint, its tensors' names.
RunModel model_of(const TrainArguments& arguments, const std::optional<RunState>& loaded) {
  const LoadedValue args = namespace_of(arguments);
  const DType dtype = dtype_of(arguments);
  if (!loaded) {
    ReadArguments read = read_arguments(args.value, "the arguments");
    return {args.value, model_tensors(read.architecture, dtype), "the arguments"};
  }
  std::vector<ModelTensor> tensors;
  for (const StateTensor& tensor : loaded->tensors) {
    if (tensor.role != Role::model) continue;
    tensors.push_back({tensor.name, tensor.shape, is_buffer(tensor.name) ? DType::f32 : dtype});
  }
  return {args.value, std::move(tensors), "the arguments"};
}

// Arguments whose meaning a run would not have, though they are known.
void check_can_be_run(const TrainArguments& a) {
  const std::pair<bool, const char*> lacking[] = {
      {a.async_save, "--async-save"},
      {a.non_persistent_save_interval.has_value(), "--non-persistent-save-interval"},
      {a.save_retain_interval || a.keep_last, "--save-retain-interval, --keep-last"},
      {a.ckpt_format != "torch_dist", "--ckpt-format other than torch_dist"},
      {!a.pretrained_checkpoint.empty(), "--pretrained-checkpoint"},
      {a.fp16 && !a.load.empty() && !a.no_load_optim, "--fp16 with --load"},
      {a.mtp_use_repeated_layer, "--mtp-use-repeated-layer"},
      {a.decoupled_lr.has_value(), "--decoupled-lr"},
      {!a.iterations_to_skip.empty(), "--iterations-to-skip"},
      {a.skip_train, "--skip-train"},
      {a.optimizer == "ademamix", "--optimizer ademamix"},
      {!a.tensorboard_dir.empty(), "--tensorboard-dir"},
      {!a.metrics_json.empty(), "--metrics-json"},
      {a.log_progress, "--log-progress"},
      {a.log_params_norm || a.log_num_zeros_in_grad, "--log-params-norm, --log-num-zeros-in-grad"},
      {a.timing_log_level > 0, "--timing-log-level"},
      {a.dry_run, "--dry-run"},
  };
  for (const auto& [is_given, name] : lacking) {
    if (is_given) {
      fail(ErrorKind::unsupported, "ferry train does not do {} in this release: leave it out",
           name);
    }
  }
}

class RankTrainer {
 public:
  RankTrainer(const TrainArguments& arguments, const RankSetup& setup)
      : arguments_(arguments),
        setup_(setup),
        group_(*setup.group),
        checkpoint_(open()),
        loaded_(checkpoint_ ? std::optional(state_of(*checkpoint_)) : std::nullopt),
        model_(model_of(arguments, loaded_)),
        kernels_(kernels::cpu_kernels(setup.threads)),
        grid_(GridSizes(model_.run()), setup.links, *kernels_),
        memory_(model_.layout, model_.choice, grid_, *kernels_, state_options()),
        optimizer_(memory_, grid_, *kernels_, optimizer_options(arguments)),
        pipeline_(make_chunks(), model_.architecture, grid_, *kernels_, pipeline_options()),
        schedule_(schedule_of(arguments)),
        batches_(batch_sizes(arguments)) {
    begin();
    open_data();
  }

  // Losses of the valid split, which begins anew each time: a function of the weights alone.
  void evaluate() {
    if (!datasets_.valid || arguments_.eval_iters == 0) return;
    SamplerOptions options = sampler_options(*datasets_.valid);
    options.order = SampleOrder::single;
    Sampler sampler(options);
    const int64_t batch = arguments_.global_batch_size.value_or(1);
    const int64_t micro_batches = batch / (options.micro_batch_size * options.data_ranks);
    StepLoss total;
    for (int64_t i = 0; i < arguments_.eval_iters; ++i) {
      const StepLoss loss = pipeline_.evaluate(micro_batches, [&](int64_t number, Batch& data) {
        sampler.take(i * batch, number, grid_.place().data, indices_);
        read_batch(*datasets_.valid, indices_, sample_, data);
      });
      total.sum += loss.sum;
      total.tokens += loss.tokens;
    }
    if (group_.rank() == group_.size() - 1) {
      setup_.print(validation_lines("iteration " + std::to_string(progress_.iteration),
                                    {{"lm loss", total.sum / std::max(total.tokens, 1.0)}}));
    }
  }

  void run() {
    tell(datetime_line("before the start of training step", date_and_time(now_microseconds())));
    window_start_ = Clock::now();
    bool is_over = false;
    while (!is_over && progress_.iteration < iterations_) {
      step();
      const bool is_due =
          arguments_.eval_interval && progress_.iteration % *arguments_.eval_interval == 0;
      if (is_due) evaluate();
      is_over = decide();
    }
    finish(is_over);
  }

 private:
  std::optional<Checkpoint> open() {
    if (arguments_.load.empty()) return std::nullopt;
    const std::string found = from_first_together(group_, [&] {
      if (setup_.files->status(arguments_.load).kind == PathKind::missing) return std::string();
      const RunFolder folder = read_run_folder(*setup_.files, arguments_.load);
      return std::string(folder.latest() == nullptr ? "" : "1");
    });
    if (found.empty()) {
      if (arguments_.exit_on_missing_checkpoint) {
        fail(ErrorKind::not_found,
             "{} holds no checkpoint, and --exit-on-missing-checkpoint was given", arguments_.load);
      }
      return std::nullopt;
    }
    OpenOptions options;
    if (arguments_.ckpt_step) options.iteration = std::to_string(*arguments_.ckpt_step);
    return open_together(setup_.files, arguments_.load, group_, options);
  }

  ModelStateOptions state_options() const {
    ModelStateOptions options;
    const bool in_fp32 = !arguments_.fp16 || arguments_.accumulate_allreduce_grads_in_fp32;
    options.gradient_type = in_fp32 ? kernels::Type::f32 : type_of(arguments_);
    options.distributed_optimizer = arguments_.use_distributed_optimizer;
    options.sequence_parallel = arguments_.sequence_parallel;
    options.latent_attention = model_.architecture.mla;
    options.kinds = optimizer_options(arguments_).state_kinds();
    return options;
  }

  PipelineOptions pipeline_options() const {
    PipelineOptions options;
    options.type = type_of(arguments_);
    options.sequences = arguments_.micro_batch_size.value_or(1);
    options.length = arguments_.seq_length.value_or(0);
    options.sequence_parallel = arguments_.sequence_parallel;
    options.resets_attention = arguments_.reset_attention_mask;
    options.hidden_dropout = arguments_.hidden_dropout;
    options.attention_dropout = arguments_.attention_dropout;
    options.seed = arguments_.seed;
    options.recompute = recompute_of(arguments_);
    options.per_token_loss = arguments_.calculate_per_token_loss;
    const auto predictions = static_cast<double>(arguments_.mtp_num_layers.value_or(1));
    options.prediction_scale = arguments_.mtp_loss_scaling_factor / predictions;
    return options;
  }

  std::vector<ModelChunk> make_chunks() {
    ModelOptions options;
    options.type = type_of(arguments_);
    options.tensor_ranks = model_.run().tensor;
    options.experts = {model_.run().expert, grid_.place().expert, model_.run().expert_tensor};
    options.router = router_options(arguments_);
    std::vector<ModelChunk> chunks;
    const PipelineLayout& layout = model_.layout.pipeline();
    for (int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
      chunks.emplace_back(memory_.parameters(chunk), model_.architecture,
                          layout.at(grid_.place().stage, chunk), options, *kernels_);
    }
    check_all_used();
    return chunks;
  }

  // What a checkpoint has and the arguments do not tell of would be left as it is.
  void check_all_used() const {
    const int64_t count = model_.layout.pipeline().chunks();
    for (int64_t chunk = 0; chunk < count; ++chunk) {
      const std::string unused = memory_.parameters(chunk).first_unused();
      if (unused.empty()) continue;
      fail(ErrorKind::mismatch,
           "{} has tensor {}, which a model of these arguments does not: give the arguments of the "
           "run that saved it (--qk-layernorm, --add-qkv-bias, ...)",
           checkpoint_ ? checkpoint_->path : "the model", unused);
    }
  }

  // The state that the run begins with.
  void begin() {
    progress_.scaler = loss_scaler(arguments_);
    if (loaded_) {
      const bool alone =
          arguments_.no_load_optim || arguments_.finetune || loaded_->param_groups.empty();
      load_tensors(*checkpoint_, memory_, alone);
      if (!arguments_.finetune) {
        progress_ = read_progress_of(*loaded_, arguments_, schedule_, progress_);
        const ConsumedSamples consumed = read_consumed_samples(loaded_->args.value);
        consumed_ = consumed.train.value_or(0);
        skipped_samples_ = consumed.skipped.value_or(0);
      }
    } else {
      initialise(*kernels_, memory_.model_regions(), model_.architecture, arguments_.seed);
      memory_.copy_to_masters();
    }
    saved_.start_iteration = progress_.iteration;
    saved_.start_operations = progress_.operations;
    iterations_ = arguments_.train_iters.value_or(0);
    if (arguments_.train_samples) iterations_ = iterations_for(batches_, *arguments_.train_samples);
    if (grid_.place().data == 0 && grid_.place().context == 0) {
      tell_each(
          parameters_line(grid_.place().tensor, grid_.place().stage, memory_.parameter_count()));
    }
  }

  // One rank builds what is not in the cache yet, then the others find it there.
  void open_data() {
    const DataOptions options = data_options(arguments_);
    from_first_together(group_, [&] {
      open_datasets(setup_.files, options);
      return std::string();
    });
    datasets_ = open_datasets(setup_.files, options);
    if (datasets_.train) sampler_.emplace(sampler_options(*datasets_.train));
  }

  SamplerOptions sampler_options(const Dataset& dataset) const {
    SamplerOptions sampler;
    sampler.order =
        arguments_.dataloader_type == "cyclic" ? SampleOrder::cyclic : SampleOrder::single;
    sampler.samples = dataset.size();
    sampler.micro_batch_size = arguments_.micro_batch_size.value_or(1);
    sampler.data_ranks = grid_.sizes().data;
    sampler.data_sharding = arguments_.data_sharding;
    return sampler;
  }

  void step() {
    const IterationBatch batch = batch_at(batches_, consumed_);
    memory_.clear_gradients();
    pipeline_.begin_step(progress_.iteration);
    const StepLoss loss = pipeline_.train(
        batch.micro_batches, progress_.scaler.scale, [&](int64_t number, Batch& micro_batch) {
          sampler_->take(consumed_, number, grid_.place().data, indices_);
          read_batch(*datasets_.train, indices_, sample_, micro_batch);
        });
    memory_.reduce_gradients();
    const double divisor = arguments_.calculate_per_token_loss ? std::max(loss.tokens, 1.0) : 1.0;
    const StepRates rates{.number = progress_.optimizer_steps + 1,
                          .learning_rate = learning_rate(schedule_, progress_.schedule_samples),
                          .weight_decay = weight_decay(schedule_, progress_.schedule_samples),
                          .loss_scale = progress_.scaler.scale * divisor};
    const StepResult result = optimizer_.step(rates);
    update(progress_.scaler, result.is_skipped);
    if (!result.is_skipped) {
      ++progress_.optimizer_steps;
      progress_.schedule_samples += batch.running;
    }
    ++progress_.iteration;
    consumed_ += batch.running;
    skipped_samples_ += batch.global - batch.running;
    progress_.operations += floating_point_operations(arguments_, batch.running);
    log(batch, loss, result);
  }

  void log(const IterationBatch& batch, const StepLoss& loss, const StepResult& result) {
    NamedLosses losses{{"lm loss", loss.sum / std::max(loss.tokens, 1.0)}};
    for (const auto& [name, value] : pipeline_.end_step(batch.micro_batches)) {
      losses.emplace_back(name, value);
    }
    add(window_, losses, result.is_skipped);
    const int64_t iteration = progress_.iteration;
    const bool is_first = iteration == saved_.start_iteration + 1;
    if (iteration % std::max<int64_t>(arguments_.log_interval, 1) != 0 && !is_first) return;
    const auto now = Clock::now();
    const std::chrono::duration<double> elapsed = now - window_start_;
    TrainingLine line;
    line.date_and_time = date_and_time(now_microseconds());
    line.iteration = iteration;
    line.train_iterations = iterations_;
    line.consumed_samples = consumed_;
    line.skipped_samples = skipped_samples_;
    line.milliseconds = elapsed.count() * 1000 / static_cast<double>(window_.iterations());
    line.learning_rate = static_cast<float>(learning_rate(schedule_, progress_.schedule_samples));
    line.batch_size = batch.running;
    line.losses = averages(window_);
    line.loss_scale = progress_.scaler.scale;
    if (!result.is_skipped) line.gradient_norm = result.norm;
    if (arguments_.log_throughput) {
      line.teraflops = teraflops(floating_point_operations(arguments_, batch.running),
                                 line.milliseconds / 1000, group_.size());
    }
    line.skipped = window_.skipped;
    line.nan = window_.nan;
    if (group_.rank() == group_.size() - 1) setup_.print(training_line(line) + "\n");
    if (is_first) return;
    start_again(window_);
    window_start_ = now;
  }

  // True when the run is to end.
  bool decide() {
    ExitSigns signs =
        setup_.exit_watch != nullptr ? setup_.exit_watch->look(progress_.iteration) : ExitSigns{};
    double flags[] = {signs.signalled ? 1.0 : 0.0, signs.out_of_time ? 1.0 : 0.0,
                      signs.save_trigger ? 1.0 : 0.0, signs.exit_trigger ? 1.0 : 0.0};
    grid_.world().wait(grid_.world().all_reduce(flags, 4));
    signs = {flags[0] > 0, flags[1] > 0, flags[2] > 0, flags[3] > 0};
    const double minutes = setup_.exit_watch != nullptr ? setup_.exit_watch->minutes() : 0;
    const ExitDecision decision = decide_exit(arguments_, progress_.iteration, signs, minutes);
    if (decision.save == SaveKind::persistent) save_now();
    if (decision.remove_save_trigger && group_.rank() == 0) {
      setup_.exit_watch->remove_save_trigger();
    }
    if (!decision.why.empty()) {
      tell(datetime_line(decision.why, date_and_time(now_microseconds())));
    }
    return decision.exit;
  }

  void save_now() {
    if (arguments_.save.empty()) return;
    saved_.iteration = progress_.iteration;
    TrainArguments arguments = arguments_;
    arguments.consumed_train_samples = consumed_;
    arguments.skipped_train_samples = skipped_samples_;
    const RunState state = state_to_save(arguments, saved_, model_, progress_, schedule_,
                                         optimizer_options(arguments_));
    Snapshot snapshot = snapshot_of(arguments_, memory_, state);
    SaveOptions options;
    options.begin.overwrite = true;
    save(setup_.files, arguments_.save, snapshot, group_, options);
    last_saved_ = progress_.iteration;
    tell("  successfully saved checkpoint from iteration " + std::to_string(progress_.iteration) +
         " to " + arguments_.save + "\n");
  }

  void finish(bool was_told) {
    if (!was_told && last_saved_ != progress_.iteration) save_now();
    tell(datetime_line("after training is done", date_and_time(now_microseconds())));
  }

  void tell(const std::string& text) {
    if (group_.rank() == 0) setup_.print(text);
  }
  void tell_each(const std::string& text) { setup_.print(text); }

  const TrainArguments& arguments_;
  const RankSetup& setup_;
  Group& group_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<RunState> loaded_;
  RunModel model_;
  std::unique_ptr<kernels::Kernels> kernels_;
  Grid grid_;
  ModelState memory_;
  Optimizer optimizer_;
  Pipeline pipeline_;
  Schedule schedule_;
  BatchSizes batches_;
  PerSplit<std::shared_ptr<const Dataset>> datasets_;
  std::optional<Sampler> sampler_;
  std::vector<int64_t> indices_;
  Sample sample_;

  RunProgress progress_;
  SavedProgress saved_;
  int64_t consumed_ = 0, skipped_samples_ = 0, iterations_ = 0, last_saved_ = -1;
  LossWindow window_;
  Clock::time_point window_start_;
};

}  // namespace

void train(const TrainArguments& arguments, const RankSetup& setup) {
  or_abort(*setup.group, [&] {
    check_can_be_run(arguments);
    RankTrainer trainer(arguments, setup);
    or_withdraw(*setup.links, [&] { trainer.run(); });
  });
}

}  // namespace ferry
