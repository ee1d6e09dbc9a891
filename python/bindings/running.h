// Operations of the library that a caller in Python can watch and interrupt.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>
#include <type_traits>

#include "ckpt/engine/engine.h"

namespace ferry::python {

/// Calls `work` on a thread of its own and without the GIL, with `options` that report progress and
/// can be cancelled, and returns when it has. Meanwhile this thread, which holds the GIL when it
/// calls, gives progress(done, total), in bytes, to Python (unless it is None) and lets Python
/// handle signals. What either raises cancels the work and is raised once that has ended; Ctrl-C is
/// KeyboardInterrupt. `on_cancel`, if given, is called once when it cancels: for work that waits
/// for what `options.cancel` does not end.
void run_interruptibly(nanobind::handle progress, EngineOptions& options,
                       const std::function<void()>& work,
                       const std::function<void()>& on_cancel = {});

/// The same, returning work().
template <typename Work>
auto interruptibly(nanobind::handle progress, EngineOptions& options, const Work& work) {
  using Result = std::invoke_result_t<const Work&>;
  if constexpr (std::is_void_v<Result>) {
    run_interruptibly(progress, options, work);
  } else {
    std::optional<Result> result;
    run_interruptibly(progress, options, [&] { result.emplace(work()); });
    return std::move(*result);
  }
}

}  // namespace ferry::python
