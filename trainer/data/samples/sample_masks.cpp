#include "trainer/data/samples/sample_masks.h"

#include <algorithm>
#include <numeric>

#include "ckpt/base/error.h"
#include "trainer/data/samples/random_order.h"

namespace ferry {
namespace {

constexpr int64_t kGoldfishTable = 1000003;
constexpr uint64_t kGoldfishSeed = 2971215073;

}  // namespace

SampleMasks::SampleMasks(const MaskOptions& options) : options_(options) {
  if (!options.goldfish_loss) return;
  if (options.goldfish_k < 1 || options.goldfish_h < 1) {
    fail(ErrorKind::invalid, "the goldfish loss needs k and h of at least 1, and got {} and {}",
         options.goldfish_k, options.goldfish_h);
  }
  uniform_ = torch_uniform(kGoldfishTable, kGoldfishSeed);
}

void SampleMasks::apply(std::span<const int32_t> text, Sample& sample) const {
  const size_t length = text.size() - 1;
  sample.tokens.assign(text.begin(), text.end() - 1);
  sample.labels.assign(text.begin() + 1, text.end());
  sample.loss_mask.assign(length, 1.0f);
  sample.position_ids.resize(length);
  std::iota(sample.position_ids.begin(), sample.position_ids.end(), 0);
  sample.document_starts.assign(1, 0);
  reset_at_documents(text.first(length), sample);
  for (size_t i = 0; i < length; ++i) {
    if (sample.tokens[i] == options_.padding) sample.tokens[i] = 0;
    if (sample.labels[i] != options_.padding) continue;
    sample.labels[i] = 0;
    sample.loss_mask[i] = 0.0f;
  }
  if (options_.goldfish_loss) drop_goldfish_labels(sample);
}

void SampleMasks::reset_at_documents(std::span<const int32_t> tokens, Sample& sample) const {
  if (!options_.eod_mask_loss && !options_.reset_position_ids && !options_.reset_attention_mask) {
    return;
  }
  size_t start = 0;  // of the document that token i is in
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (options_.reset_position_ids) sample.position_ids[i] = static_cast<int32_t>(i - start);
    if (tokens[i] != options_.end_of_document) continue;
    if (options_.eod_mask_loss) sample.loss_mask[i] = 0.0f;
    start = i + 1;
    if (options_.reset_attention_mask && start < tokens.size()) {
      sample.document_starts.push_back(static_cast<int32_t>(start));
    }
  }
}

// A label goes by a hash of itself and the h - 1 before it: the product, in 64 bits with wrap.
void SampleMasks::drop_goldfish_labels(Sample& sample) const {
  const auto h = static_cast<size_t>(options_.goldfish_h);
  const float share = static_cast<float>(1.0 / static_cast<double>(options_.goldfish_k));
  for (size_t last = h - 1; last < sample.labels.size(); ++last) {
    uint64_t product = 1;
    for (size_t i = last + 1 - h; i <= last; ++i) {
      product *= static_cast<uint64_t>(static_cast<int64_t>(sample.labels[i]));
    }
    int64_t place = static_cast<int64_t>(product) % kGoldfishTable;
    if (place < 0) place += kGoldfishTable;
    if (uniform_[static_cast<size_t>(place)] < share) sample.loss_mask[last] = 0.0f;
  }
}

}  // namespace ferry
