// Communication of gradients and parameters between ranks.
#include <algorithm>

#include "trainer/optimizer/state_buffer.h"

namespace ferry {

using kernels::Array;

// A bucket without parameters, which only pads a buffer, has no users.
void ModelState::order_buckets() {
  for (const auto& buffer : buffers_) {
    for (Bucket& bucket : buffer->buckets) {
      bucket.unfinished = bucket.users.size();
      if (bucket.unfinished > 0) by_use_.push_back(&bucket);
    }
  }
  std::ranges::stable_sort(by_use_, [](const Bucket* a, const Bucket* b) { return *a < *b; });
}

// Gradients that no operation has set are zero.
void ModelState::complete_gradients(Bucket& bucket) {
  const Buffer& buffer = *bucket.buffer;
  for (const size_t i : bucket.parameters) {
    if (std::exchange(buffer.has_gradient[i], true)) continue;
    kernels_.run(kernels::Clear{.count = buffer.layout.parameters[i].elements,
                                .y = buffer.gradients.from(buffer.begin_of(i))});
  }
}

void ModelState::reduce(Bucket& bucket, Communicator& peers) {
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
  if (peers.size() == 1) return;
  const Array gradients = bucket.buffer->gradients.from(bucket.begin);
  if (options_.distributed_optimizer) {
    const Array own = gradients.from(bucket.buffer->owner * bucket.part);
    bucket.gradients = {&peers, peers.reduce_scatter(gradients, own, bucket.part)};
  } else {
    bucket.gradients = {&peers, peers.all_reduce(gradients, bucket.part)};
  }
}

// Gradients that are complete only at the very end, of what a forward pass reads first, have
// nothing to overlap with: they are left to reduce_gradients(), and so are those shared by the
// first and the last stage.
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
  // From the last layers on, the order in which they were completed.
  for (size_t i = by_use_.size(); i-- > 0;) {
    if (!by_use_[i]->is_reduced) reduce(*by_use_[i], *by_use_[i]->buffer->peers);
  }
  for (Bucket* const bucket : by_use_) {
    bucket->gradients.wait();
    bucket->is_reduced = false;
    bucket->unfinished = bucket->users.size();
  }
}

void ModelState::gather(Bucket& bucket) {
  Communicator& peers = *bucket.buffer->aside;
  if (!options_.distributed_optimizer || peers.size() == 1) return;
  const Array values = bucket.buffer->values.from(bucket.begin);
  const Array own = values.from(bucket.buffer->owner * bucket.part);
  bucket.values = {&peers, peers.all_gather(own, values, bucket.part)};
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
