// Writes `.metadata` pickles as tests need them, right or wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/base/box.h"

namespace ferry::test {

class DcpPickle {
 public:
  struct Chunk {
    Dims offset, size;
  };

  DcpPickle& tensor(const std::string& name, const std::string& dtype, const Dims& shape,
                    const std::vector<Chunk>& chunks) {
    std::string list = "](";
    for (const Chunk& chunk : chunks) {
      list += instance("torch.distributed.checkpoint.metadata", "ChunkStorageMetadata",
                       text("offsets") + dims(chunk.offset) + text("sizes") + dims(chunk.size));
    }
    const std::string state = std::string("(") + global("torch", dtype) + "N\x89K" + '\0' + "\x89t";
    const std::string properties =
        global("torch.distributed.checkpoint.metadata", "TensorProperties") + ")\x81" + state + "b";
    tensors_ +=
        text(name) + instance("torch.distributed.checkpoint.metadata", "TensorStorageMetadata",
                              text("properties") + properties + text("size") + dims(shape) +
                                  text("chunks") + list + "e");
    return *this;
  }

  DcpPickle& bytes(const std::string& name) {
    tensors_ +=
        text(name) + instance("torch.distributed.checkpoint.metadata", "BytesStorageMetadata", "");
    return *this;
  }

  DcpPickle& item(const std::string& name, const std::optional<Dims>& chunk_offset,
                  const std::string& path, int64_t offset, int64_t length,
                  const std::string& transform = "") {
    std::string index = text("fqn") + text(name) + text("index") + integer(3);
    if (chunk_offset) index += text("offset") + dims(*chunk_offset);
    std::string info = text("relative_path") + text(path) + text("offset") + integer(offset) +
                       text("length") + integer(length);
    if (!transform.empty()) info += text("transform_descriptors") + "](" + text(transform) + "e";
    items_ += instance("torch.distributed.checkpoint.metadata", "MetadataIndex", index) +
              instance("torch.distributed.checkpoint.filesystem", "_StorageInfo", info);
    return *this;
  }

  std::string finish() const {
    return std::string("\x80\x02") +
           instance("torch.distributed.checkpoint.metadata", "Metadata",
                    text("state_dict_metadata") + "}(" + tensors_ + "u" + text("storage_data") +
                        "}(" + items_ + "u") +
           ".";
  }

 private:
  static std::string little(uint64_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
    return out;
  }
  static std::string text(const std::string& value) {
    return std::string("X") + little(value.size(), 4) + value;
  }
  static std::string integer(int64_t value) {
    return std::string("\x8a\x08") + little(static_cast<uint64_t>(value), 8);
  }
  static std::string global(const std::string& module, const std::string& name) {
    return std::string("c") + module + "\n" + name + "\n";
  }
  static std::string dims(const Dims& values) {
    std::string out = global("torch", "Size") + "((";
    for (const int64_t value : values) out += integer(value);
    return out + "ttR";
  }
  static std::string instance(const std::string& module, const std::string& name,
                              const std::string& pairs) {
    return global(module, name) + ")\x81}(" + pairs + "ub";
  }

  std::string tensors_, items_;
};

}  // namespace ferry::test
