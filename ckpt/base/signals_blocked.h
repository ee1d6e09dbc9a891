// Threads of a library in a program whose signals are its own.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace ferry {

/// While one lives, threads that are started take no signals: those are the caller's. What a thread
/// itself causes stays: nobody else can take that.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t others;
    sigfillset(&others);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&others, own);
    pthread_sigmask(SIG_SETMASK, &others, &former_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t former_{};
};

}  // namespace ferry
