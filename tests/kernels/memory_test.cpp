#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

TEST(Memory, IsZeroAlignedAndOutlivesTheKernels) {
  std::shared_ptr<void> memory;
  {
    const auto kernels = cpu_kernels(2);
    memory = kernels->allocate(1000);
    EXPECT_EQ(kernels->allocate(0), nullptr);
    EXPECT_THROW((void)kernels->allocate(size_t{1} << 62), std::bad_alloc);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % 64, 0U);
    EXPECT_EQ(std::string(static_cast<const char*>(memory.get()), 1000), std::string(1000, '\0'));
    kernels->upload("abc", memory.get(), 3);
    char back[3];
    kernels->download(memory.get(), back, 3);
    kernels->wait();
    EXPECT_EQ(std::string(back, 3), "abc");
  }
  std::memset(memory.get(), 1, 1000);
}

// Ranks are threads of one process: each has kernels of its own.
TEST(Kernels, OfSeveralThreadsComputeAtOnce) {
  const auto a = random_numbers(64 * 64, Type::f32, 1);
  const auto run = [&](Kernels& kernels) {
    Numbers c(64 * 64, Type::f32), norms = c;
    Numbers weight(std::vector<double>(64, 1), Type::f32);
    for (int time = 0; time < 50; ++time) {
      kernels.run(Matmul{.m = 64, .n = 64, .k = 64, .a = a, .b = a, .c = c});
      kernels.run(NormForward{.rows = 64, .width = 64, .x = c, .weight = weight, .y = norms});
    }
    return norms.bits();
  };
  const auto alone = run(*cpu_kernels(2));
  std::vector<std::string> results(4);
  std::vector<std::thread> ranks;
  for (auto& result : results) {
    ranks.emplace_back([&] { result = run(*cpu_kernels(2)); });
  }
  for (auto& rank : ranks) rank.join();
  for (const auto& result : results) EXPECT_TRUE(result == alone);
}

// Only the calling thread has not blocked the signal: if a thread of the team had, too, it could
// take it.
TEST(Kernels, TheirThreadsTakeNoSignals) {
  static std::atomic<bool> is_caller{false};
  static thread_local bool calls = false;
  calls = true;
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { is_caller = calls; };
  sigaction(SIGUSR1, &action, &before);
  const auto x = random_numbers(1 << 16, Type::f32, 1);
  Numbers y = x;
  const auto kernels = cpu_kernels(4);
  kernels->run(Scale{.count = 1 << 16, .x = x, .y = y, .factor = 2});
  sigset_t signal;
  sigemptyset(&signal);
  sigaddset(&signal, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signal, nullptr);
  kill(getpid(), SIGUSR1);  // waits for a thread that takes it
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(is_caller);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGUSR1), 1) << "another thread took it";
  pthread_sigmask(SIG_UNBLOCK, &signal, nullptr);
  EXPECT_TRUE(is_caller);
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace ferry::kernels
