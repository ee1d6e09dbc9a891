#include "trainer/parallel/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "ckpt/base/error.h"

namespace ferry {

using kernels::Array;

// What a micro-batch needs between its forward and its backward pass.
struct Pipeline::Slot {
  Slot(kernels::Kernels& kernels, int64_t kept_bytes, int64_t boundary_bytes, DeviceBatch batch_)
      : memory(kernels.allocate(static_cast<size_t>(3 * boundary_bytes))),
        kept(kernels, kept_bytes),
        batch(std::move(batch_)) {}

  std::shared_ptr<void> memory;
  Array input, output, d;
  Arena kept;
  DeviceBatch batch;
  ModelChunk::Saved saved;
  int64_t micro_batch = -1;  // -1: free
  Communicator::Ticket sent_output = 0, sent_gradient = 0;
};

Pipeline::Pipeline(std::vector<ModelChunk> chunks, const Architecture& architecture, Grid& grid,
                   kernels::Kernels& kernels, const PipelineOptions& options)
    : chunks_(std::move(chunks)),
      grid_(grid),
      kernels_(kernels),
      options_(options),
      ranks_{grid.tensor(),  grid.context(), grid.tensor_and_context(),
             grid.experts(), grid.stage(),   options.sequence_parallel},
      positions_(context_positions(options.length, grid.sizes().context, grid.place().context)),
      hidden_(architecture.hidden),
      has_experts_(architecture.experts > 0),
      slots_(chunks_.size()) {
  const RopeTable table = rope_table(architecture, positions_);
  if (!table.cosine.empty()) {
    const size_t bytes = table.cosine.size() * sizeof(float);
    rope_memory_ = kernels.allocate(2 * bytes);
    auto* const memory = static_cast<float*>(rope_memory_.get());
    kernels.upload(table.cosine.data(), memory, bytes);
    kernels.upload(table.sine.data(), memory + table.cosine.size(), bytes);
    cosine_ = memory;
    sine_ = memory + table.cosine.size();
  }
  for (const ModelChunk& chunk : chunks_) sizes_.push_back(measure(chunk));
}

Pipeline::~Pipeline() = default;

PassValues Pipeline::pass_values() const {
  PassValues pass;
  pass.sequences = options_.sequences;
  pass.positions = static_cast<int64_t>(positions_.size());
  pass.cosine = cosine_;
  pass.sine = sine_;
  pass.recompute = options_.recompute;
  pass.hidden_dropout = options_.hidden_dropout;
  pass.attention_dropout = options_.attention_dropout;
  pass.parameters_version = runs_;
  return pass;
}

// Memory for as many micro-batches as are in flight at once.
void Pipeline::prepare(const std::vector<PipelineAction>& schedule) {
  const auto reserve = [&](Arena& arena, int64_t Sizes::*bytes) {
    int64_t most = 0;
    for (const Sizes& sizes : sizes_) most = std::max(most, sizes.*bytes);
    if (arena.size() < most) arena = Arena(kernels_, most);
  };
  reserve(scratch_, &Sizes::scratch);
  reserve(transient_, &Sizes::transient);
  const int64_t rows = options_.sequences * static_cast<int64_t>(positions_.size()) /
                       (ranks_.sequence_parallel ? ranks_.tensor.size() : 1);
  const int64_t boundary = rows * hidden_;
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    const bool trains = std::any_of(schedule.begin(), schedule.end(),
                                    [](const PipelineAction& a) { return !a.is_forward; });
    const int64_t most =
        trains ? most_in_flight(schedule, static_cast<int64_t>(chunk)) : int64_t{1};
    while (static_cast<int64_t>(slots_[chunk].size()) < most) {
      Slot& slot = slots_[chunk].emplace_back(
          kernels_, sizes_[chunk].kept, boundary * size_bytes(options_.type),
          DeviceBatch(kernels_, options_.sequences, positions_, options_.predictions));
      slot.input = Array(slot.memory.get(), options_.type);
      slot.output = slot.input.from(boundary);
      slot.d = slot.output.from(boundary);
    }
  }
}

Pipeline::Slot& Pipeline::take_slot(int64_t chunk) {
  for (Slot& slot : slots_[static_cast<size_t>(chunk)]) {
    if (slot.micro_batch >= 0) continue;
    grid_.forward_pipeline().wait(std::exchange(slot.sent_output, 0));
    grid_.backward_pipeline().wait(std::exchange(slot.sent_gradient, 0));
    return slot;
  }
  fail(ErrorKind::internal, "more micro-batches are in flight than the schedule allows");
}

int Pipeline::stage_before() const {
  const int64_t stages = grid_.sizes().pipeline;
  return static_cast<int>((grid_.place().stage + stages - 1) % stages);
}

int Pipeline::stage_after() const {
  return static_cast<int>((grid_.place().stage + 1) % grid_.sizes().pipeline);
}

