#include "tools/data/streams/byte_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/io/posix_descriptor.h"
#include "tools/data/streams/decoder_input.h"

namespace ferry::tool {
namespace {

class FileStream final : public ByteStream {
 public:
  FileStream(std::shared_ptr<const ReadableFile> file, uint64_t begin, uint64_t end)
      : file_(std::move(file)), at_(begin), end_(end) {}

  size_t read_some(std::span<std::byte> into) override {
    const auto bytes = static_cast<size_t>(std::min<uint64_t>(into.size(), end_ - at_));
    file_->read(at_, into.first(bytes));
    at_ += bytes;
    return bytes;
  }

 private:
  std::shared_ptr<const ReadableFile> file_;
  uint64_t at_, end_;
};

class PipeStream final : public ByteStream {
 public:
  PipeStream(const std::string& path, const std::atomic<bool>* stop)
      : stop_(stop),
        path_(path == "-" ? "standard input" : path),
        descriptor_(path == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_.get() < 0) fail_errno("open", path_);
    // A FIFO opens at once so, and wait() waits for one who writes: an open() that waits itself can
    // be ended by no other thread.
    const int flags = ::fcntl(descriptor_.get(), F_GETFL);
    if (path != "-") ::fcntl(descriptor_.get(), F_SETFL, flags & ~O_NONBLOCK);
  }

  size_t read_some(std::span<std::byte> into) override {
    size_t filled = 0;
    while (filled < into.size()) {
      wait();
      const auto got = uninterrupted(
          [&] { return ::read(descriptor_.get(), into.data() + filled, into.size() - filled); });
      if (got < 0) fail_errno("read", path_);
      if (got == 0) break;
      filled += static_cast<size_t>(got);
    }
    return filled;
  }

 private:
  // Signals go to other threads: nothing else would end the wait for one who writes nothing.
  void wait() const {
    struct pollfd poll_for {
      descriptor_.get(), POLLIN, 0
    };
    while (true) {
      if (stop_ && *stop_) fail(ErrorKind::cancelled, "stopped");
      if (::poll(&poll_for, 1, kWaitMilliseconds) != 0) return;
    }
  }

  static constexpr int kWaitMilliseconds = 100;
  const std::atomic<bool>* stop_;
  std::string path_;
  Descriptor descriptor_;
};

class CountedStream final : public ByteStream {
 public:
  CountedStream(std::unique_ptr<ByteStream> stream, std::atomic<uint64_t>& count)
      : stream_(std::move(stream)), count_(count) {}

  size_t read_some(std::span<std::byte> into) override {
    const size_t bytes = stream_->read_some(into);
    count_ += bytes;
    return bytes;
  }

 private:
  std::unique_ptr<ByteStream> stream_;
  std::atomic<uint64_t>& count_;
};

// A stream whose first bytes were already read.
class PeekedStream final : public ByteStream {
 public:
  PeekedStream(std::span<const std::byte> first, std::unique_ptr<ByteStream> stream)
      : first_(first.begin(), first.end()), stream_(std::move(stream)) {}

  size_t read_some(std::span<std::byte> into) override {
    const size_t peeked = std::min(into.size(), first_.size() - given_);
    std::copy_n(first_.begin() + static_cast<ptrdiff_t>(given_), peeked, into.begin());
    given_ += peeked;
    return peeked + (peeked < into.size() ? stream_->read_some(into.subspan(peeked)) : 0);
  }

 private:
  std::vector<std::byte> first_;
  size_t given_ = 0;
  std::unique_ptr<ByteStream> stream_;
};

}  // namespace

std::unique_ptr<ByteStream> file_stream(std::shared_ptr<const ReadableFile> file, uint64_t begin,
                                        uint64_t end) {
  return std::make_unique<FileStream>(std::move(file), begin, end);
}

std::unique_ptr<ByteStream> pipe_stream(const std::string& path, const std::atomic<bool>* stop) {
  return std::make_unique<PipeStream>(path, stop);
}

std::unique_ptr<ByteStream> counted(std::unique_ptr<ByteStream> stream,
                                    std::atomic<uint64_t>& count) {
  return std::make_unique<CountedStream>(std::move(stream), count);
}

Compression compression_of(std::span<const std::byte> first, const std::string& name) {
  const std::string_view bytes(reinterpret_cast<const char*>(first.data()), first.size());
  if (bytes.starts_with("\x1f\x8b")) return Compression::gzip;
  if (bytes.starts_with(std::string_view("\xfd"
                                         "7zXZ\0",
                                         6)))
    return Compression::xz;
  if (bytes.starts_with("\x28\xb5\x2f\xfd")) return Compression::zstd;
  if (bytes.starts_with("BZh")) {
    fail(ErrorKind::unsupported,
         "{} is compressed by bzip2; give it through a pipe: bzcat {} | "
         "ferry data tokenize --input - ...",
         name, name);
  }
  return bytes.starts_with("PAR1") ? Compression::parquet : Compression::none;
}

std::unique_ptr<ByteStream> decompressed(std::unique_ptr<ByteStream> stream,
                                         const std::string& name) {
  std::array<std::byte, 6> buffer;
  const auto first = std::span<const std::byte>(buffer).first(stream->read_some(buffer));
  auto whole = std::make_unique<PeekedStream>(first, std::move(stream));
  switch (compression_of(first, name)) {
    case Compression::gzip:
      return gzip_stream(std::move(whole), name);
    case Compression::xz:
      return xz_stream(std::move(whole), name);
    case Compression::zstd:
      return zstd_stream(std::move(whole), name);
    case Compression::parquet:
      fail(ErrorKind::unsupported,
           "{} is a Parquet file in a pipe; name the file itself: its end is read first", name);
    default:
      return whole;
  }
}

void fail_short(const std::string& name, const char* format) {
  fail(ErrorKind::corrupt,
       "{} ends in the middle of what {} compressed; it is truncated: get it again", name, format);
}

void fail_trailing(const std::string& name, const char* format) {
  fail(ErrorKind::corrupt,
       "{}: something follows what {} compressed that it did not compress; remove it, or get the "
       "file again",
       name, format);
}

}  // namespace ferry::tool
