#include "trainer/arguments/argument_row.h"

namespace ferry {
namespace {

using A = TrainArguments;
using enum ArgumentKind;

constexpr ArgumentRow kRunRows[] = {
    // Checkpoints
    {"--save", text, "None", &A::save},
    {"--save-interval --persistent-save-interval", integer, "None", &A::save_interval, "1.."},
    {"--save-retain-interval", integer, "None", &A::save_retain_interval, "1.."},
    {"--load", text, "None", &A::load},
    {"--finetune", flag, "False", &A::finetune},
    {"--pretrained-checkpoint", text, "None", &A::pretrained_checkpoint},
    {"--ckpt-step", integer, "None", &A::ckpt_step, "0.."},
    {"--override-ckpt-iteration", integer, "None", &A::override_ckpt_iteration, "0.."},
    {"--no-save-optim", flag, "None", &A::no_save_optim},
    {"--no-save-rng", flag, "None", &A::no_save_rng},
    {"--no-load-optim", flag, "None", &A::no_load_optim},
    {"--no-load-rng", flag, "None", &A::no_load_rng},
    {"--load-main-params-from-ckpt", flag, "False", &A::load_main_params_from_ckpt},
    {"--use-checkpoint-args", flag, "False", &A::use_checkpoint_args},
    {"--use-mp-args-from-checkpoint-args", flag, "False", &A::use_mp_args_from_checkpoint_args},
    {"--no-use-tokenizer-model-from-checkpoint-args "
     "--disable-use-tokenizer-model-from-checkpoint-args",
     negated, "True", &A::use_tokenizer_model_from_checkpoint_args, "",
     "use_tokenizer_model_from_checkpoint_args"},
    {"--exit-on-missing-checkpoint", flag, "False", &A::exit_on_missing_checkpoint},
    {"--ckpt-format", text, "torch_dist", &A::ckpt_format, "torch torch_dist"},
    {"--async-save", flag, "False", &A::async_save},
    {"--async-strategy", text, "nvrx", &A::async_strategy, "nvrx mcore"},
    {"--no-ckpt-fully-parallel-save", negated, "True", &A::ckpt_fully_parallel_save, "",
     "ckpt_fully_parallel_save"},
    {"--ckpt-fully-parallel-load", flag, "False", &A::ckpt_fully_parallel_load},
    {"--dist-ckpt-workers", integer, "1", &A::dist_ckpt_workers, "1..1024"},
    {"--dist-ckpt-optim-fully-reshardable", flag, "False", &A::dist_ckpt_optim_fully_reshardable},
    {"--dist-ckpt-strictness", text, "assume_ok_unexpected", &A::dist_ckpt_strictness,
     "assume_ok_unexpected log_unexpected log_all raise_unexpected raise_all return_unexpected "
     "return_all ignore_all"},
    {"--verify-integrity", flag, "False", &A::verify_integrity},
    {"--non-persistent-save-interval", integer, "None", &A::non_persistent_save_interval, "1.."},
    {"--non-persistent-ckpt-type", text, "None", &A::non_persistent_ckpt_type, "global"},
    {"--non-persistent-global-ckpt-dir", text, "None", &A::non_persistent_global_ckpt_dir},
    // Logging
    {"--log-interval", integer, "100", &A::log_interval, "1.."},
    {"--log-throughput", flag, "False", &A::log_throughput},
    {"--log-progress", flag, "False", &A::log_progress},
    {"--log-params-norm", flag, "False", &A::log_params_norm},
    {"--log-num-zeros-in-grad", flag, "False", &A::log_num_zeros_in_grad},
    {"--timing-log-level", integer, "0", &A::timing_log_level, "0 1 2"},
    {"--timing-log-option", text, "minmax", &A::timing_log_option, "max minmax all"},
    {"--profile", flag, "False", &A::profile},
    {"--profile-step-start", integer, "10", &A::profile_step_start, "0.."},
    {"--profile-step-end", integer, "12", &A::profile_step_end, "1.."},
    {"--profile-ranks", integers, "[]", &A::profile_ranks},
    {"--nvtx-ranges", flag, "False", &A::nvtx_ranges},
    {"--tensorboard-dir", text, "None", &A::tensorboard_dir},
    {"--tensorboard-log-interval", integer, "1", &A::tensorboard_log_interval, "1.."},
    {"--log-timers-to-tensorboard", flag, "False", &A::log_timers_to_tensorboard},
    {"--no-log-loss-scale-to-tensorboard --disable-log-loss-scale-to-tensorboard", negated, "True",
     &A::log_loss_scale_to_tensorboard, "", "log_loss_scale_to_tensorboard"},
    {"--log-validation-ppl-to-tensorboard", flag, "False", &A::log_validation_ppl_to_tensorboard},
    {"--log-world-size-to-tensorboard", flag, "False", &A::log_world_size_to_tensorboard},
    // Exit
    {"--exit-interval", integer, "None", &A::exit_interval, "1.."},
    {"--exit-duration-in-mins", integer, "None", &A::exit_duration_in_mins, "1.."},
    {"--exit-signal-handler", flag, "False", &A::exit_signal_handler},
    {"--exit-signal", signal, "SIGTERM", &A::exit_signal},
    {"--phase-transition-iterations", text, "None", &A::phase_transition_iterations},
};

}  // namespace

std::span<const ArgumentRow> run_rows() { return kRunRows; }

}  // namespace ferry
