// All memory of the test program is pinned, the stack too: a GPU reads and writes it in place,
// so that tests of the processor's kernels test a GPU's unchanged.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

namespace {

constexpr size_t kArenaBytes = size_t{4} << 30, kStackBytes = size_t{64} << 20;

/// Blocks of powers of two, which are given out again and never back.
class Arena {
 public:
  /// Not before main(): compute-sanitizer wants to be there when CUDA begins.
  bool open() {
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, kArenaBytes, cudaHostAllocPortable) != cudaSuccess) return false;
    begin_ = static_cast<std::byte*>(memory);
    return true;
  }
  bool is_open() const { return begin_ != nullptr; }

  void* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto order = static_cast<size_t>(std::bit_width(bytes + sizeof(Block) - 1));
    if (order >= free_.size()) return nullptr;
    if (free_[order] != nullptr) {
      Block* const block = free_[order];
      free_[order] = block->next;
      return block + 1;
    }
    if (next_ + (size_t{1} << order) > kArenaBytes) return nullptr;
    auto* const block = reinterpret_cast<Block*>(begin_ + next_);
    next_ += size_t{1} << order;
    block->order = order;
    return block + 1;
  }
  void give(void* memory) {
    const std::lock_guard lock(mutex_);
    Block* const block = static_cast<Block*>(memory) - 1;
    block->next = free_[block->order];
    free_[block->order] = block;
  }
  bool has(const void* memory) const {
    const auto* p = static_cast<const std::byte*>(memory);
    return begin_ != nullptr && p >= begin_ && p < begin_ + kArenaBytes;
  }

 private:
  struct alignas(64) Block {
    size_t order;
    Block* next;
  };

  std::mutex mutex_;
  std::byte* begin_ = nullptr;
  size_t next_ = 0;
  std::array<Block*, 36> free_{};
};

Arena& arena() {
  static Arena one;
  return one;
}

// What is asked for until the arena is there comes from elsewhere.
void* take(size_t bytes) { return arena().is_open() ? arena().take(bytes) : std::malloc(bytes); }

void give(void* memory) {
  if (memory == nullptr) return;
  if (arena().has(memory)) return arena().give(memory);
  std::free(memory);
}

void* run_tests(void* result) {
  *static_cast<int*>(result) = RUN_ALL_TESTS();
  return nullptr;
}

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = take(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { give(memory); }
void operator delete(void* memory, size_t) noexcept { give(memory); }

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int result = 1;
  void* const stack = arena().open() ? take(kStackBytes) : nullptr;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (stack == nullptr || pthread_attr_setstack(&attributes, stack, kStackBytes) != 0) {
    std::fprintf(stderr, "no pinned memory for the tests: is there a GPU?\n");
    return 1;
  }
  pthread_t thread;
  if (pthread_create(&thread, &attributes, run_tests, &result) != 0) return 1;
  pthread_join(thread, nullptr);
  return result;
}
