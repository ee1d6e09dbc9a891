// What today's compiler and libraries call and the C library of 2.27 does not have (libc_stubs.sh).
//
// All of it is hidden: nobody else calls it. Where the C library that the program finds at its start has the
// function, that one is called, if it does more than what is here.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#pragma GCC visibility push(hidden)

// libstdc++ (2.32): whether counters of references need no atomic operations. They always have them.
char __libc_single_threaded = 0;

// Until 2.33 these were functions inside each program, and called those of the library.
extern int __xstat(int version, const char* path, struct stat* status)
    __attribute__((visibility("default")));
extern int __lxstat(int version, const char* path, struct stat* status)
    __attribute__((visibility("default")));
extern int __fxstat(int version, int file, struct stat* status)
    __attribute__((visibility("default")));
extern int __fxstatat(int version, int folder, const char* path, struct stat* status, int flags)
    __attribute__((visibility("default")));
enum { kStatVersion = 1 };
int stat(const char* path, struct stat* status) { return __xstat(kStatVersion, path, status); }
int lstat(const char* path, struct stat* status) { return __lxstat(kStatVersion, path, status); }
int fstat(int file, struct stat* status) { return __fxstat(kStatVersion, file, status); }
int fstatat(int folder, const char* path, struct stat* status, int flags) {
  return __fxstatat(kStatVersion, folder, path, status, flags);
}
_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "files are large on this machine");
int stat64(const char* path, struct stat64* status) __attribute__((alias("stat")));
int lstat64(const char* path, struct stat64* status) __attribute__((alias("lstat")));
int fstat64(int file, struct stat64* status) __attribute__((alias("fstat")));
int fstatat64(int folder, const char* path, struct stat64* status, int flags)
    __attribute__((alias("fstatat")));

// fcntl with large files (2.28), which is fcntl where all files are large.
extern int old_fcntl(int file, int command, ...) __asm__("fcntl")
    __attribute__((visibility("default")));
int fcntl64(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return old_fcntl(file, command, argument);
}

// renameat2 (2.28), the kernel's.
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

// strtol and its like (2.38), which since C23 know "0b", too. Nothing here asks for it.
long __isoc23_strtol(const char* text, char** end, int base);
long long __isoc23_strtoll(const char* text, char** end, int base);
unsigned long __isoc23_strtoul(const char* text, char** end, int base);
unsigned long long __isoc23_strtoull(const char* text, char** end, int base);
extern long old_strtol(const char*, char**, int) __asm__("strtol")
    __attribute__((visibility("default")));
extern unsigned long old_strtoul(const char*, char**, int) __asm__("strtoul")
    __attribute__((visibility("default")));
long __isoc23_strtol(const char* text, char** end, int base) { return old_strtol(text, end, base); }
long long __isoc23_strtoll(const char* text, char** end, int base) {
  return old_strtol(text, end, base);
}
unsigned long __isoc23_strtoul(const char* text, char** end, int base) {
  return old_strtoul(text, end, base);
}
unsigned long long __isoc23_strtoull(const char* text, char** end, int base) {
  return old_strtoul(text, end, base);
}
_Static_assert(sizeof(long) == sizeof(long long), "long has 64 bits on this machine");

// libstdc++'s random_device (2.36).
uint32_t arc4random(void) {
  uint32_t value;
  if (getentropy(&value, sizeof value) != 0) abort();
  return value;
}

// Waiting by a clock that nobody sets (2.30). Without it, until the clock of the day says so: as libstdc++
// did before 2.30, it asks the right clock again when it wakes up.
typedef int (*ClockWait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  static _Atomic(ClockWait) found;
  ClockWait wait = found;
  if (!wait) {
    wait = (ClockWait)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
    found = wait;
  }
  if (wait) return wait(condition, mutex, clock, until);
  struct timespec now, day;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &day);
  struct timespec end = {day.tv_sec + until->tv_sec - now.tv_sec,
                         day.tv_nsec + until->tv_nsec - now.tv_nsec};
  while (end.tv_nsec < 0) end.tv_nsec += 1000000000, --end.tv_sec;
  while (end.tv_nsec >= 1000000000) end.tv_nsec -= 1000000000, ++end.tv_sec;
  return pthread_cond_timedwait(condition, mutex, &end);
}

// The unwinder of GCC 12 (2.35): which file an instruction is in, and where its table for unwinding is.
typedef int (*FindObject)(void*, struct dl_find_object*);
struct Search {
  uintptr_t address;
  struct dl_find_object* result;
};
static int find_in(struct dl_phdr_info* file, size_t size, void* search_pointer) {
  (void)size;
  const struct Search* search = search_pointer;
  const ElfW(Phdr)* table = NULL;
  uintptr_t begin = UINTPTR_MAX, end = 0;
  int is_inside = 0;
  for (int i = 0; i < file->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &file->dlpi_phdr[i];
    if (part->p_type == PT_GNU_EH_FRAME) table = part;
    if (part->p_type != PT_LOAD) continue;
    const uintptr_t from = file->dlpi_addr + part->p_vaddr;
    const uintptr_t to = from + part->p_memsz;
    if (search->address >= from && search->address < to) is_inside = 1;
    if (from < begin) begin = from;
    if (to > end) end = to;
  }
  if (!is_inside || !table) return is_inside ? -1 : 0;
  search->result->dlfo_flags = 0;
  search->result->dlfo_map_start = (void*)begin;
  search->result->dlfo_map_end = (void*)end;
  search->result->dlfo_link_map = NULL;
  search->result->dlfo_eh_frame = (void*)(file->dlpi_addr + table->p_vaddr);
  return 1;
}
int _dl_find_object(void* address, struct dl_find_object* result) {
  static _Atomic(FindObject) found;
  static _Atomic int searched;
  if (!searched) {
    found = (FindObject)dlsym(RTLD_DEFAULT, "_dl_find_object");
    searched = 1;
  }
  const FindObject find = found;
  if (find) return find(address, result);
  struct Search search = {(uintptr_t)address, result};
  return dl_iterate_phdr(find_in, &search) == 1 ? 0 : -1;
}

#pragma GCC visibility pop
