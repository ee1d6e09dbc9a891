#include "trainer/parallel/device_batch.h"

#include <algorithm>
#include <utility>

namespace ferry {
namespace {

// The first token of each token's document, counted from its sequence's first token.
std::vector<int32_t> document_begins(const Batch& batch) {
  std::vector<int32_t> begins(batch.tokens.size());
  const auto length = static_cast<int32_t>(batch.sequence_length);
  size_t next = 0;
  int32_t begin = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(begins.size()); ++i) {
    if (next < batch.document_starts.size() && batch.document_starts[next] == i) {
      begin = i % length;
      ++next;
    }
    begins[static_cast<size_t>(i)] = begin;
  }
  return begins;
}

}  // namespace

std::vector<int64_t> context_positions(int64_t length, int64_t ranks, int64_t rank) {
  std::vector<int64_t> positions;
  const int64_t parts = ranks == 1 ? 1 : 2 * ranks, part = length / parts;
  const auto add = [&](int64_t number) {
    for (int64_t i = 0; i < part; ++i) positions.push_back(number * part + i);
  };
  add(rank);
  if (ranks > 1) add(parts - 1 - rank);
  return positions;
}

DeviceBatch::DeviceBatch(kernels::Kernels& kernels, int64_t sequences,
                         std::vector<int64_t> positions, int64_t prediction_layers)
    : sequences_(sequences), positions_(std::move(positions)) {
  const auto rows = sequences_ * static_cast<int64_t>(positions_.size());
  const int64_t targets = 1 + prediction_layers;
  const int64_t words = rows * (3 + 3 * targets + prediction_layers);
  memory_ = kernels.allocate(static_cast<size_t>(8 * (rows + sequences_ + targets) + 4 * words));
  next_ = static_cast<std::byte*>(memory_.get());
  auto* const loss_sums = place<double>(targets);
  row_ids_ = place<int64_t>(rows);
  sequence_ids_ = place<int64_t>(sequences_);
  tokens_ = place<int32_t>(rows);
  position_ids_ = place<int32_t>(rows);
  documents_ = place<int32_t>(rows);
  for (int64_t i = 0; i < targets; ++i) {
    auto* const labels = place<int32_t>(rows);
    auto* const mask = place<float>(rows);
    targets_.push_back({labels, mask, place<float>(rows), loss_sums + i});
  }
  micro_batch_.tokens = tokens_;
  micro_batch_.positions = position_ids_;
  for (int64_t i = 0; i < prediction_layers; ++i) {
    prediction_tokens_.push_back(place<int32_t>(rows));
    const TargetMemory& of_layer = targets_[static_cast<size_t>(1 + i)];
    micro_batch_.predictions.push_back({prediction_tokens_.back(), of_layer.targets(true)});
  }
  micro_batch_.targets = targets_[0].targets(true);
  token_counts_.resize(static_cast<size_t>(targets));
}

template <typename Element>
Element* DeviceBatch::place(int64_t elements) {
  return reinterpret_cast<Element*>(
      std::exchange(next_, next_ + elements * static_cast<int64_t>(sizeof(Element))));
}

void DeviceBatch::number(kernels::Kernels& kernels, int64_t first_sample, int64_t length) {
  std::vector<int64_t> rows(positions_.size() * static_cast<size_t>(sequences_)), sequences;
  int64_t* row = rows.data();
  for (const int64_t position : positions_) {
    for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
      *row++ = (first_sample + sequence) * length + position;
    }
  }
  for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
    sequences.push_back(first_sample + sequence);
  }
  kernels.upload(rows.data(), row_ids_, rows.size() * sizeof(int64_t));
  kernels.upload(sequences.data(), sequence_ids_, sequences.size() * sizeof(int64_t));
}

// The value `shift` positions later in the same sequence, for each row; 0 past its end.
template <typename Element>
std::vector<Element> DeviceBatch::own_part(const Batch& batch, const std::vector<Element>& all,
                                           int64_t shift) const {
  const int64_t length = batch.sequence_length;
  std::vector<Element> own(positions_.size() * static_cast<size_t>(sequences_));
  Element* to = own.data();
  for (const int64_t position : positions_) {
    const bool is_there = position + shift < length;
    const Element* from = is_there ? all.data() + position + shift : nullptr;
    for (int64_t sequence = 0; sequence < sequences_; ++sequence, ++to) {
      if (is_there) *to = from[sequence * length];
    }
  }
  return own;
}

namespace {

template <typename Element>
void upload(kernels::Kernels& kernels, const std::vector<Element>& from, Element* to) {
  kernels.upload(from.data(), to, from.size() * sizeof(Element));
}

}  // namespace

// Targets of the model (shift 0) or of a prediction layer, with the weight of its mean loss.
void DeviceBatch::fill_targets(kernels::Kernels& kernels, const Batch& batch, int64_t shift,
                               const FillOptions& options) {
  const TargetMemory& memory = targets_[static_cast<size_t>(shift)];
  double& tokens = token_counts_[static_cast<size_t>(shift)];
  tokens = 0;
  for (size_t i = 0; i < batch.loss_mask.size(); ++i) {
    const bool is_there = static_cast<int64_t>(i) % batch.sequence_length >= shift;
    if (is_there) tokens += static_cast<double>(batch.loss_mask[i]);
  }
  upload(kernels, own_part(batch, batch.labels, shift), memory.labels);
  std::vector<float> mask = own_part(batch, batch.loss_mask, shift);
  upload(kernels, mask, memory.mask);
  const double zero = 0;
  kernels.upload(&zero, memory.loss_sum, sizeof zero);
  if (options.loss_scale == 0) return;
  const double divisor =
      std::max(tokens, 1.0) / (options.per_token_loss ? std::max(token_counts_[0], 1.0) : 1.0);
  const double scale = options.loss_scale / divisor * (shift > 0 ? options.prediction_scale : 1);
  for (float& one : mask) one = static_cast<float>(static_cast<double>(one) * scale);
  upload(kernels, mask, memory.weight);
}

void DeviceBatch::fill_documents(kernels::Kernels& kernels, const Batch& batch) {
  const std::vector<int32_t> begins = document_begins(batch);
  std::vector<int32_t> own;  // [sequences, positions]
  for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
    for (const int64_t position : positions_) {
      own.push_back(begins[static_cast<size_t>(sequence * batch.sequence_length + position)]);
    }
  }
  upload(kernels, own, documents_);
}

void DeviceBatch::fill(kernels::Kernels& kernels, const Batch& batch, const FillOptions& options) {
  number(kernels, options.first_sample, batch.sequence_length);
  upload(kernels, own_part(batch, batch.tokens, 0), tokens_);
  upload(kernels, own_part(batch, batch.position_ids, 0), position_ids_);
  const bool has_weights = options.loss_scale != 0;
  for (size_t i = 0; i < targets_.size(); ++i) {
    const auto shift = static_cast<int64_t>(i);
    fill_targets(kernels, batch, shift, options);
    if (i == 0) {
      micro_batch_.targets = targets_[0].targets(has_weights);
    } else {
      upload(kernels, own_part(batch, batch.tokens, shift), prediction_tokens_[i - 1]);
      micro_batch_.predictions[i - 1].targets = targets_[i].targets(has_weights);
    }
  }
  if (options.has_resets) fill_documents(kernels, batch);
  document_begin_ = options.has_resets ? documents_ : nullptr;
}

}  // namespace ferry
