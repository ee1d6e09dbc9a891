#include "ckpt/format/dcp/dcp_metadata_writer.h"

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/digest.h"
#include "ckpt/base/error.h"
#include "ckpt/format/pickle/pickle_emitter.h"
#include "ckpt/format/pickle/pickle_opcodes.h"
#include "ckpt/format/pickle/pickle_writer.h"

namespace ferry {

using namespace pickle;  // opcodes

namespace {

constexpr std::string_view kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr std::string_view kFilesModule = "torch.distributed.checkpoint.filesystem";
constexpr uint32_t kNotYet = UINT32_MAX;

// A class, or an attribute's name, and its place in the memo once it has been written.
struct Name {
  std::string_view module;  // empty: a string
  std::string_view name;
  uint32_t memo = kNotYet;
};

// Text of a UUID that only the content decides, so that the same plan gives the same bytes.
std::string uuid_of(const Digest& digest) {
  std::string hex = to_hex(digest);
  hex[12] = '8';                                                                // version: custom
  hex[16] = "89ab"[(hex[16] >= 'a' ? hex[16] - 'a' + 10 : hex[16] - '0') & 3];  // variant
  for (size_t at : {20, 16, 12, 8}) hex.insert(at, "-");
  return hex;
}

// Writes the objects in the order of their fields, as Python does; only what is mentioned again
// goes into the memo, so that the memo stays small.
class MetadataWriter {
 public:
  explicit MetadataWriter(const DcpContent& content) : content_(content) {
    for (const std::string& file : content.files) files_.push_back({{}, file});
    uint64_t bytes = 0;
    for (const DcpContent::Entry& entry : content.entries) {
      bytes += entry.chunks.size() * (kChunkBytes + kAxisBytes * entry.shape.size());
    }
    out_.reserve(bytes);
  }

  /// Once written: where the pickle has the save_id, from its opcode on.
  std::pair<size_t, size_t> save_id() const { return {save_id_begin_, save_id_end_}; }

  std::string write() {
    begin_instance(metadata_class_);
    state_dict_metadata();
    out_.constant("planner_data");
    write_value(content_.planner_data.value, {}, out_);
    storage_data();
    storage_meta();
    out_.constant("version");
    out_.constant("1.0.0");
    end_instance();
    return std::move(out_).finish();
  }

 private:
  void mention(Name& name) {
    if (name.memo != kNotYet) return out_.get(name.memo);
    name.memo = name.module.empty() ? out_.string(name.name) : out_.global(name.module, name.name);
  }

  // class.__new__(class), then a dict of its attributes.
  void begin_instance(Name& name) {
    mention(name);
    out_.opcode(EMPTY_TUPLE);
    out_.opcode(NEWOBJ);
    out_.opcode(EMPTY_DICT);
    out_.opcode(MARK);
  }
  void end_instance() {
    out_.opcode(SETITEMS);
    out_.opcode(BUILD);
  }

  void number(Name& name, uint64_t value) {
    mention(name);
    if (value > INT64_MAX) fail(ErrorKind::invalid, "an {} of {} bytes", name.name, value);
    out_.integer(static_cast<int64_t>(value));
  }

  void size(Name& name, const Dims& dims) {
    mention(name);
    mention(size_class_);
    if (PickleEmitter::needs_mark(dims.size())) out_.opcode(MARK);
    for (const int64_t value : dims) out_.integer(value);
    out_.end_tuple(dims.size());
    out_.opcode(TUPLE1);
    out_.opcode(REDUCE);
  }

  void state_dict_metadata() {
    out_.constant("state_dict_metadata");
    out_.opcode(EMPTY_DICT);
    out_.opcode(MARK);
    names_.reserve(content_.entries.size());
    for (const DcpContent::Entry& entry : content_.entries) {
      names_.push_back(out_.string(entry.name));
      if (entry.is_object) {
        mention(object_class_);
        out_.opcode(EMPTY_TUPLE);
        out_.opcode(NEWOBJ);
      } else {
        tensor(entry);
      }
    }
    out_.opcode(SETITEMS);
  }

  void tensor(const DcpContent::Entry& entry) {
    begin_instance(tensor_class_);
    mention(properties_);
    properties(entry.dtype);
    size(size_, entry.shape);
    mention(chunks_);
    out_.opcode(EMPTY_LIST);
    out_.opcode(MARK);
    for (const DcpContent::Chunk& chunk : entry.chunks) {
      const size_t rank = entry.shape.size();
      if (chunk.box.offset.size() != rank || chunk.box.size.size() != rank) {
        fail(ErrorKind::invalid, "tensor {} has {} axes, a chunk of it {}", entry.name, rank,
             to_string(chunk.box));
      }
      begin_instance(chunk_class_);
      size(offsets_, chunk.box.offset);
      size(sizes_, chunk.box.size);
      end_instance();
    }
    out_.opcode(APPENDS);
    end_instance();
  }