void Pipeline::begin_step(int64_t number) {
  dropout_key_ =
      kernels::mix_key(static_cast<uint64_t>(options_.seed), static_cast<uint64_t>(number));
  for (const ModelChunk& chunk : chunks_) {
    for (const Moe* experts : chunk.experts()) experts->reset(kernels_);
  }
}

Pipeline::Losses Pipeline::router_losses(int64_t micro_batches) {
  using Balance = RouterOptions::Balance;
  std::array<double, 6> sums = {};
  auto& [balance, z, of_micro_batch, of_sequence, of_global_batch, with_z] = sums;
  std::list<Moe::Losses> all_losses;
  for (const ModelChunk& chunk : chunks_) {
    for (const Moe* experts : chunk.experts()) {
      experts->update_bias(kernels_, grid_.stage());
      experts->download_losses(kernels_, all_losses.emplace_back());
      const RouterOptions& options = experts->options();
      of_micro_batch += options.balance == Balance::micro_batch ? 1 : 0;
      of_sequence += options.balance == Balance::sequence ? 1 : 0;
      of_global_batch += options.balance == Balance::global_batch ? 1 : 0;
      with_z += options.z_coefficient ? 1 : 0;
    }
  }
  kernels_.wait();
  for (const Moe::Losses& each : all_losses) {
    balance += each.balance;
    z += each.z;
  }
  const bool counts = ranks_.tensor_and_context.rank() == 0 && grid_.place().data == 0;
  if (!counts) of_micro_batch = of_sequence = of_global_batch = with_z = 0;
  grid_.world().add_numbers(sums);
  const auto own_batches = static_cast<double>(micro_batches);
  const double batches = own_batches * static_cast<double>(grid_.sizes().data);
  Losses losses;
  // The log uses the first name of each kind, with 0 if another is in use.
  if (of_micro_batch + of_sequence + of_global_batch > 0) {
    losses.emplace_back("load_balancing_loss",
                        of_micro_batch > 0 ? balance / (of_micro_batch * batches) : 0);
  }
  if (of_sequence > 0) {
    losses.emplace_back("seq_load_balancing_loss", balance / (of_sequence * batches));
  }
  if (of_global_batch > 0) {  // each data-parallel rank has a part
    losses.emplace_back("global_load_balancing_loss", balance / (of_global_batch * own_batches));
  }
  if (with_z > 0) losses.emplace_back("z_loss", z / (with_z * batches));
  return losses;
}

Pipeline::Losses Pipeline::end_step(int64_t micro_batches) {
  Losses losses;
  if (has_experts_) losses = router_losses(micro_batches);
  const double batches =
      static_cast<double>(micro_batches) * static_cast<double>(grid_.sizes().data);
  for (size_t i = 0; i < loss_.predictions.size(); ++i) {
    losses.emplace_back(fmt::format("mtp_{} loss", i + 1), loss_.predictions[i] / batches);
  }
  return losses;
}

void Pipeline::train(int64_t micro_batches, double loss_scale, const Source& source) {
  // Auxiliary losses are means over micro-batches in either case.
  const double batches = static_cast<double>(micro_batches * grid_.sizes().data);
  const auto tokens = static_cast<double>(options_.sequences * options_.length);
  const bool by_token = options_.per_token_loss;
  auxiliary_scale_ = by_token ? loss_scale * tokens : loss_scale / batches;
  run(pipeline_schedule(grid_.sizes().pipeline, grid_.place().stage,
                        static_cast<int64_t>(chunks_.size()), micro_batches),
      by_token ? loss_scale : loss_scale / batches, source);
}

double Pipeline::gradient_divisor() {
  return options_.per_token_loss ? std::max(tokens(), 1.0) : 1.0;
}

StepLoss Pipeline::evaluate(int64_t micro_batches, const Source& source) {
  auxiliary_scale_ = 0;
  run(forward_schedule(grid_.sizes().pipeline, static_cast<int64_t>(chunks_.size()), micro_batches),
      0, source);
  return losses();
}

void Pipeline::run(const std::vector<PipelineAction>& schedule, double loss_scale,
                   const Source& source) {
  prepare(schedule);
  ++runs_;
  loss_ = {0, 0, std::vector<double>(static_cast<size_t>(options_.predictions))};
  last_micro_batch_ = schedule.empty() ? -1 : schedule.back().micro_batch;
  for (const PipelineAction& action : schedule) {
    if (action.is_forward) {
      Slot& slot = take_slot(action.chunk);
      forward(slot, action, loss_scale, source);
      if (loss_scale == 0) slot.micro_batch = -1;
    } else {
      for (Slot& slot : slots_[static_cast<size_t>(action.chunk)]) {
        if (slot.micro_batch == action.micro_batch) {
          backward(slot, action);
          slot.micro_batch = -1;
          break;
        }
      }
    }
  }
}

