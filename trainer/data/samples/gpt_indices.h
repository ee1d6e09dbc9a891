// Which tokens make which sample: three arrays that, with the sequences' lengths, are the whole
// order of a training run. They are Megatron-LM's, bit for bit.
//
//   document index   the sequences of the split, once an epoch, shuffled over all epochs
//   sample index     row k: where sample k begins, as (place in the document index, token); samples
//                    of sequence_length tokens are cut from the sequences one after another, each
//                    with the first token of the next one as its last label
//   shuffle index    the order in which samples are taken
//
// The last epoch is separate, shuffled by itself after the others, if less than 80% of it is
// needed: its samples then come last, and no earlier epoch loses any.
//
// Source: megatron/core/datasets/gpt_dataset.py, helpers.cpp (build_sample_idx).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ckpt/base/error.h"
#include "trainer/data/documents/token_source.h"
#include "trainer/data/samples/random_order.h"

namespace ferry {

/// The sequences [begin, end) of a source.
struct SequenceRange {
  int64_t begin = 0, end = 0;
  int64_t count() const noexcept { return end - begin; }
};

/// Tokens of these sequences. corrupt if a length is negative, or their sum exceeds the source.
int64_t count_tokens(const TokenSource& source, SequenceRange range);

struct EpochPlan {
  int64_t epochs = 1;
  int64_t samples = 0;  // that these epochs give: at least the requested number
  bool last_epoch_apart = false;
  int64_t samples_before_last_epoch = 0;  // if that is separate
};

/// How often the split is read for this many samples (empty: one epoch). With `drop_last` off, the
/// last tokens, too few for a sample, make a padded one. invalid if samples are requested and the
/// split has no tokens.
EpochPlan plan_epochs(int64_t tokens_per_epoch, int64_t sequence_length,
                      std::optional<int64_t> samples, bool drop_last);

std::vector<int32_t> build_document_index(SequenceRange range, const EpochPlan& plan,
                                          NumpyRandomState& random);
std::vector<uint32_t> build_shuffle_index(const EpochPlan& plan, NumpyRandomState& random);

/// Calls emit(document_place, token, true) for each row k of the sample index, k in [0, samples].
/// Calls with false in between are for documents in which no sample starts and must be ignored:
/// testing first would be an unpredictable branch. `documents` are sequences of the source.
template <typename Emit>
void walk_samples(const TokenSource& source, std::span<const int32_t> documents,
                  int64_t sequence_length, int64_t samples, Emit emit) {
  emit(0, 0, true);
  int64_t row = 1;
  int64_t next =
      sequence_length;  // token at which this row's sample starts, counted from the front
  int64_t begin = 0;    // token at which the document starts, likewise
  int64_t last_place = 0, last_token = 0;
  for (int64_t place = 0; place < std::ssize(documents) && row <= samples; ++place) {
    const int64_t length = source.length(documents[static_cast<size_t>(place)]);
    const int64_t end = begin + length;
    do {
      const bool begins_here = next < end;
      emit(place, next - begin, begins_here);
      row += begins_here ? 1 : 0;
      next += begins_here ? sequence_length : 0;
    } while (next < end && row <= samples);
    last_place = length > 0 ? place : last_place;
    last_token = length > 0 ? length - 1 : last_token;
    begin = end;
  }
  for (; row <= samples; ++row) emit(last_place, last_token, true);  // end of a padded sample
}

/// Both numbers of each row, as array elements.
template <typename T>
std::vector<T> build_sample_index(const TokenSource& source, std::span<const int32_t> documents,
                                  int64_t sequence_length, int64_t samples) {
  std::vector<T> rows(2 * (static_cast<size_t>(samples) + 1));
  walk_samples(source, documents, sequence_length, samples,
               [out = rows.data()](int64_t place, int64_t token, bool counts) mutable {
                 out[0] = static_cast<T>(place);
                 out[1] = static_cast<T>(token);
                 out += counts ? 2 : 0;
               });
  return rows;
}

/// Whether these are the rows that build_sample_index() would make.
template <typename T>
bool is_sample_index(std::span<const T> rows, const TokenSource& source,
                     std::span<const int32_t> documents, int64_t sequence_length) {
  bool same = true;
  walk_samples(source, documents, sequence_length, std::ssize(rows) / 2 - 1,
               [&same, at = rows.data()](int64_t place, int64_t token, bool counts) mutable {
                 same &= (!counts) | ((at[0] == place) & (at[1] == token));
                 at += counts ? 2 : 0;
               });
  return same;
}

/// Whether arrays from a cache are what plan_epochs() and the functions above make, up to the
/// random order: each sequence once an epoch, each sample once, the last epoch separate.
bool is_document_index(std::span<const int32_t> documents, SequenceRange range,
                       const EpochPlan& plan);
bool is_shuffle_index(std::span<const uint32_t> order, const EpochPlan& plan);

}  // namespace ferry
