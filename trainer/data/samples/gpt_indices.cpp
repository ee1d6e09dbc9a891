#include "trainer/data/samples/gpt_indices.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ckpt/base/checked.h"

namespace ferry {
namespace {

// Samples have 32-bit numbers; Megatron-LM switches to 64 bits two before the limit.
constexpr int64_t kMostSamples = int64_t{UINT32_MAX} - 2;

int64_t count_samples(int64_t tokens, int64_t sequence_length, bool drop_last) {
  const int64_t with_label = std::max<int64_t>(tokens - 1, 0);  // the last token is only a label
  if (drop_last) return with_label / sequence_length;
  // In 32-bit floats, as in Megatron-LM: from 2^24 tokens on it may be off by some samples.
  const float quotient = static_cast<float>(with_label) / static_cast<float>(sequence_length);
  return static_cast<int64_t>(std::ceil(quotient));
}

void fill_epochs(std::span<int32_t> documents, SequenceRange range) {
  const auto epoch = static_cast<size_t>(range.count());
  for (; !documents.empty(); documents = documents.subspan(epoch)) {
    std::iota(documents.begin(), documents.begin() + range.count(),
              static_cast<int32_t>(range.begin));
  }
}

bool is_permutation(std::span<const uint32_t> order, int64_t first) {
  std::vector<bool> seen(order.size());
  for (const uint32_t value : order) {
    const int64_t place = static_cast<int64_t>(value) - first;
    if (place < 0 || place >= std::ssize(order) || seen[static_cast<size_t>(place)]) return false;
    seen[static_cast<size_t>(place)] = true;
  }
  return true;
}

bool has_each(std::span<const int32_t> documents, SequenceRange range, int64_t times) {
  std::vector<int32_t> counts(static_cast<size_t>(range.count()));
  for (const int32_t document : documents) {
    if (document < range.begin || document >= range.end) return false;
    ++counts[static_cast<size_t>(document - range.begin)];
  }
  return std::all_of(counts.begin(), counts.end(),
                     [times](int32_t count) { return count == times; });
}

}  // namespace

int64_t count_tokens(const TokenSource& source, SequenceRange range) {
  int64_t tokens = 0;
  int32_t least = 0;
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int32_t length = source.length(i);
    tokens += length;
    least = std::min(least, length);
  }
  if (least < 0) {
    fail(ErrorKind::corrupt, "{}: its index has a sequence of {} tokens", source.name(), least);
  }
  if (tokens > source.most_tokens()) {
    fail(ErrorKind::corrupt, "{} holds {} tokens but {} according to its index", source.name(),
         source.most_tokens(), tokens);
  }
  return tokens;
}

EpochPlan plan_epochs(int64_t tokens_per_epoch, int64_t sequence_length,
                      std::optional<int64_t> samples, bool drop_last) {
  if (sequence_length < 1) {
    fail(ErrorKind::invalid, "cannot make samples of {} tokens", sequence_length);
  }
  const int64_t least_samples = samples.value_or(0);
  if (least_samples < 0) fail(ErrorKind::invalid, "cannot make {} samples", least_samples);
  EpochPlan plan;
  if (least_samples > 0) {
    if (tokens_per_epoch < 1) {
      fail(ErrorKind::invalid, "cannot make {} samples from sequences without tokens",
           least_samples);
    }
    const int64_t tokens =
        checked_add(checked_multiply(least_samples, sequence_length, "tokens of all samples"),
                    int64_t{1}, "tokens of all samples");
    plan.epochs = tokens / tokens_per_epoch + (tokens % tokens_per_epoch != 0 ? 1 : 0);
  }
  const int64_t all = checked_multiply(plan.epochs, tokens_per_epoch, "tokens of all epochs");
  plan.samples = count_samples(all, sequence_length, drop_last);
  if (plan.samples > kMostSamples) {
    fail(ErrorKind::unsupported, "{} samples of one dataset are too many; at most {} are possible",
         plan.samples, kMostSamples);
  }
  if (plan.epochs > 1) {
    const int64_t before = count_samples(all - tokens_per_epoch, sequence_length, true);
    const int64_t one_epoch = count_samples(tokens_per_epoch, sequence_length, true);
    plan.last_epoch_apart =
        least_samples - before < static_cast<int64_t>(0.80 * static_cast<double>(one_epoch));
    if (plan.last_epoch_apart) plan.samples_before_last_epoch = before;
  }
  return plan;
}

std::vector<int32_t> build_document_index(SequenceRange range, const EpochPlan& plan,
                                          NumpyRandomState& random) {
  const int64_t count = checked_multiply(range.count(), plan.epochs, "sequences of all epochs");
  if (count > int64_t{UINT32_MAX}) {
    fail(ErrorKind::unsupported,
         "{} epochs of {} sequences are more than {} places; use fewer samples, or split the "
         "dataset",
         plan.epochs, range.count(), UINT32_MAX);
  }
  std::vector<int32_t> documents(static_cast<size_t>(count));
  fill_epochs(documents, range);
  const std::span<int32_t> all(documents);
  const auto apart = static_cast<size_t>(plan.last_epoch_apart ? range.count() : 0);
  random.shuffle(all.first(all.size() - apart));
  random.shuffle(all.last(apart));
  return documents;
}

std::vector<uint32_t> build_shuffle_index(const EpochPlan& plan, NumpyRandomState& random) {
  std::vector<uint32_t> order(static_cast<size_t>(plan.samples));
  std::iota(order.begin(), order.end(), 0u);
  const std::span<uint32_t> all(order);
  const auto first =
      static_cast<size_t>(plan.last_epoch_apart ? plan.samples_before_last_epoch : plan.samples);
  random.shuffle(all.first(first));
  random.shuffle(all.subspan(first));
  return order;
}

bool is_document_index(std::span<const int32_t> documents, SequenceRange range,
                       const EpochPlan& plan) {
  const auto apart = static_cast<size_t>(plan.last_epoch_apart ? range.count() : 0);
  return documents.size() == static_cast<size_t>(range.count() * plan.epochs) &&
         has_each(documents.first(documents.size() - apart), range,
                  plan.epochs - (plan.last_epoch_apart ? 1 : 0)) &&
         has_each(documents.last(apart), range, plan.last_epoch_apart ? 1 : 0);
}

bool is_shuffle_index(std::span<const uint32_t> order, const EpochPlan& plan) {
  const int64_t first = plan.last_epoch_apart ? plan.samples_before_last_epoch : plan.samples;
  return std::ssize(order) == plan.samples &&
         is_permutation(order.first(static_cast<size_t>(first)), 0) &&
         is_permutation(order.subspan(static_cast<size_t>(first)), first);
}

}  // namespace ferry
