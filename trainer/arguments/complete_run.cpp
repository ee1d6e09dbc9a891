#include "ckpt/base/error.h"
#include "ckpt/base/size_text.h"
#include "trainer/arguments/checks.h"
#include "trainer/arguments/complete.h"

namespace ferry {
namespace {

using Notes = std::vector<std::string>;

constexpr const char* kDefaultTokenizer = "GPT2BPETokenizer";

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
}

// The default of Megatron-LM's pretrain_gpt.py (args_defaults), a tokenizer of two files without
// --tokenizer-model.
void complete_tokenizer(TrainArguments& a) {
  if (!a.tokenizer_type.empty()) return;
  check_fits(a.tokenizer_model.empty(),
             "--tokenizer-model {} without --tokenizer-type: the default, {} as in Megatron-LM, "
             "takes no model. Give --tokenizer-type HuggingFaceTokenizer for a Hugging Face folder "
             "or Llama2Tokenizer for SentencePiece's tokenizer.model",
             a.tokenizer_model, kDefaultTokenizer);
  a.tokenizer_type = kDefaultTokenizer;
}

void complete_saves(TrainArguments& a) {
  a.use_dist_ckpt = a.ckpt_format != "torch";
  if (!a.async_save) a.async_strategy = "mcore";
  staging_bytes(a);
  check_fits(a.override_ckpt_iteration.value_or(0) == 0 || !a.finetune,
             "--override-ckpt-iteration: with --finetune iterations start at 0 anyway");
  check_fits(!a.load_main_params_from_ckpt || a.no_load_optim,
             "--load-main-params-from-ckpt is for a run without the optimizer's state: add "
             "--no-load-optim");
  if (a.skip_train) a.no_load_optim = true;
  if (a.save.empty()) return;
  check_fits(a.save_interval.has_value(), "--save {}: give --save-interval, how often to save",
             a.save);
  if (!a.save_retain_interval) return;
  check_fits(*a.save_retain_interval % *a.save_interval == 0,
             "--save-retain-interval {} is not a multiple of --save-interval {}",
             *a.save_retain_interval, *a.save_interval);
}

}  // namespace

std::optional<uint64_t> staging_bytes(const TrainArguments& a) {
  if (a.staging_memory.empty()) return std::nullopt;
  constexpr uint64_t kLeast = 64 << 10;
  const auto bytes = size_in_bytes(a.staging_memory);
  if (!bytes) {
    fail(ErrorKind::invalid, "--staging-memory: '{}' is not a size; write {}", a.staging_memory,
         kSizeForms);
  }
  if (*bytes < kLeast) {
    fail(ErrorKind::invalid, "--staging-memory: {} is too small; give at least 64KiB",
         a.staging_memory);
  }
  return bytes;
}

void complete_run(TrainArguments& a, Notes&) {
  complete_tokenizer(a);
  complete_data(a);
  complete_saves(a);
}

}  // namespace ferry
