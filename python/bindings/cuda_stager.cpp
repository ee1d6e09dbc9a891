#include "python/bindings/cuda_stager.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "ckpt/base/threads.h"

namespace ferry::python {
namespace {

constexpr int kHost = -1;

using Marks = std::vector<std::shared_ptr<void>>;

// Host memory that devices access directly. Many threads touch its pages before they are pinned:
// the driver would do so one by one.
class PinnedMemory {
 public:
  PinnedMemory(std::shared_ptr<CudaDevice> device, StagingMemory memory)
      : device_(std::move(device)), memory_(std::move(memory)) {
    constexpr size_t kPageBytes = 4096, kEachThread = size_t{64} << 20;
    const std::span<std::byte> bytes = memory_.bytes;
    const size_t parts = bytes.size() / kEachThread + 1;
    std::atomic<size_t> next{0};
    on_threads(thread_count(0), [&](int, const std::atomic<bool>& stop) {
      for (size_t part = next++; part < parts && !stop; part = next++) {
        const size_t end = std::min(bytes.size(), (part + 1) * kEachThread);
        for (size_t at = part * kEachThread; at < end; at += kPageBytes) bytes[at] = std::byte{};
      }
    });
    const CudaDevice::Current current(*device_);
    // What cannot be pinned the driver copies through memory of its own.
    is_pinned_ = !bytes.empty() && CudaDevice::pin(bytes.data(), bytes.size());
  }
  ~PinnedMemory() {
    if (!is_pinned_) return;
    try {
      const CudaDevice::Current current(*device_);
      CudaDevice::unpin(memory_.bytes.data());
    } catch (const std::exception&) {
      // The driver has ended before this.
    }
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::span<std::byte> bytes() const noexcept { return memory_.bytes; }

 private:
  std::shared_ptr<CudaDevice> device_;
  StagingMemory memory_;
  bool is_pinned_ = false;
};

}  // namespace

std::shared_ptr<CudaDevice> CudaStager::device(int index) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<CudaDevice>& device = devices_[index];
  if (!device) device = std::make_shared<CudaDevice>(index);
  return device;
}

// Null as long as no memory of a device was seen.
std::shared_ptr<CudaDevice> CudaStager::any_device() {
  const std::lock_guard lock(mutex_);
  return devices_.empty() ? nullptr : devices_.begin()->second;
}

void CudaStager::set_streams(std::set<DeviceStream> streams) {
  streams_ = std::move(streams);
  for (const DeviceStream& one : streams_) device(one.device);
}

std::optional<int> CudaStager::device_of(const void* memory) {
  const std::optional<int> index = cuda_device_of(memory);
  if (index) device(*index);
  return index;
}

uint64_t CudaStager::stream(int index) {
  return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(device(index)->stream()));
}

StagingMemory CudaStager::allocate(uint64_t bytes) {
  StagingMemory memory = host_->allocate(bytes);
  std::shared_ptr<CudaDevice> device = any_device();
  if (!device) return memory;
  const auto pinned = std::make_shared<PinnedMemory>(std::move(device), std::move(memory));
  return {pinned->bytes(), pinned};
}

std::shared_ptr<void> CudaStager::now() {
  if (streams_.empty()) return nullptr;
  const auto marks = std::make_shared<Marks>();
  for (const DeviceStream& one : streams_) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    void* const stream = reinterpret_cast<void*>(static_cast<uintptr_t>(one.stream));
    marks->push_back(CudaDevice::mark(device(one.device), stream));
  }
  return marks;
}

std::map<int, std::vector<StagingCopy>> CudaStager::by_device(std::span<const StagingCopy> copies) {
  std::map<int, std::vector<StagingCopy>> sorted;
  const bool has_devices = any_device() != nullptr;
  for (const StagingCopy& one : copies) {
    if (one.bytes == 0) continue;
    sorted[has_devices ? cuda_device_of(one.from).value_or(kHost) : kHost].push_back(one);
  }
  return sorted;
}

// Devices that copy. Whatever happens, memory that they write to is not let go before they have.
class CudaStager::Copying {
 public:
  Copying() = default;
  ~Copying() {
    try {
      finish();
    } catch (const std::exception&) {
      // Another error is on its way.
    }
  }
  Copying(const Copying&) = delete;
  Copying& operator=(const Copying&) = delete;

  void begin(const std::shared_ptr<CudaDevice>& device, const Marks* marks,
             const std::vector<StagingCopy>& copies) {
    busy_.emplace_back(device, std::unique_lock(device->mutex()));
    const CudaDevice::Current current(*device);
    if (marks != nullptr) {
      for (const std::shared_ptr<void>& mark : *marks) device->wait_for(mark);
    }
    for (const StagingCopy& copy : copies) device->queue_copy(copy.to, copy.from, copy.bytes);
  }

  void finish() {
    while (!busy_.empty()) {
      const auto one = std::move(busy_.back());
      busy_.pop_back();
      const CudaDevice::Current current(*one.first);
      one.first->synchronize();
    }
  }

 private:
  std::vector<std::pair<std::shared_ptr<CudaDevice>, std::unique_lock<std::mutex>>> busy_;
};

// The devices copy at the same time, and the host's memory is copied meanwhile.
void CudaStager::copy(std::span<const StagingCopy> copies, const std::shared_ptr<void>& moment) {
  const std::map<int, std::vector<StagingCopy>> sorted = by_device(copies);
  const auto marks = std::static_pointer_cast<Marks>(moment);
  Copying copying;
  for (const auto& [index, own] : sorted) {  // by rising index, so that two never wait for another
    if (index != kHost) copying.begin(device(index), marks.get(), own);
  }
  if (const auto host = sorted.find(kHost); host != sorted.end()) host_->copy(host->second, {});
  copying.finish();
}

}  // namespace ferry::python
