#include "trainer/parallel/device_batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ferry {
namespace {

// The first token of the document that each token is of, counted from its sequence's first token.
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
                         std::vector<int64_t> positions)
    : sequences_(sequences), positions_(std::move(positions)) {
  const auto rows = sequences_ * static_cast<int64_t>(positions_.size());
  memory_ = kernels.allocate(static_cast<size_t>((rows + sequences_) * 8 + 6 * rows * 4 + 64));
  next_ = static_cast<std::byte*>(memory_.get());
  auto* const loss_sum = place<double>(1);
  row_ids_ = place<int64_t>(rows);
  sequence_ids_ = place<int64_t>(sequences_);
  tokens_ = place<int32_t>(rows);
  labels_ = place<int32_t>(rows);
  position_ids_ = place<int32_t>(rows);
  documents_ = place<int32_t>(rows);
  mask_ = place<float>(rows);
  weight_ = place<float>(rows);
  micro_batch_ = {tokens_, position_ids_, labels_, mask_, nullptr, loss_sum, {}};
}

template <typename Element>
Element* DeviceBatch::place(int64_t elements) {
  return reinterpret_cast<Element*>(
      std::exchange(next_, next_ + elements * static_cast<int64_t>(sizeof(Element))));
}

void DeviceBatch::number(kernels::Kernels& kernels, int64_t first_sample, int64_t length) {
  std::vector<int64_t> rows, sequences;
  for (const int64_t position : positions_) {
    for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
      rows.push_back((first_sample + sequence) * length + position);
    }
  }
  for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
    sequences.push_back(first_sample + sequence);
  }
  kernels.upload(rows.data(), row_ids_, rows.size() * sizeof(int64_t));
  kernels.upload(sequences.data(), sequence_ids_, sequences.size() * sizeof(int64_t));
}

double DeviceBatch::fill(kernels::Kernels& kernels, const Batch& batch,
                         const FillOptions& options) {
  number(kernels, options.first_sample, batch.sequence_length);
  const double tokens = std::accumulate(batch.loss_mask.begin(), batch.loss_mask.end(), 0.0);
  const auto put = [&]<typename Element>(const std::vector<Element>& all, Element* to) {
    std::vector<Element> own;
    own.reserve(positions_.size() * static_cast<size_t>(sequences_));
    for (const int64_t position : positions_) {
      for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
        own.push_back(all[static_cast<size_t>(sequence * batch.sequence_length + position)]);
      }
    }
    kernels.upload(own.data(), to, own.size() * sizeof(Element));
    return own;
  };
  put(batch.tokens, tokens_);
  put(batch.labels, labels_);
  put(batch.position_ids, position_ids_);
  std::vector<float> weight = put(batch.loss_mask, mask_);
  micro_batch_.loss_weight = nullptr;
  if (options.loss_scale != 0) {
    const double divisor = options.per_token_loss ? 1 : std::max(tokens, 1.0);
    for (float& one : weight) one = static_cast<float>(one * options.loss_scale / divisor);
    kernels.upload(weight.data(), weight_, weight.size() * sizeof(float));
    micro_batch_.loss_weight = weight_;
  }
  document_begin_ = nullptr;
  if (options.has_resets) {  // [sequences, positions]
    const std::vector<int32_t> begins = document_begins(batch);
    std::vector<int32_t> own;
    for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
      for (const int64_t position : positions_) {
        own.push_back(begins[static_cast<size_t>(sequence * batch.sequence_length + position)]);
      }
    }
    kernels.upload(own.data(), documents_, own.size() * sizeof(int32_t));
    document_begin_ = documents_;
  }
  return tokens;
}

}  // namespace ferry
