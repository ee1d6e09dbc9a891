// Operations of the library that a caller in Python can watch and interrupt.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <functional>
#include <optional>
#include <type_traits>

#include "ckpt/engine/engine.h"

namespace ferry::python {

/// Calls `work` on a thread of its own and without the GIL, with `options` that report progress and
/// can be cancelled, and returns when it has. Meanwhile this thread, which holds the GIL when it
/// calls, gives progress(done, total), in bytes, to Python (unless it is None) and lets Python
/// handle signals. What either raises cancels the work and is raised once that has ended; Ctrl-C is
/// KeyboardInterrupt.
void run_interruptibly(nanobind::handle progress, EngineOptions& options,
                       const std::function<void()>& work);

/// The same for work that `cancel` stops, which is set when it is to, and that reports nothing.
void run_interruptibly(std::atomic<bool>& cancel, const std::function<void()>& work);

/// The same, returning work(), for what is watched by either of the functions above.
template <typename Run, typename Work>
auto with_result(const Run& run, const Work& work) {
  using Result = std::invoke_result_t<const Work&>;
  if constexpr (std::is_void_v<Result>) {
    run(work);
  } else {
    std::optional<Result> result;
    run([&] { result.emplace(work()); });
    return std::move(*result);
  }
}
template <typename Work>
auto interruptibly(nanobind::handle progress, EngineOptions& options, const Work& work) {
  return with_result([&](const auto& task) { run_interruptibly(progress, options, task); }, work);
}
template <typename Work>
auto interruptibly(std::atomic<bool>& cancel, const Work& work) {
  return with_result([&](const auto& task) { run_interruptibly(cancel, task); }, work);
}

}  // namespace ferry::python
