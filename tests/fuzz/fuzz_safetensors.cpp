#include <cstdlib>
#include <cstring>
#include <memory>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/safetensors.h"
#include "tests/fuzz/bytes_file.h"

namespace {

using namespace ferry;

// What is read covers the data exactly, and is written as a header that reads the same.
void check_header(const ReadableFile& file) {
  SafetensorsHeader header = read_safetensors_header(file, 0);
  uint64_t end = header.data_offset;
  std::vector<Entry*> order;
  for (Entry& entry : header.entries) {
    if (entry.chunks.at(0).extent.offset != end) std::abort();
    end += entry.chunks[0].extent.length;
    order.push_back(&entry);
  }
  if (end != file.size()) std::abort();
  uint64_t file_bytes = 0;
  std::string bytes;
  try {
    bytes = write_safetensors_header(order, header.metadata, 0, &file_bytes);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unsupported) return;
    std::abort();
  }
  if (file_bytes - bytes.size() != file.size() - header.data_offset) std::abort();
}

// A header whose length is right, before data of a size that the input says: zeros, never stored.
class HeaderFile final : public ReadableFile {
 public:
  HeaderFile(std::string header, uint64_t data_bytes)
      : header_(std::move(header)), data_bytes_(data_bytes) {}
  const std::string& path() const noexcept override { return path_; }
  uint64_t size() const noexcept override { return 8 + header_.size() + data_bytes_; }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    const uint64_t length = header_.size();
    std::string start(8, '\0');
    std::memcpy(start.data(), &length, 8);
    start += header_;
    if (offset > start.size() || into.size() > start.size() - offset) std::abort();
    if (!into.empty()) std::memcpy(into.data(), start.data() + offset, into.size());
  }

 private:
  std::string header_, path_ = "fuzz";
  uint64_t data_bytes_;
};

}  // namespace

// Two readings of the input: as a whole file, and as the size of the data and a header's text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    check_header(test::BytesFile(data, size));
  } catch (const Error&) {
  }
  if (size < 8) return 0;
  uint64_t data_bytes = 0;
  std::memcpy(&data_bytes, data, 8);
  try {
    const std::string text(reinterpret_cast<const char*>(data) + 8, size - 8);
    check_header(HeaderFile(text, data_bytes % (uint64_t{1} << 48)));
  } catch (const Error&) {
  }
  return 0;
}
