#include <cstdlib>

#include "ckpt/base/error.h"
#include "ckpt/io/tar_file_system.h"
#include "tests/fuzz/bytes_file.h"

// Any bytes are an archive whose members are inside the file, under names inside it, or an Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
  try {
    const test::BytesFile file(data, size);
    is_tar(file);
    for (const TarMember& member : read_tar(file)) {
      if (member.offset > size || member.bytes > size - member.offset) std::abort();
      join_untrusted("folder", member.name);
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) std::abort();
  }
  return 0;
}
