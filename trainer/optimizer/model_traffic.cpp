// What ranks tell each other of gradients and parameters.
#include <algorithm>

#include "trainer/optimizer/state_buffer.h"

namespace ferry {

using kernels::Array;

// A bucket without parameters, which only fills a buffer up, is nobody's.
void ModelState::order_buckets() {
  for (const auto& buffer : buffers_) {
    for (Bucket& bucket : buffer->buckets) {
      bucket.unfinished = bucket.users.size();
      if (bucket.unfinished > 0) by_use_.push_back(&bucket);
    }
  }
  std::ranges::stable_sort(by_use_, [](const Bucket* a, const Bucket* b) { return *a < *b; });
}

// What no operation has set is zero.
void ModelState::complete_gradients(Bucket& bucket) {
  const Buffer& buffer = *bucket.buffer;
  for (const size_t i : bucket.parameters) {
    if (std::exchange(buffer.has_gradient[i], true)) continue;
    kernels_.run(kernels::Clear{.count = buffer.layout.parameters[i].elements,
                                .y = buffer.gradients.from(buffer.begin_of(i))});
  }
}

void ModelState::reduce(Bucket& bucket, Communicator& fellows) {
  complete_gradients(bucket);
  const auto sum = [](Communicator& ranks, const std::vector<Parameter>& parameters) {
    if (ranks.size() == 1) return;
    for (const Parameter& parameter : parameters) {
      ranks.wait(ranks.all_reduce(parameter.gradient, parameter.elements));
    }
  };
  sum(grid_.tensor(), bucket.partial);
  sum(grid_.embedding(), bucket.tied);
  bucket.is_reduced = true;
  if (fellows.size() == 1) return;
  const Array gradients = bucket.buffer->gradients.from(bucket.begin);
  if (options_.distributed_optimizer) {
    const Array own = gradients.from(bucket.buffer->owner * bucket.part);
    bucket.gradients = {&fellows, fellows.reduce_scatter(gradients, own, bucket.part)};
  } else {
    bucket.gradients = {&fellows, fellows.all_reduce(gradients, bucket.part)};
  }
}

// What is complete at the very end, as the first that a forward pass reads, has nothing to go
// beside: it is left to reduce_gradients(), and so is what the first and the last stage do
// together.
void ModelState::after_backward(int64_t chunk, int64_t part) {
  for (Bucket* const bucket : by_use_) {
    const bool is_tied = !bucket->tied.empty() && grid_.embedding().size() > 1;
    const bool is_last = *bucket->users.begin() == *by_use_.front()->users.begin();
    if (bucket->buffer->aside->size() == 1 || is_last || is_tied) continue;
    if (!bucket->users.contains({chunk, part})) continue;
    if (--bucket->unfinished == 0) reduce(*bucket, *bucket->buffer->aside);
  }
}

void ModelState::reduce_gradients() {
  // From the last layers' on: the order in which they were complete.
  for (size_t i = by_use_.size(); i-- > 0;) {
    if (!by_use_[i]->is_reduced) reduce(*by_use_[i], *by_use_[i]->buffer->fellows);
  }
  for (Bucket* const bucket : by_use_) {
    bucket->gradients.wait();
    bucket->is_reduced = false;
    bucket->unfinished = bucket->users.size();
  }
}

void ModelState::gather(Bucket& bucket) {
  Communicator& fellows = *bucket.buffer->aside;
  if (!options_.distributed_optimizer || fellows.size() == 1) return;
  const Array values = bucket.buffer->values.from(bucket.begin);
  const Array own = values.from(bucket.buffer->owner * bucket.part);
  bucket.values = {&fellows, fellows.all_gather(own, values, bucket.part)};
  ++coming_;
}

std::span<const StateRun> ModelState::runs_of(size_t bucket) const {
  const Bucket& one = *by_use_[bucket];
  return std::span(runs_).subspan(one.first_run, one.end_run - one.first_run);
}

void ModelState::update_parameters(const std::function<void(size_t bucket)>& update) {
  wait_for_parameters();
  for (size_t bucket = 0; bucket < by_use_.size(); ++bucket) {
    update(bucket);
    gather(*by_use_[bucket]);
  }
}

void ModelState::wait_for_parameters() {
  for (Bucket* const bucket : by_use_) wait_for(*bucket);
}

void ModelState::wait_for(Bucket& bucket) {
  if (bucket.values.ranks == nullptr) return;
  bucket.values.wait();
  --coming_;
}

void ModelState::before_forward(int64_t chunk, int64_t part) {
  if (coming_ == 0) return;
  for (Bucket* const bucket : by_use_) {
    if (bucket->users.contains({chunk, part})) wait_for(*bucket);
  }
}

}  // namespace ferry
