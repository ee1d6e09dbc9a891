#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "trainer/communicator/nccl/nccl_words.h"
#include "trainer/communicator/nccl/nccl_world.h"

// How NCCL operations end: normally, or because a rank failed.
namespace ferry {

// Queued operations still use streams and buffers. A rank that is being unwound no longer needs
// them, and other ranks may never join them.
NcclWorld::~NcclWorld() {
  (void)cudaSetDevice(device().index());
  if (std::uncaught_exceptions() > exceptions_) give_up();
  std::vector<cudaStream_t> streams = send_streams_;
  for (const NcclLane* lane : {&lane_, &aside_}) {
    for (cudaStream_t stream : {lane->stream, lane->sum_stream}) {
      if (stream != nullptr) streams.push_back(stream);
    }
  }
  for (cudaStream_t stream : streams) (void)cudaStreamSynchronize(stream);
  // A rank that fails later need not wait for this one.
  if (drained_ && !std::exchange(has_drained_, true)) ++*drained_;
  device().set_watch(nullptr);
  if (watcher_.joinable()) {
    {
      const std::lock_guard lock(watch_mutex_);
      is_over_ = true;
    }
    watch_changed_.notify_all();
    watcher_.join();
  }
  if (!is_given_up_) {
    for (ncclComm_t communicator : communicators_) {
      if (communicator != nullptr) (void)ncclCommDestroy(communicator);
    }
  }
  for (const auto& [ticket, event] : tickets_) (void)cudaEventDestroy(event);
  for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
  for (cudaEvent_t event :
       {order_, lane_.summed[0], lane_.summed[1], aside_.summed[0], aside_.summed[1]}) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  for (cudaStream_t stream : streams) (void)cudaStreamDestroy(stream);
}

// Runs on its own thread, because the rank's thread may be waiting inside CUDA.
void NcclWorld::watch() {
  constexpr std::chrono::milliseconds kLook{50};
  std::unique_lock lock(watch_mutex_);
  while (!watch_changed_.wait_for(lock, kLook, [&] { return is_over_; })) {
    if (is_given_up_) return;
    if (has_failed()) return give_up();
  }
}

bool NcclWorld::has_failed() noexcept {
  try {
    group_->check();
    const std::unique_lock lock(calls_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    for (ncclComm_t communicator : communicators_) {
      ncclResult_t state = ncclSuccess;
      if (communicator == nullptr) continue;
      const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state);
      if (asked != ncclSuccess) state = asked;
      if (state == ncclSuccess || state == ncclInProgress) continue;
      group_->abort(
          Error(ErrorKind::io, fmt::format("NCCL: {}; {}", nccl_words(state), kNcclHint)));
      return true;
    }
    return false;
  } catch (...) {
    return true;
  }
}

// One thread for each communicator: freeing one's memory waits for what the others still have on
// the device, which goes on until they are aborted, too.
void NcclWorld::give_up() noexcept {
  if (is_given_up_.exchange(true)) return;
  // The abort also ends a call that hangs.
  const bool is_locked = calls_.try_lock_for(std::chrono::seconds(1));
  std::vector<std::thread> threads;
  try {
    for (ncclComm_t communicator : communicators_) {
      if (communicator == nullptr) continue;
      threads.emplace_back([this, communicator] {
        (void)cudaSetDevice(device().index());
        (void)ncclCommAbort(communicator);
      });
    }
  } catch (const std::exception&) {
    // No threads left: the rest hangs until the process ends.
  }
  for (std::thread& thread : threads) thread.join();
  if (is_locked) calls_.unlock();
}

void NcclWorld::drain() noexcept {
  constexpr std::chrono::seconds kPatience{10};
  if (!drained_ || std::exchange(has_drained_, true)) return;
  give_up();
  (void)cudaSetDevice(device().index());
  (void)cudaDeviceSynchronize();
  ++*drained_;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (*drained_ < group_->size() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace ferry
