#include "python/bindings/without_gil.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "python/bindings/bindings.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

constexpr std::chrono::seconds kMostWaiting{10};

// Belongs to the process, as the interpreter does.
struct Threads {
  std::atomic<int> outside{0};  // they have let go of the lock, and will ask for it
  std::atomic<int> alone{0};
  std::atomic<bool> is_ending{false};
  pthread_t ending{};  // the thread that ends the interpreter, once it does
};

Threads& threads() {
  static Threads all;
  return all;
}

[[noreturn]] void wait_for_the_end() {
  for (;;) ::pause();
}

// Python runs what is registered with atexit before it takes the lock away from daemon threads.
// Those that are about to ask for it are let through first; others do not ask any more.
void end() {
  Threads& all = threads();
  all.ending = ::pthread_self();
  all.is_ending = true;
  PyThreadState* const state = PyEval_SaveThread();
  const auto begin = std::chrono::steady_clock::now();
  while (all.outside + all.alone > 0 && std::chrono::steady_clock::now() - begin < kMostWaiting) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  PyEval_RestoreThread(state);
}

// The child of a fork has the one thread that forked, which holds the lock.
void forget_threads() {
  threads().outside = 0;
  threads().alone = 0;
}

}  // namespace

bool WithoutGil::is_over() noexcept {
  const Threads& all = threads();
  return all.is_ending && ::pthread_equal(all.ending, ::pthread_self()) == 0;
}

WithoutGil::WithoutGil() {
  if (is_over()) {
    PyEval_SaveThread();
    wait_for_the_end();
  }
  ++threads().outside;  // under the lock: end() sees it
  state_ = PyEval_SaveThread();
}

WithoutGil::~WithoutGil() {
  if (is_over()) {
    --threads().outside;
    wait_for_the_end();
  }
  PyEval_RestoreThread(state_);
  --threads().outside;
}

LeftAlone::LeftAlone() noexcept { ++threads().alone; }
LeftAlone::~LeftAlone() { --threads().alone; }

void bind_end(nb::module_&) {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) return;  // the process goes on
  static_cast<void>(::pthread_atfork(nullptr, nullptr, forget_threads));
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(end));
}

}  // namespace ferry::python
