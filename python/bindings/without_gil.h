// Parts of a call that do without Python's lock (the GIL), and what happens to them at Python's
// end.
#pragma once

#include <nanobind/nanobind.h>

namespace ferry::python {

/// Lets other threads of Python run while it lives. In place of nb::gil_scoped_release: a daemon
/// thread that asks for the lock of an interpreter that has ended would be unwound by it, through
/// functions of C++ that cannot be. Here it waits for the end of the process.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

  /// True once the interpreter ends and this is none of the threads that it waits for: what the
  /// caller waits for is to be given up.
  static bool is_over() noexcept;

 private:
  PyThreadState* state_;
};

/// A thread that works without a caller who waits for it, while it lives: the interpreter's end
/// waits for it, for a while.
class LeftAlone {
 public:
  LeftAlone() noexcept;
  ~LeftAlone();
  LeftAlone(const LeftAlone&) = delete;
  LeftAlone& operator=(const LeftAlone&) = delete;
};

}  // namespace ferry::python
