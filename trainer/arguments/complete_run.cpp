#include "trainer/arguments/checks.h"
#include "trainer/arguments/complete.h"

namespace ferry {
namespace {

using Notes = std::vector<std::string>;

void complete_data(TrainArguments& a) {
  if (a.dataloader_type.empty()) a.dataloader_type = "single";
  if (!a.data_path.empty() && a.split.empty()) a.split = "969, 30, 1";
  const bool each_split =
      !a.train_data_path.empty() || !a.valid_data_path.empty() || !a.test_data_path.empty();
  check_one_of({{"--mock-data", a.mock_data},
                {"--data-path", !a.data_path.empty()},
                {"--data-args-path", !a.data_args_path.empty()},
                {"--train-data-path, --valid-data-path, --test-data-path", each_split},
                {"--per-split-data-args-path", !a.per_split_data_args_path.empty()}});
  check_size("--eval-iters", a.eval_iters, 0);
  if (a.eval_interval) check_size("--eval-interval", *a.eval_interval);
  check_size("--seed", a.seed, 1, UINT32_MAX);
  if (a.goldfish_loss) {
    check_size("--goldfish-k", a.goldfish_k);
    check_size("--goldfish-h", a.goldfish_h);
  }
}

void complete_saves(TrainArguments& a) {
  a.use_dist_ckpt = a.ckpt_format != "torch";
  check_size("--dist-ckpt-workers", a.dist_ckpt_workers, 1, 1 << 10);
  if (!a.async_save) a.async_strategy = "mcore";
  check_fits(!a.async_save || a.use_dist_ckpt, "--async-save is for --ckpt-format torch_dist");
  check_fits(a.override_ckpt_iteration.value_or(0) == 0 || !a.finetune,
             "--override-ckpt-iteration: with --finetune counting begins at 0 anyway");
  check_fits(!a.load_main_params_from_ckpt || a.no_load_optim,
             "--load-main-params-from-ckpt is for a run without the optimizer's state: add "
             "--no-load-optim");
  if (a.skip_train) a.no_load_optim = true;
  if (a.ckpt_step) check_size("--ckpt-step", *a.ckpt_step, 0);
  if (a.keep_last) check_size("--keep-last", *a.keep_last);
  if (a.non_persistent_save_interval) {
    check_size("--non-persistent-save-interval", *a.non_persistent_save_interval);
  }
  if (a.save.empty()) return;
  check_fits(a.save_interval.has_value(), "--save {}: --save-interval says how often", a.save);
  check_size("--save-interval", *a.save_interval);
  if (!a.save_retain_interval) return;
  check_size("--save-retain-interval", *a.save_retain_interval);
  check_fits(*a.save_retain_interval % *a.save_interval == 0,
             "--save-retain-interval {} is no multiple of --save-interval {}",
             *a.save_retain_interval, *a.save_interval);
}

}  // namespace

void complete_run(TrainArguments& a, Notes&) {
  complete_data(a);
  complete_saves(a);
  check_size("--log-interval", a.log_interval);
  check_size("--tensorboard-log-interval", a.tensorboard_log_interval);
  if (a.exit_interval) check_size("--exit-interval", *a.exit_interval);
  if (a.exit_duration_in_mins) check_size("--exit-duration-in-mins", *a.exit_duration_in_mins);
}

}  // namespace ferry
