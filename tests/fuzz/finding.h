// What a fuzz target says before it ends on a finding.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "ckpt/base/error.h"

namespace ferry::test {

[[noreturn]] inline void finding(const std::string& what) {
  std::fprintf(stderr, "finding: %s\n", what.c_str());
  std::abort();
}

/// Runs f(): true when it returns, false when it throws an Error that a file may cause. An internal
/// error and every other exception is a finding.
template <typename F>
bool succeeds(const std::string& step, const F& f) {
  try {
    f();
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) finding(step + ": internal error: " + error.what());
  } catch (const std::exception& error) {
    finding(step + ": exception: " + error.what());
  }
  return false;
}

}  // namespace ferry::test
