#include "ckpt/io/page_writer.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace ferry {
namespace {

// Written pages count as this process's own shared memory until they leave the mapping. Each time
// some do, all cores that run the process are interrupted: so not every few pages, and not later
// than when there are so many.
constexpr uint64_t kLongRunBytes = 2 << 20;
constexpr uint64_t kMostMappedBytes = 32 << 20;
constexpr uint64_t kStepBytes = 1 << 20;  // written at once

}  // namespace

MappedFile::MappedFile(std::byte* at, uint64_t length)
    : begin(at), bytes(length), process(::getpid()) {}

// In a forked process something else may be at the address.
MappedFile::~MappedFile() {
  if (::getpid() == process) ::munmap(begin, bytes);
}

std::shared_ptr<PageWriter> PageWriter::open() {
  // Faults by the kernel are not for this process to handle: it needs no privilege then.
  const long descriptor = ::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
  if (descriptor < 0) return nullptr;
  std::shared_ptr<PageWriter> writer(new PageWriter(static_cast<int>(descriptor)));
  struct uffdio_api handshake {};
  handshake.api = UFFD_API;
  if (::ioctl(static_cast<int>(descriptor), UFFDIO_API, &handshake) != 0) return nullptr;
  return writer;
}

PageWriter::PageWriter(int descriptor) : userfault_(descriptor), process_(::getpid()) {}

bool PageWriter::takes(int descriptor) {
  struct statfs file_system {};
  struct stat file {};
  // tmpfs reports the size of its pages as the best size of reads and writes.
  return ::fstatfs(descriptor, &file_system) == 0 &&
         static_cast<uint32_t>(file_system.f_type) == kTmpfs && ::fstat(descriptor, &file) == 0 &&
         static_cast<uint64_t>(file.st_blksize) == page_bytes();
}

uint64_t PageWriter::page_bytes() {
  static const auto bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

std::shared_ptr<const MappedFile> PageWriter::map(int descriptor) const {
  struct stat info {};
  if (process_ != ::getpid() || ::fstat(descriptor, &info) != 0) return nullptr;
  const uint64_t bytes = static_cast<uint64_t>(info.st_size) / page_bytes() * page_bytes();
  if (bytes == 0) return nullptr;
  void* begin = ::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, descriptor, 0);
  if (begin == MAP_FAILED) return nullptr;
  auto file = std::make_shared<const MappedFile>(static_cast<std::byte*>(begin), bytes);
  ::madvise(begin, bytes, MADV_DONTFORK);
  ::madvise(begin, bytes, MADV_DONTDUMP);
  struct uffdio_register range {};
  range.range = {reinterpret_cast<uint64_t>(begin), bytes};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  return ::ioctl(userfault_.get(), UFFDIO_REGISTER, &range) == 0 ? file : nullptr;
}

uint64_t PageWriter::write(const std::shared_ptr<const MappedFile>& file, uint64_t offset,
                           std::span<const std::byte> from) {
  if (file->process != ::getpid() || offset >= file->bytes) return 0;
  const uint64_t most =
      std::min<uint64_t>(from.size() / page_bytes() * page_bytes(), file->bytes - offset);
  uint64_t done = 0;
  while (done < most) {
    const uint64_t bytes = std::min(kStepBytes, most - done);
    const uint64_t copied = copy(file->begin + offset + done, from.subspan(done, bytes));
    if (copied > 0) note({file, offset + done, offset + done + copied});
    done += copied;
    if (copied < bytes) break;
  }
  return done;
}

uint64_t PageWriter::copy(std::byte* pages, std::span<const std::byte> from) const {
  uint64_t done = 0;
  while (done < from.size()) {
    struct uffdio_copy copy {};
    copy.dst = reinterpret_cast<uint64_t>(pages + done);
    copy.src = reinterpret_cast<uint64_t>(from.data() + done);
    copy.len = from.size() - done;
    copy.mode = UFFDIO_COPY_MODE_DONTWAKE;
    ::ioctl(userfault_.get(), UFFDIO_COPY, &copy);
    if (copy.copy <= 0) break;
    done += static_cast<uint64_t>(copy.copy);
  }
  return done;
}

// Keeps in mind what was written, and takes out of the mappings what is enough. The pages stay in
// the file.
void PageWriter::note(Run run) {
  for (const Run& enough : add(std::move(run))) {
    ::madvise(enough.file->begin + enough.begin, enough.bytes(), MADV_DONTNEED);
  }
}

// Returns the run if it is long by now, and those that did not grow for the longest time as long
// as all are too much.
std::list<PageWriter::Run> PageWriter::add(Run run) {
  const std::lock_guard lock(mutex_);
  // A partly written page may be between two runs that belong together.
  const auto near = std::find_if(runs_.begin(), runs_.end(), [&](const Run& other) {
    return other.file == run.file && run.begin <= other.end + page_bytes() &&
           other.begin <= run.end + page_bytes();
  });
  if (near != runs_.end()) {
    mapped_bytes_ -= near->bytes();
    run.begin = std::min(run.begin, near->begin);
    run.end = std::max(run.end, near->end);
    runs_.erase(near);
  }
  mapped_bytes_ += run.bytes();
  runs_.push_back(std::move(run));
  std::list<Run> enough;
  const auto take = [&](std::list<Run>::iterator at) {
    mapped_bytes_ -= at->bytes();
    enough.splice(enough.end(), runs_, at);
  };
  if (runs_.back().bytes() >= kLongRunBytes) take(std::prev(runs_.end()));
  while (mapped_bytes_ > kMostMappedBytes) take(runs_.begin());
  return enough;
}

void PageWriter::forget(const MappedFile& file) {
  const std::lock_guard lock(mutex_);
  std::erase_if(runs_, [&](const Run& run) {
    if (run.file.get() != &file) return false;
    mapped_bytes_ -= run.bytes();
    return true;
  });
}

}  // namespace ferry
