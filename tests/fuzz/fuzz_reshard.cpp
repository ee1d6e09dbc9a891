// An input is a line of JSON: one of the runs of fixtures/megatron, what is changed in its
// arguments, and the layout and format that it is brought to.
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/megatron/fsdp/fsdp.h"
#include "ckpt/megatron/state_of.h"
#include "ckpt/megatron/torch_dist/torch_dist.h"
#include "convert/export.h"
#include "tests/convert/support.h"
#include "tests/fuzz/finding.h"
#include "tests/fuzz/json_members.h"
#include "tests/fuzz/planning.h"

namespace ferry::test {
namespace {

using nlohmann::json;

constexpr const char* kRuns[] = {"hot_llama",
                                 "hot_qwen2",
                                 "hot_gpt2",
                                 "hot_mixtral",
                                 "hot_deepseek",
                                 "hot_apertus",
                                 "llama_pp2vpp",
                                 "llama_tp2dp2_dpr",
                                 "llama_te_tp2dp2_dpr",
                                 "llama_dp4_dpr_buckets",
                                 "qwen3moe_te_ep2pp2_dpr",
                                 "llama_legacy_tp2pp2",
                                 "llama_legacy_tp2_nodo",
                                 "../fsdp/dense",
                                 "../fsdp/mixture",
                                 "../fsdp/torch_dcp"};

// Arguments that reading, placing and exporting depend on.
constexpr const char* kArguments[] = {"num_layers",
                                      "hidden_size",
                                      "ffn_hidden_size",
                                      "num_attention_heads",
                                      "num_query_groups",
                                      "group_query_attention",
                                      "kv_channels",
                                      "padded_vocab_size",
                                      "vocab_size",
                                      "make_vocab_size_divisible_by",
                                      "max_position_embeddings",
                                      "seq_length",
                                      "untie_embeddings_and_output_weights",
                                      "swiglu",
                                      "normalization",
                                      "position_embedding_type",
                                      "add_bias_linear",
                                      "add_qkv_bias",
                                      "qk_layernorm",
                                      "rotary_base",
                                      "rotary_percent",
                                      "transformer_impl",
                                      "params_dtype",
                                      "bf16",
                                      "fp16",
                                      "num_experts",
                                      "moe_layer_freq",
                                      "moe_ffn_hidden_size",
                                      "moe_shared_expert_intermediate_size",
                                      "moe_grouped_gemm",
                                      "moe_router_topk",
                                      "moe_mlp_glu_interleave_size",
                                      "mtp_num_layers",
                                      "multi_latent_attention",
                                      "q_lora_rank",
                                      "kv_lora_rank",
                                      "tensor_model_parallel_size",
                                      "pipeline_model_parallel_size",
                                      "virtual_pipeline_model_parallel_size",
                                      "num_layers_per_virtual_pipeline_stage",
                                      "context_parallel_size",
                                      "expert_model_parallel_size",
                                      "expert_tensor_parallel_size",
                                      "data_parallel_size",
                                      "world_size",
                                      "num_distributed_optimizer_instances",
                                      "use_tp_pp_dp_mapping",
                                      "decoder_first_pipeline_num_layers",
                                      "decoder_last_pipeline_num_layers",
                                      "account_for_embedding_in_pipeline_split",
                                      "account_for_loss_in_pipeline_split",
                                      "standalone_embedding_stage",
                                      "pipeline_model_parallel_layout",
                                      "use_distributed_optimizer",
                                      "overlap_grad_reduce",
                                      "overlap_param_gather_with_optimizer_step",
                                      "ddp_bucket_size",
                                      "ddp_num_buckets",
                                      "ddp_pad_buckets_for_high_nccl_busbw",
                                      "accumulate_allreduce_grads_in_fp32",
                                      "grad_reduce_in_bf16",
                                      "hybrid_layer_pattern",
                                      "tensor_parallel_num_weight_shards",
                                      "ckpt_format",
                                      "no_save_optim",
                                      "no_save_rng"};

struct Counts {
  std::array<uint64_t, 4> all{};  // inputs, read, exported, planned
  ~Counts() {
    std::printf("of %llu inputs %llu were read, %llu exports and %llu reshards were planned\n",
                ull(0), ull(1), ull(2), ull(3));
  }
  unsigned long long ull(size_t at) const { return all[at]; }
};

Counts& counts() {
  static Counts all;
  return all;
}

// A run, its files in memory. Opened once: its arguments are interpreted anew for each input.
struct Run {
  StoredTorchDist stored;           // of torch_dist
  std::optional<Checkpoint> whole;  // of rank folders
  std::optional<Checkpoint> keys;   // of fsdp_dtensor and torch_dcp: as they are stored
};

std::shared_ptr<MemoryFileSystem> in_memory(const std::string& folder) {
  auto files = std::make_shared<MemoryFileSystem>();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files->put("run/" + std::filesystem::relative(entry.path(), folder).string(),
               read_file(*posix_file_system(), entry.path().string(), uint64_t{1} << 30));
  }
  return files;
}

const Run& run_named(const std::string& name) {
  static std::map<std::string, Run> runs;
  const auto [at, is_new] = runs.try_emplace(name);
  if (!is_new) return at->second;
  const auto files = in_memory(FERRY_FIXTURES "/megatron/" + name);
  Checkpoint checkpoint = open_checkpoint(files, "run");
  if (checkpoint.format == Format::torch_dist) {
    at->second.stored = read_torch_dist(files, checkpoint.path);
  } else if (is_fsdp(checkpoint.format)) {
    OpenOptions raw;
    raw.raw = true;
    at->second.keys = open_checkpoint(files, "run", raw);
  } else {
    at->second.whole = std::move(checkpoint);
  }
  return at->second;
}

LoadedValue changed(const LoadedValue& args, const json& changes, const json& gone) {
  Draft draft;
  const Value copy = draft.copy(args.value);
  for (const auto& [name, value] : changes.items()) {
    draft.put(copy, name, add_value(draft, value, "argparse.Namespace"));
  }
  for (const json& name : gone) draft.remove(copy, name.get<std::string>());
  return std::move(draft).finish(copy);
}

// With the meaning that the changed arguments give to what is stored.
Checkpoint open_changed(const Run& run, const json& input) {
  if (run.whole) {
    Checkpoint checkpoint = *run.whole;
    checkpoint.args = changed(checkpoint.args, input["args"], input["gone"]);
    return checkpoint;
  }
  if (run.keys) {
    Checkpoint checkpoint = *run.keys;
    checkpoint.args = changed(checkpoint.args, input["args"], input["gone"]);
    apply_fsdp_meaning(checkpoint);
    return checkpoint;
  }
  StoredTorchDist stored = run.stored;
  stored.checkpoint.args = changed(stored.checkpoint.args, input["args"], input["gone"]);
  apply_megatron_meaning(stored);
  return std::move(stored.checkpoint);
}

class ReshardMutator final : public Mutator {
 public:
  std::string input(Random& random) const override {
    json changes = json::object(), gone = json::array();
    for (uint64_t count = random.below(4); count > 0; --count) {
      const std::string name = random.pick(kArguments);
      if (random.one_in(6)) {
        gone.push_back(name);
      } else {
        changes[name] = random.one_in(2) ? near_value(random.below(9), random) : edge_value(random);
      }
    }
    return json{{"run", random.pick(kRuns)},
                {"args", changes},
                {"gone", gone},
                {"layout", random_layout(random)},
                {"writer", random_writer(random)}}
        .dump();
  }
};

void carry_through(const json& input) {
  const Run& run = run_named(input["run"].get<std::string>());
  ++counts().all[0];
  Checkpoint checkpoint;
  if (!succeeds("open", [&] { checkpoint = open_changed(run, input); })) return;
  ++counts().all[1];
  recognise(checkpoint);
  Export model;
  if (succeeds("export", [&] { model = plan_export(checkpoint, {}); })) {
    if (!succeeds("check", [&] { check(model.plan); })) finding("the plan of an export is wrong");
    ++counts().all[2];
  }
  RunState state;
  if (!succeeds("state", [&] { state = state_of(checkpoint); })) return;
  if (plan_state(std::move(state), layout_of(input["layout"]), input["writer"])) {
    ++counts().all[3];
  }
}

}  // namespace

std::unique_ptr<Mutator> make_mutator(const std::vector<std::string>&, size_t) {
  return std::make_unique<ReshardMutator>();
}

}  // namespace ferry::test

// Whatever a run's arguments say, its optimizer's state is read, the model is exported and all is
// brought to any layout and form, or there is an Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = nlohmann::json::parse(data, data + size, nullptr, false);
  if (input.is_object() && input.contains("run")) ferry::test::carry_through(input);
  return 0;
}
