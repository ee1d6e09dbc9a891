#include "tools/data/parquet/parquet_metadata.h"

#include <array>
#include <cstring>
#include <string_view>

#include "ckpt/base/error.h"
#include "tools/data/parquet/thrift_reader.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr uint64_t kFooterBytes = 8;  // the metadata's length, and PAR1
constexpr uint64_t kMostMetadataBytes = 64 << 20;
// An element of a schema or a group may take one byte of them, and 60 bytes of memory.
constexpr size_t kMostSchemaElements = 1 << 20, kMostGroups = 1 << 20, kMostChunks = 1 << 22;
constexpr int64_t kByteArray = 6;
constexpr size_t kDeepestSchema = 64;

struct SchemaElement {
  std::string name;
  int64_t type = -1, repetition = 0, children = 0;
};

SchemaElement read_element(ThriftReader& in) {
  SchemaElement element;
  in.structure([&](const ThriftField& field) {
    switch (field.id) {
      case 1:
        element.type = in.integer(field);
        return true;
      case 3:
        element.repetition = in.integer(field);
        return true;
      case 4:
        element.name = in.text(field);
        return true;
      case 5:
        element.children = in.integer(field);
        return true;
      default:
        return false;
    }
  });
  return element;
}

ParquetChunk read_chunk_metadata(ThriftReader& in) {
  ParquetChunk chunk;
  int64_t data = -1, dictionary = 0, bytes = -1;
  in.structure([&](const ThriftField& field) {
    switch (field.id) {
      case 4: {
        const int64_t codec = in.integer(field);
        if (codec < 0 || codec > static_cast<int64_t>(ParquetCodec::lz4_raw)) {
          fail(ErrorKind::unsupported, "its pages are compressed by codec {}, which is not known",
               codec);
        }
        chunk.codec = static_cast<ParquetCodec>(codec);
        return true;
      }
      case 5:
        chunk.values = in.integer(field);
        return true;
      case 7:
        bytes = in.integer(field);
        return true;
      case 9:
        data = in.integer(field);
        return true;
      case 11:
        dictionary = in.integer(field);
        return true;
      default:
        return false;
    }
  });
  // Some writers leave 0 where there is no dictionary.
  const int64_t begin = dictionary > 0 && dictionary < data ? dictionary : data;
  const bool is_empty = chunk.values == 0 && begin >= 0;
  if ((begin < 4 && !is_empty) || bytes < 0 || chunk.values < 0) {
    fail(ErrorKind::corrupt, "a column has {} values in {} bytes from byte {} on", chunk.values,
         bytes, begin);
  }
  chunk.begin = static_cast<uint64_t>(begin);
  chunk.bytes = static_cast<uint64_t>(bytes);
  return chunk;
}

void check_count(size_t count, size_t most, std::string_view what) {
  if (count >= most) fail(ErrorKind::exhausted, "it has more than {} {}", most, what);
}

// `chunks` counts those of all groups.
ParquetRowGroup read_group(ThriftReader& in, size_t& chunks) {
  ParquetRowGroup group;
  in.structure([&](const ThriftField& field) {
    if (field.id == 3) {
      group.rows = in.integer(field);
      return true;
    }
    if (field.id != 1) return false;
    in.structures(field, [&] {
      check_count(chunks++, kMostChunks, "columns in its groups");
      ParquetChunk chunk;
      in.structure([&](const ThriftField& inner) {
        if (inner.id == 1) {
          fail(ErrorKind::unsupported, "its columns are in other files ({})",
               printable(shortened(std::string(in.text(inner)), 80)));
        }
        if (inner.id != 3 || inner.type != ThriftType::structure) return false;
        chunk = read_chunk_metadata(in);
        return true;
      });
      group.chunks.push_back(chunk);
    });
    return true;
  });
  return group;
}

// The schema is a tree, written with each branch before what hangs on it.
class SchemaWalk {
 public:
  explicit SchemaWalk(const std::vector<SchemaElement>& elements) : elements_(elements) {}

  std::vector<ParquetColumn> leaves() {
    if (elements_.empty()) fail(ErrorKind::corrupt, "its schema is empty");
    const int64_t children = elements_[next_++].children;
    for (int64_t i = 0; i < children; ++i) walk("", true, 1);
    if (next_ != elements_.size()) fail(ErrorKind::corrupt, "its schema is not a tree");
    return std::move(leaves_);
  }

