#include "kernels/cuda/device/host_queue.h"

#include <algorithm>
#include <cstring>

namespace ferry::kernels::cuda {

namespace {

constexpr size_t kRingBytes = size_t{32} << 20, kPieceBytes = size_t{4} << 20;

const std::byte* at(const void* memory, size_t offset) {
  return static_cast<const std::byte*>(memory) + offset;
}

}  // namespace

HostQueue::~HostQueue() {
  (void)cudaSetDevice(device_.index());
  (void)cudaStreamSynchronize(device_.stream());
  for (const Piece& piece : pieces_) (void)cudaEventDestroy(piece.done);
  for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
  (void)cudaFreeHost(ring_);
}

void HostQueue::finish_first() {
  const Piece piece = pieces_.front();
  const cudaError_t status = cudaEventSynchronize(piece.done);
  device_.check_watch();  // if it throws, that is the cause of the device's error
  check(status, "waiting for the device");
  if (piece.to != nullptr) std::memcpy(piece.to, ring_ + piece.begin, piece.end - piece.begin);
  events_.push_back(piece.done);
  pieces_.pop_front();
}

/// Finds a free part of the ring.
size_t HostQueue::reserve(size_t bytes) {
  if (ring_ == nullptr) {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, kRingBytes), "taking pinned memory");
    ring_ = static_cast<std::byte*>(memory);
  }
  if (next_ + bytes > kRingBytes) next_ = 0;
  const size_t begin = next_, end = begin + bytes;
  const auto overlaps = [&](const Piece& piece) { return piece.begin < end && begin < piece.end; };
  while (std::any_of(pieces_.begin(), pieces_.end(), overlaps)) finish_first();
  next_ = (end + 63) / 64 * 64;
  return begin;
}

void HostQueue::queued(size_t begin, size_t bytes, void* to) {
  Piece piece{.begin = begin, .end = begin + bytes, .to = to};
  if (events_.empty()) {
    check(cudaEventCreateWithFlags(&piece.done, cudaEventDisableTiming), "making an event");
  } else {
    piece.done = events_.back();
    events_.pop_back();
  }
  pieces_.push_back(piece);
  check(cudaEventRecord(piece.done, device_.stream()), "recording an event");
}

void HostQueue::upload(const void* from, void* to, size_t bytes) {
  device_.enter();
  for (size_t done = 0; done < bytes; done += kPieceBytes) {
    const size_t part = std::min(kPieceBytes, bytes - done), begin = reserve(part);
    std::memcpy(ring_ + begin, at(from, done), part);
    check(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, ring_ + begin, part,
                          cudaMemcpyHostToDevice, device_.stream()),
          "copying to the device");
    queued(begin, part, nullptr);
  }
}

void HostQueue::download(const void* from, void* to, size_t bytes) {
  device_.enter();
  for (size_t done = 0; done < bytes; done += kPieceBytes) {
    const size_t part = std::min(kPieceBytes, bytes - done), begin = reserve(part);
    check(cudaMemcpyAsync(ring_ + begin, at(from, done), part, cudaMemcpyDeviceToHost,
                          device_.stream()),
          "copying from the device");
    queued(begin, part, static_cast<std::byte*>(to) + done);
  }
}

void HostQueue::wait() {
  device_.enter();
  while (!pieces_.empty()) finish_first();
  const cudaError_t status = cudaStreamSynchronize(device_.stream());
  device_.check_watch();
  check(status, "computing");
}

}  // namespace ferry::kernels::cuda
