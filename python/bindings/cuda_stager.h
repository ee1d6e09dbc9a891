// Copies memory of CUDA devices aside for saves, while the devices go on.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "ckpt/memory/region.h"
#include "python/bindings/cuda_driver.h"

namespace ferry::python {

/// A stream of the caller's on a device, as the driver's handle: 0 or 1 is the default stream.
struct DeviceStream {
  int device = 0;
  uint64_t stream = 0;
  auto operator<=>(const DeviceStream&) const = default;
};

/// For memory of the host and of any CUDA devices, which may be mixed. The driver is loaded when
/// memory of a device first appears, so that programs need neither CUDA nor a GPU; staging memory
/// that is allocated from then on is pinned, as far as the system lets it.
class CudaStager final : public Stager {
 public:
  explicit CudaStager(int threads) : host_(host_stager(threads)) {}

  /// The streams that now() marks from here on. Called by the thread that calls that.
  void set_streams(std::set<DeviceStream> streams);

  /// The device whose memory that is; nothing for the host's. unsupported without a driver.
  std::optional<int> device_of(const void* memory);
  /// That copies go through, as the driver's handle.
  uint64_t stream(int device);

  StagingMemory allocate(uint64_t bytes) override;
  std::shared_ptr<void> now() override;
  void copy(std::span<const StagingCopy> copies, const std::shared_ptr<void>& moment) override;

 private:
  class Copying;

  std::shared_ptr<CudaDevice> device(int index);
  std::shared_ptr<CudaDevice> any_device();
  std::map<int, std::vector<StagingCopy>> by_device(std::span<const StagingCopy> copies);

  const std::shared_ptr<Stager> host_;
  std::set<DeviceStream> streams_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<CudaDevice>> devices_;  // guarded by mutex_
};

}  // namespace ferry::python
