// A libcuda.so.1 without a GPU: what ferry's module calls, and what its test calls besides.
//
// Memory of a "device" cannot be touched by the program: its address is mapped without access, and
// the driver here has a second mapping of the same pages. Streams are threads, and events are as
// asynchronous as theirs.
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace {

constexpr int kInvalidValue = 1, kInvalidContext = 201, kInvalidHandle = 400, kDevices = 2;

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  long recorded = 0, done = 0;

  void finish(long number) {
    const std::lock_guard lock(mutex);
    done = number;
    changed.notify_all();
  }
  void wait(long number) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done >= number; });
  }
};

class Stream {
 public:
  explicit Stream(int of) : device(of) {
    std::thread([this] { work(); }).detach();
  }
  void add(std::function<void()> one) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(one));
    changed_.notify_all();
  }
  void synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty(); });
  }
  const int device;

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !queue_.empty(); });
      const auto one = queue_.front();
      lock.unlock();
      one();
      lock.lock();
      queue_.pop_front();
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
};

struct Memory {
  char* shadow = nullptr;
  size_t bytes = 0;
  int device = 0;
};

std::mutex mutex;
std::map<char*, Memory> memories;   // by their address on the device
std::map<char*, size_t> pinned;
std::set<void*> streams;
long copies = 0, pinnings = 0;
int failing_copies = 0;
thread_local std::vector<int> contexts;

const Memory* find(char* at, size_t* offset = nullptr) {
  const std::lock_guard lock(mutex);
  auto next = memories.upper_bound(at);
  if (next == memories.begin()) return nullptr;
  --next;
  if (at >= next->first + next->second.bytes) return nullptr;
  if (offset) *offset = static_cast<size_t>(at - next->first);
  return &next->second;
}
char* shadow(char* at) {
  size_t offset = 0;
  const Memory* memory = find(at, &offset);
  return memory ? memory->shadow + offset : nullptr;
}

Stream* default_stream(int device) {
  static std::map<int, Stream*> all;
  const std::lock_guard lock(mutex);
  Stream*& own = all[device];
  if (!own) own = new Stream(device);
  return own;
}
Stream* stream_of(void* handle) {
  if (contexts.empty()) return nullptr;
  if (handle == nullptr || handle == reinterpret_cast<void*>(1)) {
    return default_stream(contexts.back());
  }
  const std::lock_guard lock(mutex);
  return streams.count(handle) ? static_cast<Stream*>(handle) : nullptr;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuGetErrorName(int error, const char** name) {
  *name = error == kInvalidContext ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR_FAKE";
  return 0;
}
int cuGetErrorString(int, const char** text) { return *text = "a fault of the test", 0; }
int cuDeviceGet(int* device, int index) {
  *device = index;
  return index >= 0 && index < kDevices ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(static_cast<long>(device + 1));
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxPushCurrent_v2(void* context) {
  contexts.push_back(static_cast<int>(reinterpret_cast<long>(context)) - 1);
  return 0;
}
int cuCtxPopCurrent_v2(void**) {
  if (contexts.empty()) return kInvalidContext;
  contexts.pop_back();
  return 0;
}
int cuStreamCreate(void** stream, unsigned) {
  if (contexts.empty()) return kInvalidContext;
  *stream = new Stream(contexts.back());
  const std::lock_guard lock(mutex);
  streams.insert(*stream);
  return 0;
}
int cuStreamDestroy_v2(void* stream) {
  static_cast<Stream*>(stream)->synchronize();
  const std::lock_guard lock(mutex);
  return streams.erase(stream) ? 0 : kInvalidHandle;  // its thread stays
}
int cuStreamSynchronize(void* stream) {
  Stream* own = stream_of(stream);
  if (!own) return kInvalidHandle;
  own->synchronize();
  return 0;
}
int cuEventCreate(void** event, unsigned) {
  if (contexts.empty()) return kInvalidContext;
  *event = new std::shared_ptr<Event>(std::make_shared<Event>());
  return 0;
}
int cuEventDestroy_v2(void* event) {
  delete static_cast<std::shared_ptr<Event>*>(event);
  return 0;
}
int cuEventRecord(void* event, void* stream) {
  Stream* own = stream_of(stream);
  if (!own) return kInvalidHandle;
  auto state = *static_cast<std::shared_ptr<Event>*>(event);
  const long number = ++state->recorded;
  own->add([state, number] { state->finish(number); });
  return 0;
}
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  Stream* own = stream_of(stream);
  if (!own) return kInvalidHandle;
  auto state = *static_cast<std::shared_ptr<Event>*>(event);
  const long number = state->recorded;
  own->add([state, number] { state->wait(number); });
  return 0;
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t bytes, void* stream) {
  Stream* own = stream_of(stream);
  char* const at = reinterpret_cast<char*>(from);
  const Memory* memory = find(at);
  if (!own || !memory) return own ? kInvalidValue : kInvalidHandle;
  if (memory->device != own->device) return kInvalidValue;  // stricter than CUDA, which copies
  if (failing_copies > 0) return --failing_copies, 700;
  ++copies;
  char* const source = shadow(at);
  own->add([=] { std::memcpy(to, source, bytes); });
  return 0;
}
int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
  if (contexts.empty()) return kInvalidContext;
  const std::lock_guard lock(mutex);
  pinned[static_cast<char*>(memory)] = bytes;
  ++pinnings;
  return 0;
}
int cuMemHostUnregister(void* memory) {
  const std::lock_guard lock(mutex);
  return pinned.erase(static_cast<char*>(memory)) ? 0 : kInvalidValue;
}
int cuPointerGetAttribute(void* value, int attribute, unsigned long long pointer) {
  const Memory* memory = find(reinterpret_cast<char*>(pointer));
  if (!memory) return kInvalidValue;
  if (attribute == 2) *static_cast<unsigned*>(value) = 2;
  if (attribute == 9) *static_cast<int*>(value) = memory->device;
  return 0;
}

