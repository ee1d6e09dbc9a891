#include "trainer/optimizer/model_state.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/rank_folders/parameter_kind.h"
#include "trainer/optimizer/state_buffer.h"

namespace ferry {

using kernels::Array;
using kernels::Type;

namespace {

// Parts of the model as in PassWatcher.
int64_t part_of(const std::string& name, const LocalParameter& parameter) {
  if (name.starts_with("decoder.layers.")) return parameter.layer;
  const bool is_head =
      name.starts_with("decoder.final_layernorm.") || name == "output_layer.weight";
  return is_head ? PassWatcher::kHead : PassWatcher::kRest;
}

}  // namespace

ModelState::ModelState(const ModelLayout& layout, const BufferChoice& choice, Grid& grid,
                       kernels::Kernels& kernels, ModelStateOptions options)
    : layout_(layout),
      choice_(choice),
      grid_(grid),
      kernels_(kernels),
      options_(std::move(options)) {
  const int64_t chunks = layout.pipeline().chunks();
  const RankCoordinates place = grid.place().chunk(0);
  for (const RankOptimizer& optimizer :
       rank_optimizers(layout.run(), chunks, choice.separate_experts)) {
    for (ModelBuffer& buffer : optimizer_buffers(layout, choice, place, optimizer)) {
      add_buffer(std::move(buffer), optimizer.experts);
    }
  }
  for (int64_t chunk = 0; chunk < chunks; ++chunk) add_parameters(chunk);
  order_buckets();
}

ModelState::~ModelState() = default;

const ParameterSet& ModelState::parameters(int64_t chunk) const {
  return parameters_[static_cast<size_t>(chunk)];
}

void ModelState::add_buffer(ModelBuffer layout, bool experts) {
  auto buffer = std::make_unique<Buffer>();
  buffer->layout = std::move(layout);
  buffer->type = kernel_type(buffer->layout.dtype, "parameters");
  buffer->peers = experts ? &grid_.expert_data() : &grid_.data_and_context();
  buffer->aside = experts ? &grid_.expert_data_aside() : &grid_.data_and_context_aside();
  if (options_.distributed_optimizer) {
    buffer->owners = buffer->peers->size();
    buffer->owner = buffer->peers->rank();
  }
  for (const FlatBucket& flat : buffer->layout.flat.buckets) {
    Bucket& bucket = buffer->buckets.emplace_back();
    bucket.buffer = buffer.get();
    bucket.begin = buffer->elements;
    bucket.part = flat.elements / buffer->owners;
    buffer->elements += flat.elements;
  }
  const auto allocate = [&](Type type, int64_t elements) {
    memory_.push_back(kernels_.allocate(static_cast<size_t>(elements * size_bytes(type))));
    return Array(memory_.back().get(), type);
  };
  buffer->values = allocate(buffer->type, buffer->elements);
  buffer->gradients = allocate(options_.gradient_type, buffer->elements);
  buffer->has_gradient = std::make_unique<bool[]>(buffer->layout.parameters.size());
  bytes_.parameters += buffer->elements * size_bytes(buffer->type);
  bytes_.gradients += buffer->elements * size_bytes(options_.gradient_type);
  for (size_t i = 0; i < buffer->layout.parameters.size(); ++i) {
    buffer->buckets[buffer->layout.flat.places[i].bucket].parameters.push_back(i);
  }
  add_runs(*buffer);
  buffers_.push_back(std::move(buffer));
}

void ModelState::add_runs(Buffer& buffer) {
  const bool has_remainders = options_.remainders && buffer.type == Type::bf16;
  const bool has_masters = buffer.type != Type::f32 && !has_remainders;
  int64_t own = 0;
  std::vector<int64_t> part_begins;
  for (const Bucket& bucket : buffer.buckets) {
    part_begins.push_back(own);
    own += bucket.part;
  }
  const auto allocate = [&](int64_t element_bytes) {
    memory_.push_back(kernels_.allocate(static_cast<size_t>(own * element_bytes)));
    bytes_.optimizer += own * element_bytes;
    return memory_.back().get();
  };
  auto* const masters = has_masters ? static_cast<float*>(allocate(sizeof(float))) : nullptr;
  auto* const remainders =
      has_remainders ? static_cast<int16_t*>(allocate(sizeof(int16_t))) : nullptr;
  std::vector<Array> states;
  for (size_t kind = 0; kind < options_.kinds.size(); ++kind) {
    const Type type = kind < options_.kind_types.size() ? options_.kind_types[kind] : Type::f32;
    states.emplace_back(allocate(size_bytes(type)), type);
  }
  for (BufferShard& shard : shards_of_rank(buffer.layout, buffer.owners, buffer.owner)) {
    const LocalParameter& parameter = buffer.layout.parameters[shard.parameter];
    StateRun run;
    run.elements = shard.shard.elements("a parameter");
    Bucket& bucket = buffer.buckets[shard.bucket];
    const int64_t at = bucket.begin + shard.offset;
    run.value = buffer.values.from(at);
    run.gradient = buffer.gradients.from(at);
    const int64_t own_at = part_begins[shard.bucket] + shard.offset - buffer.owner * bucket.part;
    if (has_masters) run.master = masters + own_at;
    if (has_remainders) run.remainder = remainders + own_at;
    if (buffer.type == Type::f32) run.master = static_cast<float*>(run.value.data);
    for (const Array& state : states) run.states.push_back(state.from(own_at));
    run.name = layout_.tensors()[shard.shard.tensor].name;
    run.decays =
        has_weight_decay(run.name, static_cast<size_t>(parameter.axes), options_.decays_qk_norms);
    run.is_input_or_output =
        run.name == "embedding.word_embeddings.weight" || run.name == "output_layer.weight";
    run.counts =
        parameter.first_copy && (options_.distributed_optimizer || buffer.peers->rank() == 0);
    run.shard = std::move(shard);
    if (bucket.end_run == 0) bucket.first_run = runs_.size();
    runs_.push_back(std::move(run));
    bucket.end_run = runs_.size();
  }
}

void ModelState::add_parameters(int64_t chunk) {
  ParameterSet& set = parameters_.emplace_back();
  // Finds the place of parameters in their buffer by tensor and first box.
  const auto find = [&](const LocalParameter& local) -> std::pair<Parameter, Bucket*> {
    for (const auto& buffer : buffers_) {
      const auto& parameters = buffer->layout.parameters;
      for (size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].shards == local.shards) {
          const int64_t at = buffer->begin_of(i);
          return {{buffer->values.from(at), buffer->gradients.from(at), local.elements,
                   &buffer->has_gradient[i]},
                  &buffer->buckets[buffer->layout.flat.places[i].bucket]};
        }
      }
    }
    fail(ErrorKind::internal, "parameter {} is in no buffer", canonical_name(layout_, local));
  };
  const RankCoordinates place = grid_.place().chunk(chunk);
  for (LocalParameter& local : layout_.parameters(place, choice_.modules)) {
    Parameter parameter;
    const std::string name = canonical_name(layout_, local);
    if (local.trainable) {
      const auto [found, bucket] = find(local);
      parameter = found;
      parameter_count_ += local.elements;
      bucket->users.emplace(chunk, part_of(name, local));
      if (local.shared_embedding) bucket->tied.push_back(parameter);
      if (is_partial(name)) bucket->partial.push_back(parameter);
    } else {
      const Type type = kernel_type(local.dtype, "parameters");
      memory_.push_back(kernels_.allocate(static_cast<size_t>(local.elements * size_bytes(type))));
      parameter = {Array(memory_.back().get(), type), {}, local.elements};
    }
    set.add(name, parameter);
    held_.push_back({std::move(local), parameter.value});
  }
}

