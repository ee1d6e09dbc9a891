// Faults at the door of the operating system: a test program that is linked with ferry_test_faults
// passes every call by which it changes or reads files through here, whichever library makes it,
// and can be killed at the n-th one, or to see it fail.
//
// What counts as an operation: open with O_CREAT, ftruncate, fallocate, pwrite, write to a regular
// file, fsync, fdatasync, mkdir, rename, link, unlink, rmdir, copy_file_range (in all their forms);
// UFFDIO_COPY (pages of files in memory); with `reads` also open without O_CREAT and pread. A
// pwrite of more than one byte counts twice: at the second one half of its bytes are written; so
// does UFFDIO_COPY.
//
// The plan belongs to the process: arm it in a forked child (crash.h does).
#pragma once

#include <cstdint>

namespace ferry::test {

enum class Fault : uint8_t {
  none,
  kill,         // SIGKILL before the operation
  error,        // fails with error_number
  short_count,  // pread, pwrite, copy_file_range, UFFDIO_COPY do half of it (a byte, a page at
                // least)
  shrink,     // a pread, with `reads`: the file is cut short first, in the middle of what it reads
  interrupt,  // fails once with EINTR (what can: not rename, unlink and the like)
};

struct FaultPlan {
  Fault fault = Fault::none;
  uint64_t at = 0;  // number of the operation, from 1; 0: every one (short counts, interrupts)
  int error_number = 0;
  bool stays = false;        // later operations fail too, but unlink and rmdir
  bool reads = false;        // reading counts too
  const char* shrinks = "";  // files with this in their path
  // What a file system cannot do:
  bool no_exchange = false;  // no RENAME_EXCHANGE nor RENAME_NOREPLACE, as on NFS
  bool no_locks = false;     // ENOLCK for locks
};

/// Takes effect for all threads of this process; the count begins anew.
void arm(const FaultPlan& plan);

/// Operations since arm().
uint64_t operations();

}  // namespace ferry::test