 private:
  void walk(const std::string& above, bool is_flat, size_t depth) {
    if (next_ == elements_.size() || depth > kDeepestSchema) {
      fail(ErrorKind::corrupt, "its schema is not a tree of at most {} levels", kDeepestSchema);
    }
    const SchemaElement& element = elements_[next_++];
    const std::string name = above.empty() ? element.name : above + "." + element.name;
    if (element.children <= 0) {
      leaves_.push_back({name, element.type == kByteArray, element.repetition == 1,
                         is_flat && element.repetition < 2});
      return;
    }
    for (int64_t i = 0; i < element.children; ++i) walk(name, false, depth + 1);
  }

  const std::vector<SchemaElement>& elements_;
  size_t next_ = 0;
  std::vector<ParquetColumn> leaves_;
};

ParquetMetadata parse_metadata(std::span<const std::byte> bytes) {
  ParquetMetadata metadata;
  std::vector<SchemaElement> elements;
  size_t chunks = 0;
  ThriftReader in(bytes);
  in.structure([&](const ThriftField& field) {
    switch (field.id) {
      case 2:
        in.structures(field, [&] {
          check_count(elements.size(), kMostSchemaElements, "elements of its schema");
          elements.push_back(read_element(in));
        });
        return true;
      case 3:
        metadata.rows = in.integer(field);
        return true;
      case 4:
        in.structures(field, [&] {
          check_count(metadata.groups.size(), kMostGroups, "groups of rows");
          metadata.groups.push_back(read_group(in, chunks));
        });
        return true;
      case 8:
        fail(ErrorKind::unsupported, "it is encrypted");
      default:
        return false;
    }
  });
  metadata.leaves = SchemaWalk(elements).leaves();
  return metadata;
}

void check_parquet(const ParquetMetadata& metadata, uint64_t data_bytes) {
  int64_t rows = 0;
  for (const ParquetRowGroup& group : metadata.groups) {
    if (group.rows < 0 || __builtin_add_overflow(rows, group.rows, &rows) ||
        group.chunks.size() != metadata.leaves.size()) {
      fail(ErrorKind::corrupt, "a group of {} rows has {} columns, and the schema {}", group.rows,
           group.chunks.size(), metadata.leaves.size());
    }
    for (const ParquetChunk& chunk : group.chunks) {
      if (chunk.begin <= data_bytes && chunk.bytes <= data_bytes - chunk.begin) continue;
      fail(ErrorKind::corrupt, "a column of {} bytes from byte {} on goes past its {} bytes",
           chunk.bytes, chunk.begin, data_bytes);
    }
  }
  if (rows != metadata.rows) {
    fail(ErrorKind::corrupt, "it says that it has {} rows, and its groups have {}", metadata.rows,
         rows);
  }
}

}  // namespace

ParquetMetadata read_parquet_metadata(const ReadableFile& file) {
  const uint64_t size = file.size();
  std::array<std::byte, kFooterBytes> footer{};
  if (size < 4 + kFooterBytes) {
    fail(ErrorKind::corrupt, "{}: {} bytes are too few for a Parquet file; get it again",
         file.path(), size);
  }
  file.read(size - kFooterBytes, footer);
  uint32_t length = 0;
  std::memcpy(&length, footer.data(), sizeof length);
  const std::string_view magic(reinterpret_cast<const char*>(footer.data()) + 4, 4);
  if (magic == "PARE") fail(ErrorKind::unsupported, "{}: it is encrypted", file.path());
  if (magic == "PAR1" && length > kMostMetadataBytes) {
    fail(ErrorKind::exhausted, "{}: its metadata have {}, and at most {} are read", file.path(),
         human_bytes(length), human_bytes(kMostMetadataBytes));
  }
  if (magic != "PAR1" || length > size - 4 - kFooterBytes) {
    fail(ErrorKind::corrupt,
         "{}: it begins as a Parquet file and does not end as one; it is truncated: get it again",
         file.path());
  }
  std::vector<std::byte> bytes(length);
  file.read(size - kFooterBytes - length, bytes);
  try {
    ParquetMetadata metadata = parse_metadata(bytes);
    check_parquet(metadata, size - kFooterBytes - length);
    return metadata;
  } catch (const ThriftEnd&) {
    fail(ErrorKind::corrupt, "{}: its metadata end in the middle of a value; get it again",
         file.path());
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", file.path(), error.what());
  }
}

}  // namespace ferry::tool
