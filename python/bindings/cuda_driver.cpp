#include "python/bindings/cuda_driver.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "ckpt/base/error.h"

namespace ferry::python {

// Source: cuda.h of CUDA 12 and 13, whose ABI has been the same since CUDA 4 for all of these.
struct CudaDriver {
  using Result = int;  // 0: success
  using Pointer = unsigned long long;

  Result (*init)(unsigned) = nullptr;
  Result (*get_error_name)(Result, const char**) = nullptr;
  Result (*get_error_string)(Result, const char**) = nullptr;
  Result (*device_get)(int*, int) = nullptr;
  Result (*context_retain)(void**, int) = nullptr;
  Result (*context_release)(int) = nullptr;
  Result (*context_push)(void*) = nullptr;
  Result (*context_pop)(void**) = nullptr;
  Result (*stream_create)(void**, unsigned) = nullptr;
  Result (*stream_destroy)(void*) = nullptr;
  Result (*stream_synchronize)(void*) = nullptr;
  Result (*stream_wait_event)(void*, void*, unsigned) = nullptr;
  Result (*event_create)(void**, unsigned) = nullptr;
  Result (*event_destroy)(void*) = nullptr;
  Result (*event_record)(void*, void*) = nullptr;
  Result (*copy_to_host)(void*, Pointer, size_t, void*) = nullptr;
  Result (*host_register)(void*, size_t, unsigned) = nullptr;
  Result (*host_unregister)(void*) = nullptr;
  Result (*pointer_attribute)(void*, int, Pointer) = nullptr;

  void check(Result result, const char* what) const {
    if (result == 0) return;
    const char *name = nullptr, *text = nullptr;
    get_error_name(result, &name);
    get_error_string(result, &text);
    const auto kind = result == kOutOfMemory ? ErrorKind::exhausted : ErrorKind::io;
    fail(kind, "CUDA: {}: {} ({})", what, text == nullptr ? "unknown error" : text,
         name == nullptr ? std::to_string(result) : name);
  }

  static constexpr Result kOutOfMemory = 2;
};

namespace {

constexpr unsigned kNonBlockingStream = 1;   // CU_STREAM_NON_BLOCKING
constexpr unsigned kEventWithoutTiming = 2;  // CU_EVENT_DISABLE_TIMING
constexpr unsigned kPortable = 1;            // CU_MEMHOSTREGISTER_PORTABLE
constexpr int kMemoryType = 2;               // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int kDeviceOrdinal = 9;            // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
constexpr unsigned kOfDevice = 2;            // CU_MEMORYTYPE_DEVICE

CudaDriver load() {
  constexpr const char* kLibrary = "libcuda.so.1";
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fail(ErrorKind::unsupported, "memory of a CUDA device cannot be read without its driver: {}",
         ::dlerror());
  }
  CudaDriver driver;
  const auto find = [&](auto& function, const char* name) {
    void* const found = ::dlsym(library, name);
    if (found == nullptr) fail(ErrorKind::unsupported, "{} has no {}", kLibrary, name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find(driver.init, "cuInit");
  find(driver.get_error_name, "cuGetErrorName");
  find(driver.get_error_string, "cuGetErrorString");
  find(driver.device_get, "cuDeviceGet");
  find(driver.context_retain, "cuDevicePrimaryCtxRetain");
  find(driver.context_release, "cuDevicePrimaryCtxRelease_v2");
  find(driver.context_push, "cuCtxPushCurrent_v2");
  find(driver.context_pop, "cuCtxPopCurrent_v2");
  find(driver.stream_create, "cuStreamCreate");
  find(driver.stream_destroy, "cuStreamDestroy_v2");
  find(driver.stream_synchronize, "cuStreamSynchronize");
  find(driver.stream_wait_event, "cuStreamWaitEvent");
  find(driver.event_create, "cuEventCreate");
  find(driver.event_destroy, "cuEventDestroy_v2");
  find(driver.event_record, "cuEventRecord");
  find(driver.copy_to_host, "cuMemcpyDtoHAsync_v2");
  find(driver.host_register, "cuMemHostRegister_v2");
  find(driver.host_unregister, "cuMemHostUnregister");
  find(driver.pointer_attribute, "cuPointerGetAttribute");
  driver.check(driver.init(0), "starting the driver");
  return driver;
}

CudaDriver::Pointer address(const void* memory) {
  return static_cast<CudaDriver::Pointer>(reinterpret_cast<uintptr_t>(memory));
}

}  // namespace

const CudaDriver& cuda_driver() {
  static const CudaDriver driver = load();
  return driver;
}

std::optional<int> cuda_device_of(const void* memory) {
  const CudaDriver& driver = cuda_driver();
  unsigned type = 0;
  // Memory that the driver has not seen is an invalid value to it.
  if (driver.pointer_attribute(&type, kMemoryType, address(memory)) != 0 || type != kOfDevice) {
    return std::nullopt;
  }
  int device = 0;
  driver.check(driver.pointer_attribute(&device, kDeviceOrdinal, address(memory)),
               "finding the device of a tensor");
  return device;
}

CudaDevice::CudaDevice(int index) : index_(index) {
  const CudaDriver& driver = cuda_driver();
  int device = 0;
  driver.check(driver.device_get(&device, index), "opening a device");
  driver.check(driver.context_retain(&context_, device), "opening a device");
  const Current current(*this);
  driver.check(driver.stream_create(&stream_, kNonBlockingStream), "making a stream");
}

CudaDevice::~CudaDevice() {
  const CudaDriver& driver = cuda_driver();
  (void)driver.stream_destroy(stream_);
  (void)driver.context_release(index_);
}

CudaDevice::Current::Current(const CudaDevice& device) {
  const CudaDriver& driver = cuda_driver();
  driver.check(driver.context_push(device.context_), "entering a device");
}

CudaDevice::Current::~Current() {
  void* context = nullptr;
  (void)cuda_driver().context_pop(&context);
}

std::shared_ptr<void> CudaDevice::mark(const std::shared_ptr<CudaDevice>& device, void* stream) {
  const CudaDriver& driver = cuda_driver();
  const Current current(*device);
  void* event = nullptr;
  driver.check(driver.event_create(&event, kEventWithoutTiming), "making an event");
  const std::shared_ptr<void> made(
      event, [device](void* gone) { (void)cuda_driver().event_destroy(gone); });
  driver.check(driver.event_record(event, stream), "marking the work on a device");
  return made;
}

void CudaDevice::wait_for(const std::shared_ptr<void>& mark) const {
  const CudaDriver& driver = cuda_driver();
  driver.check(driver.stream_wait_event(stream_, mark.get(), 0),
               "waiting for the work on a device");
}

void CudaDevice::queue_copy(void* to, const void* from, uint64_t bytes) const {
  const CudaDriver& driver = cuda_driver();
  driver.check(driver.copy_to_host(to, address(from), bytes, stream_), "copying from a device");
}

void CudaDevice::synchronize() const {
  const CudaDriver& driver = cuda_driver();
  driver.check(driver.stream_synchronize(stream_), "copying from a device");
}

bool CudaDevice::pin(void* memory, uint64_t bytes) noexcept {
  return cuda_driver().host_register(memory, bytes, kPortable) == 0;
}

void CudaDevice::unpin(void* memory) noexcept { (void)cuda_driver().host_unregister(memory); }

}  // namespace ferry::python