  // All but the dtype are what PyTorch calls deprecated: strided, needs no gradient, contiguous.
  void properties(DType dtype) {
    mention(properties_class_);
    out_.opcode(EMPTY_TUPLE);
    out_.opcode(NEWOBJ);
    out_.opcode(MARK);
    out_.global("torch", torch_name(dtype));
    mention(layout_function_);
    out_.constant("torch.strided");
    out_.opcode(TUPLE1);
    out_.opcode(REDUCE);
    out_.boolean(false);
    mention(memory_format_class_);
    out_.integer(0);
    out_.opcode(TUPLE1);
    out_.opcode(REDUCE);
    out_.boolean(false);
    out_.opcode(TUPLE);
    out_.opcode(BUILD);
  }

  void storage_data() {
    out_.constant("storage_data");
    out_.opcode(EMPTY_DICT);
    out_.opcode(MARK);
    for (size_t i = 0; i < content_.entries.size(); ++i) {
      const DcpContent::Entry& entry = content_.entries[i];
      if (entry.is_object) {
        index(names_[i], nullptr, 0);
        place(entry.place, entry.name);
      }
      for (size_t k = 0; k < entry.chunks.size(); ++k) {
        index(names_[i], &entry.chunks[k].box.offset, static_cast<int64_t>(k));
        place(entry.chunks[k].place, entry.name);
      }
    }
    out_.opcode(SETITEMS);
  }

  void index(uint32_t name, const Dims* offset, int64_t hint) {
    begin_instance(index_class_);
    mention(fqn_);
    out_.get(name);
    mention(index_);
    if (offset) {
      out_.integer(hint);
      size(offset_, *offset);
    } else {
      out_.opcode(NONE);
    }
    end_instance();
  }

  void place(const DcpContent::Place& place, std::string_view name) {
    if (place.file >= content_.files.size()) {
      fail(ErrorKind::invalid, "'{}' is in file {} of {}", name, place.file, content_.files.size());
    }
    begin_instance(place_class_);
    mention(relative_path_);
    mention(files_[place.file]);
    number(offset_, place.offset);
    number(length_, place.length);
    if (place.zstd) {
      out_.constant("transform_descriptors");
      out_.opcode(EMPTY_LIST);
      out_.constant("stream.zstd/1");
      out_.opcode(APPEND);
    }
    end_instance();
  }

  void storage_meta() {
    out_.constant("storage_meta");
    begin_instance(meta_class_);
    out_.constant("checkpoint_id");
    out_.opcode(NONE);  // its path: PyTorch does not use it, and a folder can be moved
    out_.constant("save_id");
    save_id_begin_ = out_.size();
    out_.string(content_.save_id);
    save_id_end_ = save_id_begin_ + kStringHeader + content_.save_id.size();
    out_.constant("load_id");
    out_.opcode(NONE);
    out_.constant("modules");
    out_.opcode(EMPTY_LIST);
    end_instance();
  }

  // What a chunk takes, about, and more for each axis: of three tuples a number.
  static constexpr uint64_t kChunkBytes = 96, kAxisBytes = 15;
  static constexpr size_t kStringHeader = 5;  // BINUNICODE and a length of four bytes

  const DcpContent& content_;
  PickleEmitter out_;
  size_t save_id_begin_ = 0, save_id_end_ = 0;
  std::vector<uint32_t> names_;  // memo indices, by entry
  std::vector<Name> files_;

  Name metadata_class_{kMetadataModule, "Metadata"};
  Name tensor_class_{kMetadataModule, "TensorStorageMetadata"};
  Name object_class_{kMetadataModule, "BytesStorageMetadata"};
  Name properties_class_{kMetadataModule, "TensorProperties"};
  Name memory_format_class_{kMetadataModule, "_MEM_FORMAT_ENCODING"};
  Name chunk_class_{kMetadataModule, "ChunkStorageMetadata"};
  Name index_class_{kMetadataModule, "MetadataIndex"};
  Name meta_class_{kMetadataModule, "StorageMeta"};
  Name place_class_{kFilesModule, "_StorageInfo"};
  Name size_class_{"torch", "Size"};
  Name layout_function_{"torch.serialization", "_get_layout"};
  Name properties_{{}, "properties"}, size_{{}, "size"}, chunks_{{}, "chunks"};
  Name offsets_{{}, "offsets"}, sizes_{{}, "sizes"};
  Name fqn_{{}, "fqn"}, index_{{}, "index"}, offset_{{}, "offset"};
  Name relative_path_{{}, "relative_path"}, length_{{}, "length"};
};

}  // namespace

std::string write_dcp_metadata(const DcpContent& content) {
  return MetadataWriter(content).write();
}

// The UUID is made of the pickle that has none: an empty string in its place.
std::string write_dcp_metadata_with_id(DcpContent& content) {
  constexpr size_t kUuid = 36;
  content.save_id = std::string(kUuid, '0');
  MetadataWriter writer(content);
  std::string text = writer.write();
  const auto [begin, end] = writer.save_id();
  const std::string none{static_cast<char>(BINUNICODE), 0, 0, 0, 0};
  DigestStream stream;
  for (const std::string_view part : {std::string_view(text).substr(0, begin),
                                      std::string_view(none), std::string_view(text).substr(end)}) {
    stream.add(std::as_bytes(std::span(part)));
  }
  content.save_id = uuid_of(stream.digest());
  text.replace(end - kUuid, kUuid, content.save_id);
  return text;
}

}  // namespace ferry
