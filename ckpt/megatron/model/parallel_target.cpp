#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/model/hybrid_layers.h"
#include "ckpt/megatron/model/pipeline_checks.h"
#include "ckpt/megatron/model/pipeline_layout.h"
#include "ckpt/megatron/model/run_arguments.h"
#include "ckpt/megatron/model/stage_letters.h"
#include "ckpt/megatron/model/target_options.h"

namespace ferry {
namespace {

// A number of the model that ranks share out.
struct Share {
  int64_t number = 0;
  std::string_view what;
  bool by_multiples = false;  // several ranks may hold the same part

  bool fits(int64_t ranks) const {
    return number % ranks == 0 || (by_multiples && ranks % number == 0);
  }
};

void check_shares(const std::vector<Share>& shares, int64_t ranks, std::string_view ranks_are,
                  std::string_view name) {
  for (const Share& share : shares) {
    if (share.fits(ranks)) continue;
    int64_t most = share.number;
    for (const Share& other : shares) most = std::max(most, other.number);
    fail(ErrorKind::invalid, "{} {} cannot be split over {} {} ranks: for {}, {}", share.number,
         share.what, ranks, ranks_are, option(name), those_that_fit(1, most, [&](int64_t n) {
           return std::all_of(shares.begin(), shares.end(),
                              [n](const Share& other) { return other.fits(n); });
         }));
  }
}

int64_t number_of(const Value& args, std::string_view name) {
  const int64_t number = args.get(name).integer().value_or(0);
  return number > 0 ? number : 0;
}

// Layers without experts, whose ffn_hidden_size is shared out.
bool has_dense_layers(const Value& args, const RunArguments& run) {
  const Value frequency = args.get("moe_layer_freq");  // one layer in so many, or a list
  if (run.experts == 0 || frequency.integer().value_or(1) > 1) return true;
  for (size_t layer = 0; layer < frequency.size(); ++layer) {
    if (frequency[layer].integer() == 0) return true;
  }
  return false;
}

// What tensor ranks share out. The shapes of the tensors themselves are checked where they are
// placed; here is what the user knows by name.
void check_tensor_ranks(const Value& args, const RunArguments& run) {
  std::vector<Share> all, experts;
  const auto add = [&](std::vector<Share>& shares, std::string_view name, std::string_view what,
                       bool by_multiples = false) {
    if (const int64_t number = number_of(args, name)) {
      shares.push_back({number, what, by_multiples});
    }
  };
  add(all, "num_attention_heads", "attention heads");
  if (args.get("group_query_attention").boolean().value_or(false)) {
    add(all, "num_query_groups", "query groups", true);
    if (run.attention_kinds) {
      for (const char* name : {"num_global_query_groups", "num_global_key_value_heads"}) {
        add(all, name, "query groups of layers without a window", true);
      }
    }
  }
  if (run.mixers.linear_key_heads > 0) {
    all.push_back({run.mixers.linear_key_heads, "key heads of linear attention"});
    all.push_back({run.mixers.linear_value_heads, "value heads of linear attention"});
  }
  if (run.mixers.mamba_heads > 0) {
    all.push_back({run.mixers.mamba_heads, "heads of Mamba mixers"});
    all.push_back({run.mixers.mamba_groups, "groups of Mamba mixers"});
  }
  if (has_dense_layers(args, run)) add(all, "ffn_hidden_size", "rows of ffn_hidden_size");
  add(all, "moe_shared_expert_intermediate_size", "rows of moe_shared_expert_intermediate_size");
  check_shares(all, run.tensor, "tensor-parallel", "tensor");
  if (run.experts == 0) return;
  add(experts, "moe_ffn_hidden_size", "rows of moe_ffn_hidden_size");
  check_shares(experts, run.expert_tensor, "expert-tensor-parallel", "expert_tensor");
  check_shares({{run.experts, "experts"}}, run.expert, "expert-parallel", "expert");
}

// Source arguments, changed into the target's.
class Target {
 public:
  Target(const ParsedArguments& args, const ParallelTarget& requested)
      : source_(args.run), run_(source_), requested_(requested) {
    args_ = draft_.copy(args.value);
    set_sizes();
    set_pipeline();
    check_tensor_ranks(args.value, run_);
    check_context(args.value);
    check_pipeline();
    set_data();
  }

  LoadedValue take() && {
    put_all();
    return std::move(draft_).finish(args_);
  }

