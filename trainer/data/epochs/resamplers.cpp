#include "trainer/data/epochs/resamplers.h"

#include <limits>

#include "ckpt/base/error.h"
#include "trainer/data/epochs/permutation.h"
#include "trainer/data/samples/random_order.h"

namespace ferry {
namespace {

void check_number(int64_t number, int64_t size) {
  if (number >= 0 && number < size) return;
  fail(ErrorKind::invalid, "sample {} does not exist: there are {}, numbered from 0", number, size);
}

int64_t samples_of(const EpochResamplerOptions& options) {
  const auto& [size, epochs, samples, shuffle, seed] = options;
  if (epochs && samples)
    fail(ErrorKind::invalid, "give a number of epochs or of samples, not both");
  if (size < 1) fail(ErrorKind::invalid, "a dataset without elements cannot be sampled");
  if (epochs.value_or(1) < 1 || samples.value_or(1) < 1) {
    fail(ErrorKind::invalid, "{} {} are asked for, at least 1 has to be",
         epochs ? *epochs : *samples, epochs ? "epochs" : "samples");
  }
  if (samples) return *samples;
  int64_t all = 0;
  if (__builtin_mul_overflow(size, epochs.value_or(1), &all)) {
    fail(ErrorKind::invalid, "{} epochs of {} elements are more samples than can be numbered",
         *epochs, size);
  }
  return all;
}

}  // namespace

EpochResampler::EpochResampler(const EpochResamplerOptions& options)
    : elements_(options.size), samples_(samples_of(options)), shuffle_(options.shuffle) {
  if (!shuffle_ || elements_ == 1) return;
  if (elements_ > int64_t{1} << 32) {
    fail(ErrorKind::invalid, "a dataset of {} elements cannot be shuffled: 2^32 are the most",
         elements_);
  }
  const int64_t epochs = (samples_ - 1) / elements_ + 1;
  seeds_ = numpy_integers(options.seed, 0, std::numeric_limits<int32_t>::max(), epochs);
}

EpochIndex EpochResampler::at(int64_t number) const {
  check_number(number, samples_);
  const int64_t epoch = number / elements_, index = number % elements_;
  if (seeds_.empty()) return {epoch, index};
  return {epoch, permute(index, elements_, seeds_[static_cast<size_t>(epoch)])};
}

RandomResampler::RandomResampler(int64_t size, uint32_t seed, std::optional<int64_t> samples)
    : elements_(size), samples_(samples.value_or(size)), seed_(seed), random_(seed) {
  if (size < 1 || size >= int64_t{1} << 32) {
    fail(ErrorKind::invalid, "a dataset of {} elements cannot be drawn from: 1 to 2^32 - 1 are",
         size);
  }
  if (samples_ < 0) fail(ErrorKind::invalid, "{} samples are asked for", samples_);
}

int64_t RandomResampler::at(int64_t number) {
  check_number(number, samples_);
  if (last_number_ < 0 || number < last_number_) {
    random_ = PythonRandom(seed_);
    last_number_ = -1;
  }
  while (last_number_ < number) {
    last_ = random_.below(static_cast<uint32_t>(elements_));
    ++last_number_;
  }
  return last_;
}

}  // namespace ferry
