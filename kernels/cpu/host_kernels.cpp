#include "kernels/cpu/host_kernels.h"

#include <sys/mman.h>

#include <cstring>
#include <new>
#include <thread>

#include "kernels/cpu/targets/targets.h"

namespace ferry::kernels {

static constexpr std::align_val_t kAlignment{64};

Workspace::~Workspace() { ::operator delete(memory_, kAlignment); }

std::byte* Workspace::take(size_t bytes) {
  if (bytes > bytes_) {
    auto* larger = static_cast<std::byte*>(::operator new(bytes, kAlignment));
    ::operator delete(memory_, kAlignment);
    memory_ = larger;
    bytes_ = bytes;
  }
  return memory_;
}

HostKernels::HostKernels(int threads) : products_(threads) {}
HostKernels::~HostKernels() = default;

std::shared_ptr<void> HostKernels::allocate(size_t bytes) {
  if (bytes == 0) return {};
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  // Large pages save address translations. No effect where they are unavailable.
  madvise(memory, bytes, MADV_HUGEPAGE);
  return {memory, [bytes](void* pages) { munmap(pages, bytes); }};
}

void HostKernels::upload(const void* from, void* to, size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

void HostKernels::download(const void* from, void* to, size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

void HostKernels::wait() {}  // operations are synchronous

std::unique_ptr<Kernels> cpu_kernels(int threads) {
  if (threads <= 0) threads = static_cast<int>(std::thread::hardware_concurrency());
  return std::unique_ptr<Kernels>(
      targets_of_processor().front().new_kernels(threads < 1 ? 1 : threads));
}

}  // namespace ferry::kernels