 private:
  static std::string numbered(std::string_view name, int64_t number) {
    return fmt::to_string(option(name, fmt::to_string(number)));
  }
  static int64_t chosen(const std::optional<int64_t>& requested, int64_t otherwise,
                        std::string_view name) {
    const int64_t size = requested.value_or(otherwise);
    if (size < 1 || size > RunArguments::kMostRanks) {
      fail(ErrorKind::invalid, "{}: must be a number from 1 to {}", numbered(name, size),
           RunArguments::kMostRanks);
    }
    return size;
  }

  void set_sizes() {
    run_.tensor = chosen(requested_.tensor, source_.tensor, "tensor");
    run_.pipeline = chosen(requested_.pipeline, source_.pipeline, "pipeline");
    run_.context = chosen(requested_.context, source_.context, "context");
    run_.expert = chosen(requested_.expert, source_.expert, "expert");
    if (run_.expert > 1 && run_.experts == 0) {
      fail(ErrorKind::invalid, "{}: the model has no experts", numbered("expert", run_.expert));
    }
    const bool follows = source_.expert_tensor == source_.tensor;
    // Megatron-LM has no biases in experts that are spread over several tensor ranks.
    const bool is_whole = run_.experts > 0 && run_.linear_biases && source_.expert_tensor == 1;
    const int64_t followed = is_whole ? 1 : run_.tensor;
    run_.expert_tensor = chosen(requested_.expert_tensor,
                                follows ? followed : source_.expert_tensor, "expert_tensor");
    if (is_whole && run_.expert_tensor > 1) {
      fail(ErrorKind::invalid, "{}: the experts have biases, which Megatron-LM does not split; {}",
           numbered("expert_tensor", run_.expert_tensor), numbered("expert_tensor", 1));
    }
    if (requested_.expert_tensor.value_or(1) > 1 && run_.experts == 0) {
      fail(ErrorKind::invalid, "{}: the model has no experts",
           numbered("expert_tensor", run_.expert_tensor));
    }
  }

  void set_pipeline() {
    const bool other_stages = run_.pipeline != source_.pipeline;
    const bool uneven = requested_.first_stage_layers || requested_.last_stage_layers;
    // virtual_pipeline alone leaves stages as they are cut, pipeline and virtual_pipeline make them
    // anew.
    const bool counts = requested_.embedding_is_a_layer || requested_.loss_is_a_layer;
    const bool anew = other_stages || requested_.stage_letters || counts ||
                      (requested_.pipeline && requested_.virtual_pipeline);
    pipeline_changes_ = anew || uneven || requested_.virtual_pipeline;
    if (!pipeline_changes_) return;
    const int64_t as_before = other_stages ? 1 : source_.virtual_pipeline;
    run_.virtual_pipeline = chosen(requested_.virtual_pipeline, as_before, "virtual_pipeline");
    if (!anew && !uneven && !source_.stage_letters.empty()) {
      check_virtual(source_.stage_letters, "pipeline_model_parallel_layout of the run");
      pipeline_changes_ = false;
      return;
    }
    run_.stage_letters.clear();
    if (anew) run_.first_stage_layers = run_.last_stage_layers = std::nullopt;
    if (requested_.first_stage_layers) run_.first_stage_layers = requested_.first_stage_layers;
    if (requested_.last_stage_layers) run_.last_stage_layers = requested_.last_stage_layers;
    if (counts && (uneven || requested_.stage_letters)) {
      fail(ErrorKind::invalid,
           "{} and {} are for even stages; leave them out where layers of stages are given",
           option("embedding_is_a_layer"), option("loss_is_a_layer"));
    }
    if (uneven || counts) {
      run_.embedding_is_a_layer = requested_.embedding_is_a_layer;
      run_.loss_is_a_layer = requested_.loss_is_a_layer;
    }
    if (requested_.stage_letters) set_letters(*requested_.stage_letters, uneven);
  }

  // What letters say of virtual stages needs no number, and bears no other.
  void check_virtual(const StageLetters& letters, std::string_view who) {
    const int64_t virtual_stages = static_cast<int64_t>(letters.size()) / run_.pipeline;
    if (requested_.virtual_pipeline.value_or(virtual_stages) != virtual_stages) {
      fail(
          ErrorKind::invalid,
          "{} contradicts {}, whose {} stages on {} pipeline ranks are {}; without letters, {} and "
          "{} make even stages",
          numbered("virtual_pipeline", *requested_.virtual_pipeline), who, letters.size(),
          run_.pipeline, numbered("virtual_pipeline", virtual_stages),
          numbered("pipeline", run_.pipeline), option("virtual_pipeline"));
    }
    run_.virtual_pipeline = virtual_stages;
  }

