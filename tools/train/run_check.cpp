#include "tools/train/run_check.h"

#include "ckpt/io/file_system.h"
#include "trainer/arguments/complete.h"
#include "trainer/arguments/parse.h"
#include "trainer/language/options.h"
#include "trainer/language/source.h"
#include "trainer/language/tokenizer_facts.h"

namespace ferry::tool {

TrainArguments read_arguments_alone(std::span<const std::string> words, const Launch& launch,
                                    std::vector<std::string>& notes) {
  const std::vector<std::string> all(words.begin(), words.end());
  TrainArguments arguments = parse_arguments(all, *posix_file_system());
  adopt_source_arguments(posix_file_system(), all, arguments, notes);
  complete_arguments(arguments, launch, notes);
  return arguments;
}

void complete_with_tokenizer(TrainArguments& arguments) {
  adopt_tokenizer(*posix_file_system(), arguments);
  complete_vocabulary(arguments, arguments.vocab_size.value_or(0));
}

TrainArguments read_run_arguments(std::span<const std::string> words, const Launch& launch,
                                  std::vector<std::string>& notes) {
  TrainArguments arguments = read_arguments_alone(words, launch, notes);
  complete_with_tokenizer(arguments);
  return arguments;
}

RunPlan plan_run(const TrainArguments& arguments, bool on_gpus) {
  check_run(arguments);
  RunPlan plan{model_of(arguments, nullptr), {}, {}};
  plan.stages = memory_plan(arguments, plan.model,
                            on_gpus ? kernels::DeviceKind::gpu : kernels::DeviceKind::host);
  plan.note = bf16_experts_note(arguments, plan.model.architecture);
  return plan;
}

}  // namespace ferry::tool
