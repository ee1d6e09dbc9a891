// Operations of the library that a caller in Python can watch and interrupt.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>

#include "ckpt/engine/engine.h"
#include "ckpt/group/group.h"

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
auto interruptibly(nanobind::handle progress, EngineOptions& options, const Work& work,
                   const std::function<void()>& on_cancel = {}) {
  using Result = std::invoke_result_t<const Work&>;
  if constexpr (std::is_void_v<Result>) {
    run_interruptibly(progress, options, work, on_cancel);
  } else {
    std::optional<Result> result;
    run_interruptibly(
        progress, options, [&] { result.emplace(work()); }, on_cancel);
    return std::move(*result);
  }
}

/// What cancels the work of ranks that wait for each other: the others get an error.
std::function<void()> abort_of(std::shared_ptr<Group> group);

/// For work that cannot be cancelled and changes nothing: calls it on a thread of its own and
/// without the GIL, and returns when it has, or raises at once what a handler of a signal raises.
/// Then the thread goes on alone: `work` owns all that it uses.
void run_abandonably(std::function<void()> work);

/// The same, returning work(), which is copied.
template <typename Work>
auto abandonably(const Work& work) {
  const auto result = std::make_shared<std::optional<std::invoke_result_t<const Work&>>>();
  run_abandonably([result, work] { result->emplace(work()); });
  return std::move(**result);
}

}  // namespace ferry::python
