#include "ckpt/base/error.h"
#include "tools/data/streams/decoder_input.h"

namespace ferry::tool {

std::unique_ptr<ByteStream> xz_stream(std::unique_ptr<ByteStream>, std::string name) {
  fail(ErrorKind::unsupported,
       "{} is compressed by xz, and this ferry was built without liblzma; give it through a pipe: "
       "xz -dc {} | ferry data tokenize --input - ...",
       name, name);
}

}  // namespace ferry::tool
