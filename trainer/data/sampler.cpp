#include "trainer/data/sampler.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/checked.h"
#include "trainer/data/samples/random_order.h"

namespace ferry {

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  if (options.samples < 1 || options.micro_batch_size < 1 || options.data_ranks < 1) {
    fail(ErrorKind::invalid,
         "{} samples cannot be distributed to {} data-parallel ranks in micro-batches of {}",
         options.samples, options.data_ranks, options.micro_batch_size);
  }
  const int64_t block =
      checked_multiply(options.micro_batch_size, options.data_ranks, "samples of a micro-batch");
  if (options.order == SampleOrder::cyclic && options.samples < block) {
    fail(ErrorKind::invalid,
         "{} samples are fewer than the {} that {} data-parallel ranks take at a time",
         options.samples, block, options.data_ranks);
  }
}

int64_t Sampler::micro_batches_left(int64_t consumed) const noexcept {
  if (options_.order == SampleOrder::cyclic) return INT64_MAX;
  const int64_t left = std::max<int64_t>(options_.samples - consumed, 0);
  return left / block() + (options_.drop_last || left % block() == 0 ? 0 : 1);
}

void Sampler::take(int64_t consumed, int64_t number, int64_t rank, std::vector<int64_t>& indices) {
  if (consumed < 0 || number < 0 || rank < 0 || rank >= options_.data_ranks) {
    fail(ErrorKind::invalid, "rank {} of {} cannot take micro-batch {} after {} samples", rank,
         options_.data_ranks, number, consumed);
  }
  indices.clear();
  if (options_.order == SampleOrder::cyclic) {
    const int64_t before = checked_multiply(number, block(), "consumed samples");
    return take_cyclic(checked_add(consumed, before, "consumed samples"), rank, indices);
  }
  if (number >= micro_batches_left(consumed)) {
    fail(ErrorKind::exhausted,
         "no samples are left: {} of {} are consumed, and micro-batch {} takes {} more; train for "
         "fewer iterations, or on more data",
         consumed, options_.samples, number, block());
  }
  const int64_t begin = consumed + number * block() + rank * options_.micro_batch_size;
  const int64_t end = std::min(begin + options_.micro_batch_size, options_.samples);
  for (int64_t i = begin; i < end; ++i) indices.push_back(i);
}

void Sampler::take_cyclic(int64_t consumed, int64_t rank, std::vector<int64_t>& indices) {
  const int64_t usable = options_.samples / block() * block();  // the rest is unused
  const int64_t epoch = consumed / usable;
  const int64_t offset = consumed % usable;
  const int64_t size = options_.micro_batch_size;
  if (offset % block() != 0) {
    fail(ErrorKind::invalid,
         "{} consumed samples end {} into epoch {}, within a block of {} ({} data-parallel ranks, "
         "micro-batches of {}); resume with the same ranks and micro-batch size",
         consumed, offset, epoch, block(), options_.data_ranks, size);
  }
  const int64_t of_rank = usable / options_.data_ranks;
  if (epoch_ != epoch) {
    const int64_t shuffled = options_.data_sharding ? of_rank : options_.samples / size * size;
    epoch_order_ = torch_permutation(shuffled, static_cast<uint64_t>(epoch));
    epoch_ = epoch;
  }
  for (int64_t i = 0; i < size; ++i) {
    if (options_.data_sharding) {
      const int64_t place = offset / options_.data_ranks + i;
      indices.push_back(rank * of_rank + epoch_order_[static_cast<size_t>(place)]);
    } else {
      const int64_t place = offset + i * options_.data_ranks + rank;
      indices.push_back(epoch_order_[static_cast<size_t>(place)]);
    }
  }
}

void BatchAhead::drop() noexcept {
  if (reading_.valid()) reading_.wait();
  reading_ = {};
}

void BatchAhead::take(const Place& place, const Place& next, Batch& batch) {
  if (reading_.valid() && place_ == place) {
    reading_.get();
    std::swap(batch, batch_);
  } else {
    drop();
    read_(place, batch);
  }
  place_ = next;
  reading_ = std::async(std::launch::async, [this] { read_(place_, batch_); });
}

}  // namespace ferry
