#include "trainer/data/dataset.h"

#include <algorithm>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

void resize(Batch& batch, int64_t rows, int64_t sequence_length) {
  batch.rows = rows;
  batch.sequence_length = sequence_length;
  const auto elements = static_cast<size_t>(rows * sequence_length);
  batch.tokens.resize(elements);
  batch.labels.resize(elements);
  batch.loss_mask.resize(elements);
  batch.position_ids.resize(elements);
  batch.document_starts.clear();
}

}  // namespace

void read_batch(const Dataset& dataset, std::span<const int64_t> indices, Sample& sample,
                Batch& batch) {
  resize(batch, 0, 0);
  int64_t begin = 0;
  for (const int64_t index : indices) {
    dataset.read(index, sample);
    const auto length = static_cast<int64_t>(sample.tokens.size());
    if (batch.rows == 0) resize(batch, std::ssize(indices), length);
    if (length != batch.sequence_length) {
      fail(ErrorKind::invalid, "samples of {} and of {} tokens cannot be in one batch",
           batch.sequence_length, length);
    }
    std::copy(sample.tokens.begin(), sample.tokens.end(), batch.tokens.begin() + begin);
    std::copy(sample.labels.begin(), sample.labels.end(), batch.labels.begin() + begin);
    std::copy(sample.loss_mask.begin(), sample.loss_mask.end(), batch.loss_mask.begin() + begin);
    std::copy(sample.position_ids.begin(), sample.position_ids.end(),
              batch.position_ids.begin() + begin);
    for (const int32_t start : sample.document_starts) {
      batch.document_starts.push_back(static_cast<int32_t>(begin) + start);
    }
    begin += length;
  }
}

}  // namespace ferry