  void set_letters(const std::string& text, bool uneven) {
    const std::string letters = fmt::to_string(option("stage_letters"));
    if (uneven) {
      fail(
          ErrorKind::invalid,
          "{} says how many layers each stage has: numbers of the first and last stage's cannot be "
          "combined with it",
          letters);
    }
    run_.embedding_is_a_layer = run_.loss_is_a_layer = false;
    run_.stage_letters = parse_stage_letters(text, ErrorKind::invalid);
    const auto rows = static_cast<int64_t>(run_.stage_letters.size());
    const auto stages = [&](int64_t n) { return rows % n == 0; };
    if (!stages(run_.pipeline)) {
      fail(ErrorKind::invalid, "{} has {} stages, which {} pipeline ranks cannot share: for {}, {}",
           letters, rows, run_.pipeline, option("pipeline"), those_that_fit(1, rows, stages));
    }
    check_virtual(run_.stage_letters, letters);
    check_stage_letters(run_.stage_letters, run_.pipeline);
  }

  // Each context rank takes a part from either end of the sequence.
  void check_context(const Value& args) const {
    const int64_t sequence = number_of(args, "seq_length");
    const auto fits = [&](int64_t n) { return n == 1 || sequence % (2 * n) == 0; };
    if (!requested_.context || sequence == 0 || fits(run_.context)) return;
    fail(ErrorKind::invalid,
         "sequences of {} tokens cannot be split over {} context-parallel ranks, two parts each: "
         "for {}, {}",
         sequence, run_.context, option("context"), those_that_fit(1, sequence / 2, fits));
  }

  void check_pipeline() const {
    if (run_.norm_modules && run_.pipeline > 1) {
      fail(ErrorKind::invalid,
           "{}: Megatron Bridge builds these layers on one pipeline stage alone",
           numbered("pipeline", run_.pipeline));
    }
    if (run_.stage_letters.empty()) check_stages(run_);
    try {
      check_indexers(run_, PipelineLayout{run_});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::mismatch) throw;
      fail(ErrorKind::invalid, "{}", error.what());
    }
  }

  // Ranks that hold the same part of the dense model; the experts' ranks are the same ranks.
  void set_data() {
    const int64_t model = source_.tensor * source_.pipeline * source_.context;
    const int64_t before =
        source_.world_size % model == 0 ? std::max<int64_t>(source_.world_size / model, 1) : 1;
    const char* kWhat = "ranks of the target";
    const int64_t dense = checked_multiply(run_.tensor, run_.context, kWhat);
    const int64_t experts = checked_multiply(run_.expert, run_.expert_tensor, kWhat);
    const auto needed = [&](int64_t data) {  // the least multiple that the experts fit into
      return data * (run_.experts == 0 ? 1 : experts / std::gcd(experts, dense * data));
    };
    data_ = requested_.data ? chosen(requested_.data, 1, "data") : needed(before);
    if (needed(data_) != data_) {
      fail(ErrorKind::invalid,
           "{} x {} = {} ranks of experts do not divide {} x {} x {} = {} ranks of a pipeline "
           "stage: {} would fit",
           numbered("expert", run_.expert), numbered("expert_tensor", run_.expert_tensor), experts,
           numbered("tensor", run_.tensor), numbered("context", run_.context),
           numbered("data", data_), dense * data_, numbered("data", needed(data_)));
    }
    run_.world_size = checked_multiply(checked_multiply(dense, data_, kWhat), run_.pipeline, kWhat);
    if (run_.world_size > RunArguments::kMostRanks) {
      fail(ErrorKind::invalid, "{} ranks are too many", run_.world_size);
    }
  }

  // Arguments that a release does not know are not made up, unless they say something.
  void put(std::string_view name, const Value& value, bool is_default) {
    if (!is_default || args_.has(name)) draft_.put(args_, name, value);
  }
  void put_size(std::string_view name, int64_t size) { put(name, draft_.integer(size), size == 1); }
  void put_optional(std::string_view name, const std::optional<int64_t>& number) {
    put(name, number ? draft_.integer(*number) : draft_.none(), !number);
  }

