#include "ckpt/megatron/model/args.h"

#include <array>
#include <utility>

namespace ferry {
namespace {

int64_t size_of(const Value& args, std::string_view name) {
  const int64_t size = args.get(name).integer().value_or(0);
  return size > 0 ? size : 0;
}

// An argument that each release was the first to have, and all later ones kept.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kFirstIn = {{
    {"0.12", "moe_router_dtype"},
    {"0.13", "enable_experimental"},
    {"0.14", "save_retain_interval"},
    {"0.15", "dist_ckpt_optim_fully_reshardable"},
    {"0.16", "linear_attention_freq"},
    {"0.17", "dist_ckpt_workers"},
    {"0.18", "verify_integrity"},
    {"0.19", "override_ckpt_iteration"},
    {"0.20", "ckpt_drop_redundant_extra_state"},
}};

}  // namespace

ParallelLayout layout_from_args(const Value& args) {
  ParallelLayout layout;
  layout.tensor = size_of(args, "tensor_model_parallel_size");
  layout.pipeline = size_of(args, "pipeline_model_parallel_size");
  layout.virtual_pipeline = size_of(args, "virtual_pipeline_model_parallel_size");
  layout.expert = size_of(args, "expert_model_parallel_size");
  layout.expert_tensor = size_of(args, "expert_tensor_parallel_size");
  layout.context = size_of(args, "context_parallel_size");
  layout.world_size = size_of(args, "world_size");
  layout.data = data_parallel_size(layout);
  return layout;
}

int64_t data_parallel_size(const ParallelLayout& layout) {
  int64_t left = layout.world_size;
  for (const int64_t size : {layout.tensor, layout.pipeline, layout.context}) {
    const int64_t divisor = size > 0 ? size : 1;
    left = left % divisor == 0 ? left / divisor : 0;
  }
  return left;
}

std::string_view function_name(const Value& value) {
  if (value.kind() == ValueKind::global) return value.text();
  return value.string().value_or("");
}

std::string release_from_args(const Value& args) {
  if (args.pair_count() == 0) return {};
  // From the newest down: forks take single arguments over early, but seldom the newest ones.
  for (size_t i = kFirstIn.size(); i-- > 0;) {
    if (!args.has(kFirstIn[i].second)) continue;
    const bool newest = i + 1 == kFirstIn.size();
    return "Megatron Core " + std::string(kFirstIn[i].first) + (newest ? " or later" : "");
  }
  return "Megatron Core 0.11 or earlier";
}

}  // namespace ferry
