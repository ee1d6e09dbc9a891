#include "tools/data/parquet/column_reader.h"

#include <algorithm>
#include <cstring>

#include "ckpt/base/error.h"
#include "tools/data/parquet/snappy.h"
#include "tools/data/streams/decoder_input.h"

namespace ferry::tool {
namespace {

constexpr uint64_t kHeaderWindow = 16 << 10;  // bytes, where most page headers fit
constexpr int64_t kMostPageBytes = int64_t{512} << 20;

// Bytes that lie in memory.
class MemoryStream final : public ByteStream {
 public:
  explicit MemoryStream(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t read_some(std::span<std::byte> into) override {
    const size_t count = std::min(into.size(), bytes_.size());
    std::copy_n(bytes_.begin(), count, into.begin());
    bytes_ = bytes_.subspan(count);
    return count;
  }

 private:
  std::span<const std::byte> bytes_;
};

// What a stream gives is `size` bytes.
bool fills(ByteStream& stream, std::span<std::byte> into) {
  size_t filled = 0;
  while (filled < into.size()) {
    const size_t bytes = stream.read_some(into.subspan(filled));
    if (bytes == 0) return false;
    filled += bytes;
  }
  std::byte more{};
  return stream.read_some(std::span(&more, 1)) == 0;
}

uint32_t number_of(std::span<const std::byte> bytes) {
  uint32_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

}  // namespace

ParquetColumnReader::ParquetColumnReader(std::shared_ptr<const ReadableFile> file,
                                         const ParquetColumn& column, const ParquetChunk& chunk,
                                         std::atomic<uint64_t>& bytes_read)
    : file_(std::move(file)),
      column_(column.name),
      is_optional_(column.is_optional),
      codec_(chunk.codec),
      bytes_read_(bytes_read),
      page_at_(chunk.begin),
      at_(chunk.begin),
      end_(chunk.begin + chunk.bytes) {}

void ParquetColumnReader::fail_page(const std::string& problem) const {
  fail(ErrorKind::corrupt, "{}: column '{}', page at byte {}: {}; get the file again",
       file_->path(), column_, page_at_, problem);
}

// The next bytes of the column.
std::vector<std::byte> ParquetColumnReader::stored(uint64_t bytes) {
  if (bytes > end_ - at_) {
    fail_page(fmt::format("{} bytes follow in the column, and {} are needed", end_ - at_, bytes));
  }
  std::vector<std::byte> found(bytes);
  file_->read(at_, found);
  at_ += bytes;
  bytes_read_ += bytes;
  return found;
}

ParquetPageHeader ParquetColumnReader::read_header() {
  page_at_ = at_;
  if (at_ >= end_) fail_page("the column ends before its rows do");
  for (uint64_t window = kHeaderWindow;; window *= 16) {
    std::vector<std::byte> bytes(std::min(window, end_ - at_));
    file_->read(at_, bytes);
    ThriftReader in(bytes);
    ParquetPageHeader header;
    try {
      header = read_parquet_page_header(in);
    } catch (const ThriftEnd&) {
      if (bytes.size() < end_ - at_) continue;
      fail_page("it ends within its header");
    } catch (const Error& error) {
      fail_page(error.what());
    }
    at_ += in.at();
    bytes_read_ += in.at();
    if (header.bytes < 0 || header.bytes > kMostPageBytes || header.stored_bytes < 0) {
      fail_page(fmt::format("it says that it has {} bytes, stored as {}; {} are the most",
                            header.bytes, header.stored_bytes, kMostPageBytes));
    }
    return header;
  }
}

std::vector<std::byte> ParquetColumnReader::uncompressed(std::span<const std::byte> bytes,
                                                         int64_t size) const {
  std::vector<std::byte> whole(static_cast<size_t>(size));
  const std::string name =
      fmt::format("{}: column '{}', page at byte {}", file_->path(), column_, page_at_);
  bool fits = false;
  switch (codec_) {
    case ParquetCodec::none:
      fits = bytes.size() == whole.size();
      if (fits) std::copy(bytes.begin(), bytes.end(), whole.begin());
      break;
    case ParquetCodec::snappy:
      fits = uncompress_snappy(bytes, whole);
      break;
    case ParquetCodec::gzip:
      fits = fills(*gzip_stream(std::make_unique<MemoryStream>(bytes), name), whole);
      break;
    case ParquetCodec::zstd:
      fits = fills(*zstd_stream(std::make_unique<MemoryStream>(bytes), name), whole);
      break;
    default:
      fail(ErrorKind::unsupported,
           "{} is compressed by {}; write the file with snappy, gzip, zstd or none", name,
           codec_ == ParquetCodec::lzo      ? "LZO"
           : codec_ == ParquetCodec::brotli ? "Brotli"
                                            : "LZ4");
  }
  if (!fits)
    fail_page(
        fmt::format("its {} bytes do not give the {} that they stand for", bytes.size(), size));
  return whole;
}

// The next of texts that each follow their length.
std::string_view ParquetColumnReader::plain_text(std::span<const std::byte>& bytes) const {
  if (bytes.size() < 4 || number_of(bytes) > bytes.size() - 4) fail_page("it ends within a text");
  const size_t length = number_of(bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 4, length);
  bytes = bytes.subspan(4 + length);
  return text;
}

void ParquetColumnReader::read_dictionary(const ParquetPageHeader& header) {
  if (header.encoding != kPlain && header.encoding != kPlainDictionary) {
    fail_page(fmt::format("its dictionary has the encoding {}", header.encoding));
  }
  dictionary_bytes_ =
      uncompressed(stored(static_cast<uint64_t>(header.stored_bytes)), header.bytes);
  std::span<const std::byte> rest = dictionary_bytes_;
  dictionary_.clear();
  for (int64_t i = 0; i < header.values; ++i) dictionary_.push_back(plain_text(rest));
}

void ParquetColumnReader::begin_values(int64_t encoding, std::span<const std::byte> bytes) {
  if (encoding == kPlain) {
    values_ = Values::plain;
    plain_ = bytes;
    return;
  }
  if (encoding != kPlainDictionary && encoding != kRleDictionary) {
    fail(ErrorKind::unsupported,
         "{}: column '{}' has the encoding {}; only plain and dictionary encoding are read, which "
         "all writers have (pyarrow: use_dictionary=True, no column_encoding)",
         file_->path(), column_, encoding);
  }
  const int bits = bytes.empty() ? 0 : static_cast<int>(bytes[0]);
  if (bits > 32) fail_page(fmt::format("its indices have {} bits", bits));
  values_ = Values::indices;
  indices_ = RunLengths(bytes.empty() ? bytes : bytes.subspan(1), bits);
}

void ParquetColumnReader::begin_data(const ParquetPageHeader& header) {
  if (header.values < 0) fail_page("it does not say how many values it has");
  const std::vector<std::byte> bytes = stored(static_cast<uint64_t>(header.stored_bytes));
  std::span<const std::byte> levels, values;
  if (header.type == kDataPageV2) {
    const int64_t before = header.repetition_bytes + header.definition_bytes;
    if (header.repetition_bytes < 0 || header.definition_bytes < 0 ||
        before > std::min(header.stored_bytes, header.bytes)) {
      fail_page("its levels are longer than itself");
    }
    const auto parts = std::span<const std::byte>(bytes);
    const auto compressed = parts.subspan(static_cast<size_t>(before));
    page_.assign(bytes.begin(), bytes.begin() + before);
    const std::vector<std::byte> rest =
        header.is_compressed ? uncompressed(compressed, header.bytes - before)
                             : std::vector<std::byte>(compressed.begin(), compressed.end());
    page_.insert(page_.end(), rest.begin(), rest.end());
    levels = std::span<const std::byte>(page_).subspan(
        static_cast<size_t>(header.repetition_bytes), static_cast<size_t>(header.definition_bytes));
    values = std::span<const std::byte>(page_).subspan(static_cast<size_t>(before));
  } else {
    page_ = uncompressed(bytes, header.bytes);
    values = page_;
    if (is_optional_) {
      if (header.level_encoding != kRle) {
        fail_page(fmt::format("its levels have the encoding {}", header.level_encoding));
      }
      if (values.size() < 4 || number_of(values) > values.size() - 4) {
        fail_page("it ends within its levels");
      }
      levels = values.subspan(4, number_of(values));
      values = values.subspan(4 + levels.size());
    }
  }
  has_levels_ = is_optional_;
  levels_ = RunLengths(levels, 1);
  begin_values(header.encoding, values);
  page_values_ = header.values;
}

void ParquetColumnReader::read_page() {
  const ParquetPageHeader header = read_header();
  switch (header.type) {
    case kDictionaryPage:
      return read_dictionary(header);
    case kDataPage:
    case kDataPageV2:
      return begin_data(header);
    default:
      static_cast<void>(stored(static_cast<uint64_t>(header.stored_bytes)));
  }
}

std::optional<std::string_view> ParquetColumnReader::next() {
  while (page_values_ == 0) read_page();
  --page_values_;
  uint32_t level = 1;
  if (has_levels_ && !levels_.next(level)) fail_page("it has fewer levels than values");
  if (level == 0) return std::nullopt;
  if (values_ == Values::plain) return plain_text(plain_);
  uint32_t index = 0;
  if (!indices_.next(index)) fail_page("it has fewer values than it says");
  if (index >= dictionary_.size()) {
    fail_page(fmt::format("text {} of a dictionary of {}", index, dictionary_.size()));
  }
  return dictionary_[index];
}

}  // namespace ferry::tool