double Pipeline::tokens() {
  double tokens = ranks_.tensor.rank() == 0 ? loss_.tokens : 0;
  grid_.world().add_numbers({&tokens, 1});
  return tokens;
}

StepLoss Pipeline::losses() {
  kernels_.wait();
  const size_t kinds = 1 + loss_.predictions.size();
  for (size_t kind = 0; const auto& [sum, divisor] : downloads_) {
    (kind == 0 ? loss_.sum : loss_.predictions[kind - 1]) += sum / divisor;
    kind = (kind + 1) % kinds;
  }
  downloads_.clear();
  // Every tensor rank of the last stage has the same sums.
  std::vector<double> sums{loss_.sum, loss_.tokens};
  sums.insert(sums.end(), loss_.predictions.begin(), loss_.predictions.end());
  if (ranks_.tensor.rank() != 0) std::ranges::fill(sums, 0.0);
  grid_.world().add_numbers(sums);
  loss_ = {sums[0], sums[1], {sums.begin() + 2, sums.end()}};
  return loss_;
}

Pass Pipeline::pass_of(Slot& slot) {
  Pass pass{pass_values(), kernels_, ranks_, slot.kept, scratch_, transient_};
  pass.document_begin = slot.batch.document_begin();
  pass.trains = auxiliary_scale_ != 0;
  pass.auxiliary_scale = static_cast<float>(auxiliary_scale_);
  if (!pass.trains) pass.hidden_dropout = pass.attention_dropout = 0;
  const int64_t first_row =
      ranks_.sequence_parallel ? ranks_.tensor.rank() * pass.own_rows() : int64_t{0};
  pass.dropout_key = dropout_key_;
  pass.row_ids = slot.batch.row_ids() + first_row;
  pass.sequence_ids = slot.batch.sequence_ids();
  return pass;
}

void Pipeline::forward(Slot& slot, const PipelineAction& action, double loss_scale,
                       const Source& source) {
  const ModelChunk& chunk = chunks_[static_cast<size_t>(action.chunk)];
  slot.micro_batch = action.micro_batch;
  slot.kept.release(0);
  source(action.micro_batch, batch_);
  const int64_t data_batch = action.micro_batch * grid_.sizes().data + grid_.place().data;
  slot.batch.fill(kernels_, batch_,
                  {.loss_scale = loss_scale,
                   .per_token_loss = options_.per_token_loss,
                   .prediction_scale = options_.prediction_scale,
                   .has_resets = options_.resets_attention,
                   .first_sample = data_batch * options_.sequences});
  Pass pass = pass_of(slot);
  pass.watcher = watcher_;
  pass.chunk = action.chunk;
  const int64_t boundary = chunk.boundary_elements(pass);
  Communicator& pipeline = grid_.forward_pipeline();
  if (has_before(action.chunk)) {
    pipeline.wait(pipeline.receive(slot.input, boundary, stage_before()));
  }
  MicroBatch micro_batch = slot.batch.micro_batch();
  micro_batch.logits = logits_;
  slot.saved = chunk.forward(pass, micro_batch, slot.input, slot.output);
  if (has_after(action.chunk)) {
    slot.sent_output = pipeline.send(slot.output, boundary, stage_after());
  } else {
    download_losses(micro_batch, slot.batch.tokens());
  }
}

void Pipeline::download_losses(const MicroBatch& micro_batch, const std::vector<double>& tokens) {
  if (ranks_.context.rank() == 0) loss_.tokens += tokens[0];
  const auto download = [&](const double* sum, double divisor) {
    kernels_.download(sum, &downloads_.emplace_back(0, divisor).first, sizeof *sum);
  };
  download(micro_batch.targets.loss_sum, 1);
  for (size_t i = 0; i < loss_.predictions.size(); ++i) {
    download(micro_batch.predictions[i].targets.loss_sum, std::max(tokens[i + 1], 1.0));
  }
}

void Pipeline::backward(Slot& slot, const PipelineAction& action) {
  const ModelChunk& chunk = chunks_[static_cast<size_t>(action.chunk)];
  Pass pass = pass_of(slot);
  if (action.micro_batch == last_micro_batch_) pass.watcher = watcher_;
  pass.chunk = action.chunk;
  const int64_t boundary = chunk.boundary_elements(pass);
  Communicator& pipeline = grid_.backward_pipeline();
  if (has_after(action.chunk)) {
    pipeline.wait(pipeline.receive(slot.d, boundary, stage_after()));
  }
  chunk.backward(pass, slot.batch.micro_batch(), slot.saved, slot.d);
  if (has_before(action.chunk)) {
    slot.sent_gradient = pipeline.send(slot.d, boundary, stage_before());
  }
}

}  // namespace ferry