  void put_all() {
    put_size("tensor_model_parallel_size", run_.tensor);
    put_size("tensor_parallel_num_weight_shards", run_.tensor);
    put_size("pipeline_model_parallel_size", run_.pipeline);
    put_size("transformer_pipeline_model_parallel_size", run_.pipeline);
    put_size("context_parallel_size", run_.context);
    put_size("expert_model_parallel_size", run_.expert);
    put("expert_tensor_parallel_size", draft_.integer(run_.expert_tensor),
        run_.expert_tensor == run_.tensor);
    put("expert_tensor_parallel_num_weight_shards", draft_.integer(run_.expert_tensor), true);
    put_size("data_parallel_size", data_);
    draft_.put(args_, "world_size", draft_.integer(run_.world_size));
    if (run_.tensor == 1) put("sequence_parallel", draft_.boolean(false), true);
    const int64_t model = run_.tensor * run_.pipeline, experts = run_.expert * run_.expert_tensor;
    const bool instances_fit =
        run_.world_size / model % run_.optimizer_instances == 0 &&
        (run_.experts == 0 ||
         run_.world_size / run_.pipeline / experts % run_.optimizer_instances == 0);
    if (!instances_fit) put_size("num_distributed_optimizer_instances", 1);
    if (pipeline_changes_) put_pipeline();
  }

  // Stages stand in the pattern of a hybrid model's layers.
  void put_hybrid_pipeline() {
    HybridPattern pattern = *hybrid_pattern(args_);
    pattern.stage_layers.clear();
    const PipelineLayout stages(run_);
    for (int64_t chunk = 0; chunk < stages.chunks(); ++chunk) {
      for (int64_t stage = 0; stage < stages.stages(); ++stage) {
        pattern.stage_layers.push_back(stages.at(stage, chunk).layers);
      }
    }
    const bool is_new = args_.has("hybrid_layer_pattern");
    draft_.put(args_, is_new ? "hybrid_layer_pattern" : "hybrid_override_pattern",
               draft_.string(pattern.text()));
    if (args_.has("mtp_hybrid_override_pattern")) {
      draft_.put(args_, "mtp_hybrid_override_pattern", draft_.none());
    }
    const int64_t virtual_stages = stages.chunks();
    put_optional("virtual_pipeline_model_parallel_size",
                 virtual_stages > 1 ? std::optional(virtual_stages) : std::nullopt);
    for (const char* name :
         {"num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank",
          "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"}) {
      put_optional(name, std::nullopt);
    }
  }

  void put_pipeline() {
    if (run_.hybrid) return put_hybrid_pipeline();
    const bool interleaved = run_.virtual_pipeline > 1;
    const bool even = !run_.first_stage_layers && !run_.last_stage_layers &&
                      !run_.embedding_is_a_layer && !run_.loss_is_a_layer;
    const bool letters = !run_.stage_letters.empty();
    const auto if_so = [](bool condition, int64_t number) {
      return condition ? std::optional(number) : std::nullopt;
    };
    put_optional("virtual_pipeline_model_parallel_size", if_so(interleaved, run_.virtual_pipeline));
    put_optional("num_layers_per_virtual_pipeline_stage",
                 if_so(interleaved && even && !letters,
                       run_.layers / run_.pipeline / run_.virtual_pipeline));
    put_optional("num_virtual_stages_per_pipeline_rank",
                 if_so(interleaved && !even && !letters, run_.virtual_pipeline));
    put_optional("decoder_first_pipeline_num_layers", run_.first_stage_layers);
    put_optional("decoder_last_pipeline_num_layers", run_.last_stage_layers);
    put("pipeline_model_parallel_layout",
        letters ? draft_.string(*requested_.stage_letters) : draft_.none(), !letters);
    put("account_for_embedding_in_pipeline_split", draft_.boolean(run_.embedding_is_a_layer),
        !run_.embedding_is_a_layer);
    put("account_for_loss_in_pipeline_split", draft_.boolean(run_.loss_is_a_layer),
        !run_.loss_is_a_layer);
    put("standalone_embedding_stage", draft_.boolean(false), true);
  }

  const RunArguments source_;
  RunArguments run_;
  const ParallelTarget& requested_;
  Draft draft_;
  Value args_;
  int64_t data_ = 1;
  bool pipeline_changes_ = false;
};

}  // namespace

LoadedValue apply_target(const ParsedArguments& args, const ParallelTarget& target) {
  if (args.value.pair_count() == 0) {
    fail(ErrorKind::unsupported,
         "the checkpoint holds no arguments of the run, without which it cannot be resharded");
  }
  return Target(args, target).take();
}

}  // namespace ferry
