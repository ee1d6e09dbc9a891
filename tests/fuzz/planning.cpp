#include "tests/fuzz/planning.h"

#include <optional>
#include <string_view>
#include <utility>

#include "ckpt/core/plan.h"
#include "ckpt/megatron/fsdp/write/writer.h"
#include "ckpt/megatron/rank_folders/write/writer.h"
#include "ckpt/megatron/retarget.h"
#include "ckpt/megatron/torch_dist/plain_dcp_writer.h"
#include "ckpt/megatron/torch_dist/torch_dist_writer.h"
#include "tests/fuzz/finding.h"

namespace ferry::test {
namespace {

using nlohmann::json;

struct SizeOption {
  const char* name;
  std::optional<int64_t> ParallelTarget::*member;
};
constexpr SizeOption kSizes[] = {{"tp", &ParallelTarget::tensor},
                                 {"pp", &ParallelTarget::pipeline},
                                 {"vpp", &ParallelTarget::virtual_pipeline},
                                 {"ep", &ParallelTarget::expert},
                                 {"etp", &ParallelTarget::expert_tensor},
                                 {"dp", &ParallelTarget::data},
                                 {"cp", &ParallelTarget::context},
                                 {"first", &ParallelTarget::first_stage_layers},
                                 {"last", &ParallelTarget::last_stage_layers}};

constexpr int64_t kUsual[] = {1, 1, 1, 2, 2, 2, 3, 4, 4, 5, 8, 16};
constexpr int64_t kUnusual[] = {0,    -1,      7,         64,        100,
                                4096, 1 << 24, INT64_MAX, INT64_MIN, (1 << 24) + 1};
constexpr const char* kLetters[] = {
    "Ett|ttL", "Et|tt|tL",  "E|tttt|L", "Etttt|L", "Et*2|(t|)*2L", "Ett|tt|m|L",    "(t|)*9999999",
    "",        "Et|t|t|tL", "EttttL",   "L|E",     "Etttm|tL",     "E(t)*99999999L"};

PlannedOutput plan(RunState state, const std::string& writer) {
  if (writer == "torch") return plan_legacy(state, {true});
  if (writer == "torch-bare") return plan_legacy(state, {false});
  if (writer == "fsdp_dtensor") return plan_fsdp_dtensor(std::move(state), {});
  if (writer == "dcp") return plan_plain_dcp(std::move(state), {});
  TorchDistOptions options;
  options.optimizer = writer == "dp_reshardable" ? ShardedOptimizer::dp_reshardable
                      : writer == "plain"        ? ShardedOptimizer::plain
                      : writer == "bare"         ? ShardedOptimizer::none
                                                 : ShardedOptimizer::fully_reshardable;
  return plan_torch_dist(std::move(state), options);
}

}  // namespace

json random_layout(Random& random) {
  json layout = json::object();
  for (const SizeOption& size : kSizes) {
    if (!random.one_in(4)) continue;
    layout[size.name] = random.one_in(12) ? random.pick(kUnusual) : random.pick(kUsual);
  }
  if (random.one_in(10)) layout["letters"] = random.pick(kLetters);
  return layout;
}

ParallelTarget layout_of(const json& layout) {
  ParallelTarget target;
  for (const SizeOption& size : kSizes) {
    const auto found = layout.find(size.name);
    if (found != layout.end() && found->is_number_integer()) {
      target.*size.member = found->get<int64_t>();
    }
  }
  const auto letters = layout.find("letters");
  if (letters != layout.end() && letters->is_string()) {
    target.stage_letters = letters->get<std::string>();
  }
  return target;
}

std::string random_writer(Random& random) {
  static constexpr const char* kWriters[] = {"torch_dist", "dp_reshardable", "plain",
                                             "bare",       "torch",          "torch-bare",
                                             "dcp",        "fsdp_dtensor"};
  return random.pick(kWriters);
}

bool plan_state(RunState state, const ParallelTarget& target, const std::string& writer) {
  PlannedOutput output;
  const bool planned = succeeds("plan " + writer, [&] {
    retarget(state, target);
    output = plan(std::move(state), writer);
  });
  if (!planned) return false;
  try {
    check(output.plan);
  } catch (const Error& error) {
    finding("the plan of " + writer + " is wrong: " + error.what());
  }
  return true;
}

}  // namespace ferry::test