// Whether each tensor rank computes only a part of the gradient of a replicated parameter: that of
// its own heads or, with sequence parallelism, of its own rows. Transformer Engine's
// down-projections of latent attention are replicated, local ones are split.
bool ModelState::is_partial(const std::string& name) const {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  const bool is_alpha = name.ends_with(".alpha_p") || name.ends_with(".alpha_n");
  const bool is_norm = has("layernorm.") || has(".enorm.") || has(".hnorm.");
  const bool is_head_norm = !options_.latent_attention && (has("self_attention.q_layernorm.") ||
                                                           has("self_attention.k_layernorm."));
  const bool is_whole_down = !choice_.modules.split_latent_down &&
                             (has(".linear_q_down_proj.") || has(".linear_kv_down_proj."));
  const bool sees_own_rows =
      is_norm || has(".router.") || has(".shared_experts.gate_weight") || is_whole_down;
  return is_alpha || is_head_norm || (options_.sequence_parallel && sees_own_rows);
}

void ModelState::begin_gradients() {
  for (const auto& buffer : buffers_) {
    std::fill_n(buffer->has_gradient.get(), buffer->layout.parameters.size(), false);
  }
}

void ModelState::copy_to_masters() {
  for (const StateRun& run : runs_) {
    if (run.value.type == Type::f32) continue;
    if (run.remainder != nullptr) {
      // Cleared as words, like any 16-bit type.
      kernels_.run(kernels::Clear{.count = run.elements, .y = Array(run.remainder, Type::f16)});
      continue;
    }
    kernels_.run(kernels::Copy{.count = run.elements, .x = run.value, .y = Array(run.master)});
  }
}

void ModelState::copy_from_masters() {
  for (const StateRun& run : runs_) {
    if (run.value.type == Type::f32 || run.remainder != nullptr) continue;
    kernels_.run(kernels::Copy{.count = run.elements, .x = Array(run.master), .y = run.value});
  }
  for (Bucket* const bucket : by_use_) gather(*bucket);
  wait_for_parameters();
}

}  // namespace ferry
