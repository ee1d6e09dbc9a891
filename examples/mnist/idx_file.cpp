#include "idx_file.h"

#include <isa-l/igzip_lib.h>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"

namespace ferry::mnist {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // of a file, and of what it is unpacked to

std::string unpack_gzip(const std::string& packed, const std::string& path) {
  inflate_state state;
  isal_inflate_init(&state);
  state.crc_flag = ISAL_GZIP;
  state.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(packed.data()));
  state.avail_in = static_cast<uint32_t>(packed.size());
  std::string text;
  std::vector<uint8_t> part(size_t{1} << 20);
  do {
    state.next_out = part.data();
    state.avail_out = static_cast<uint32_t>(part.size());
    if (isal_inflate(&state) != ISAL_DECOMP_OK) {
      fail(ErrorKind::corrupt, "{}: its gzip stream is damaged. Fetch the file again", path);
    }
    const size_t bytes = part.size() - state.avail_out;
    text.append(reinterpret_cast<const char*>(part.data()), bytes);
    if (text.size() > kMostBytes) {
      fail(ErrorKind::exhausted, "{}: it unpacks to more than {} bytes", path, kMostBytes);
    }
    if (bytes == 0 && state.block_state != ISAL_BLOCK_FINISH) {
      fail(ErrorKind::corrupt, "{}: it ends in the middle of its gzip stream. Fetch the file again",
           path);
    }
  } while (state.block_state != ISAL_BLOCK_FINISH);
  return text;
}

int64_t big_endian_at(const std::string& text, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(text[at + i]);
  return value;
}

}  // namespace

IdxArray read_idx(const FileSystem& files, const std::string& path, int axes) {
  const std::string gzip = path + ".gz";
  const bool is_plain = files.status(path).kind == PathKind::file;
  if (!is_plain && files.status(gzip).kind != PathKind::file) {
    fail(ErrorKind::not_found, "{} is not there, nor {}: give the folder with MNIST's four files",
         path, gzip);
  }
  const std::string& found = is_plain ? path : gzip;
  std::string text = read_file(files, found, kMostBytes);
  if (!is_plain) text = unpack_gzip(text, found);
  const size_t header = 4 + 4 * static_cast<size_t>(axes);
  const int64_t magic = 0x800 + axes;
  if (text.size() < header || big_endian_at(text, 0) != magic) {
    fail(ErrorKind::corrupt, "{} does not begin with {:#010x}, as an IDX file of bytes does", found,
         magic);
  }
  IdxArray array;
  int64_t count = 1;
  for (size_t axis = 0; axis < static_cast<size_t>(axes); ++axis) {
    array.shape.push_back(big_endian_at(text, 4 + 4 * axis));
    count = checked_multiply(count, array.shape.back(), found);
  }
  if (static_cast<int64_t>(text.size() - header) != count) {
    fail(ErrorKind::corrupt, "{} has {} bytes after its header, which announces {}", found,
         text.size() - header, count);
  }
  array.elements.assign(text.begin() + static_cast<std::ptrdiff_t>(header), text.end());
  return array;
}

}  // namespace ferry::mnist
