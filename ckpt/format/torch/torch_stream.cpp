#include "ckpt/format/torch/torch_stream.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/pickle.h"
#include "ckpt/format/torch/archive/torch_archive.h"
#include "ckpt/format/torch/archive/zip_directory.h"

namespace ferry {
namespace {

// What precedes the storage of one tensor is less than a kilobyte.
constexpr uint64_t kMostRecordBytes = 1 << 20;
constexpr size_t kDescriptorBytes = 16;  // signature, CRC, length, length
constexpr std::string_view kDescriptorSignature = "PK\7\10";
constexpr std::string_view kLocalSignature = "PK\3\4";

class StreamedArchive {
 public:
  StreamedArchive(ZstdStream& stream, const std::string& what) : stream_(stream), what_(what) {}

  StreamedTensor find() {
    std::optional<StoredTensor> tensor;
    while (true) {
      if (stream_.position() > kMostRecordBytes) corrupt("no tensor within its first MiB");
      const auto header = ZipLocalHeader::parse(take(ZipLocalHeader::kFixedBytes), what_);
      const std::string name = take(header.name_bytes);
      take(header.extra_bytes);
      const std::string record = name.substr(std::min(name.find('/'), name.size() - 1) + 1);
      if (record.starts_with("data/")) {
        if (!tensor) corrupt("a storage comes before the tensor that uses it");
        if (record != "data/" + tensor->storage_key) corrupt("it holds more than one storage");
        return {std::move(*tensor), stream_.position() - lookahead_.size()};
      }
      const std::string content = header.has_lengths ? take_known(header.length) : take_described();
      if (record == "data.pkl") tensor = parse_tensor(content);
      if (record == "byteorder" && content == "big") {
        fail(ErrorKind::unsupported, "{}: written on a big-endian machine", what_);
      }
    }
  }

 private:
  [[noreturn]] void corrupt(std::string_view problem) {
    fail(ErrorKind::corrupt, "{}: the zstd stream is not the torch.save archive of one tensor: {}",
         what_, problem);
  }

  StoredTensor parse_tensor(const std::string& pickle) {
    const auto document = parse_pickle(std::as_bytes(std::span(pickle)), what_);
    const StoredTensor* tensor = document->root().tensor();
    if (!tensor) corrupt("its value is not a tensor");
    check_view(*tensor, what_);
    return *tensor;
  }

  std::string take(size_t bytes) {
    std::string taken = std::move(lookahead_);
    lookahead_.clear();
    if (taken.size() > bytes) {
      lookahead_ = taken.substr(bytes);
      taken.resize(bytes);
    }
    const size_t have = taken.size();
    taken.resize(bytes);
    stream_.read(std::as_writable_bytes(std::span(taken)).subspan(have));
    return taken;
  }

  std::string take_known(uint32_t length) {
    if (length > kMostRecordBytes) corrupt("a record before the storage is larger than a MiB");
    return take(length);
  }

  // A record whose header leaves its length open ends where a descriptor gives just that length and
  // another record follows.
  std::string take_described() {
    std::string content = take(kDescriptorBytes + kLocalSignature.size());
    while (content.size() <= kMostRecordBytes) {
      const size_t length = content.size() - kDescriptorBytes - kLocalSignature.size();
      const char* descriptor = content.data() + length;
      uint32_t lengths[2];
      std::memcpy(lengths, descriptor + 8, sizeof lengths);
      if (content.ends_with(kLocalSignature) && lengths[0] == length && lengths[1] == length &&
          std::memcmp(descriptor, kDescriptorSignature.data(), kDescriptorSignature.size()) == 0) {
        lookahead_ = kLocalSignature;
        content.resize(length);
        return content;
      }
      content += take(1);
    }
    corrupt("a record before the storage is larger than a MiB");
  }

  ZstdStream& stream_;
  const std::string& what_;
  std::string lookahead_;  // read from the stream but not taken
};

}  // namespace

StreamedTensor find_streamed_tensor(ZstdStream& stream, const std::string& what) {
  return StreamedArchive(stream, what).find();
}

}  // namespace ferry