// For the test.

unsigned long long fake_allocate(int device, size_t bytes) {
  const int file = memfd_create("device", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return 0;
  void* const own = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  void* const given = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
  close(file);
  const std::lock_guard lock(mutex);
  memories[static_cast<char*>(given)] = {static_cast<char*>(own), bytes, device};
  return reinterpret_cast<unsigned long long>(given);
}
int cuMemAlloc_v2(unsigned long long* at, size_t bytes) {
  if (contexts.empty()) return kInvalidContext;
  *at = fake_allocate(contexts.back(), bytes);
  return *at ? 0 : 2;
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes,
                         void* stream) {
  Stream* own = stream_of(stream);
  if (!own) return kInvalidHandle;
  own->add([=] {
    std::memmove(shadow(reinterpret_cast<char*>(to)), shadow(reinterpret_cast<char*>(from)), bytes);
  });
  return 0;
}
int cuMemsetD32Async(unsigned long long to, unsigned value, size_t count, void* stream) {
  Stream* own = stream_of(stream);
  if (!own) return kInvalidHandle;
  own->add([=] {
    auto* const words = reinterpret_cast<unsigned*>(shadow(reinterpret_cast<char*>(to)));
    for (size_t i = 0; i < count; ++i) words[i] = value;
  });
  return 0;
}
void fake_write(unsigned long long to, const void* from, size_t bytes) {
  std::memcpy(shadow(reinterpret_cast<char*>(to)), from, bytes);
}
// Work on a stream that takes `milliseconds` and then fills the memory.
int fake_fill(int device, void* stream, unsigned long long at, int value, size_t bytes,
              int milliseconds) {
  contexts.push_back(device);
  Stream* const own = stream_of(stream);
  contexts.pop_back();
  if (!own) return kInvalidHandle;
  char* const to = shadow(reinterpret_cast<char*>(at));
  own->add([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    std::memset(to, value, bytes);
  });
  return 0;
}
long fake_copies() { return copies; }
long fake_pinnings() { return pinnings; }
long fake_pinned() {
  const std::lock_guard lock(mutex);
  return static_cast<long>(pinned.size());
}
void fake_fail_copies(int count) { failing_copies = count; }

}  // extern "C"
