#include "tools/data/parquet/parquet_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ckpt/base/error.h"
#include "tools/data/parquet/column_reader.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr size_t kColumnsShown = 20;

// Appends a JSON string. What is not UTF-8 stays as it is: the reader of the lines reports it.
void append_json_string(std::string& line, std::string_view text) {
  line += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (byte < 0x20) {
      line += fmt::format("\\u{:04x}", byte);
    } else {
      line += c;
    }
  }
  line += '"';
}

size_t leaf_of(const ParquetMetadata& metadata, const std::string& name, const std::string& path) {
  std::string names;
  for (size_t i = 0; i < metadata.leaves.size(); ++i) {
    const ParquetColumn& leaf = metadata.leaves[i];
    if (leaf.name == name) {
      if (leaf.is_bytes && leaf.is_flat) return i;
      fail(ErrorKind::unsupported, "{}: column '{}' is {}; only columns of texts are read", path,
           name, leaf.is_flat ? "none of texts" : "a part of another, or a list");
    }
    if (i < kColumnsShown) names += (i == 0 ? "" : ", ") + printable(shortened(leaf.name, 80));
  }
  fail(ErrorKind::not_found,
       "{} has no column '{}'; it has {}{}; name those to take by --json-keys", path, name, names,
       metadata.leaves.size() > kColumnsShown ? ", ..." : "");
}

class ParquetStream final : public ByteStream {
 public:
  ParquetStream(std::shared_ptr<const ReadableFile> file, const std::vector<std::string>& columns,
                std::atomic<uint64_t>& bytes_read)
      : file_(std::move(file)), metadata_(read_parquet_metadata(*file_)), bytes_read_(bytes_read) {
    for (const std::string& name : columns) {
      leaves_.push_back(leaf_of(metadata_, name, file_->path()));
      std::string member = names_.empty() ? "{" : ",";
      append_json_string(member, name);
      names_.push_back(member + ":");
    }
  }

  size_t read_some(std::span<std::byte> into) override {
    line_.erase(0, given_);
    while (line_.size() < into.size() && next_row()) {
    }
    given_ = std::min(into.size(), line_.size());
    std::memcpy(into.data(), line_.data(), given_);
    return given_;
  }

 private:
  // Adds a line; false at the end.
  bool next_row() {
    while (rows_ == 0) {
      if (group_ == metadata_.groups.size()) return false;
      const ParquetRowGroup& group = metadata_.groups[group_++];
      rows_ = group.rows;
      readers_.clear();
      for (const size_t leaf : leaves_) {
        readers_.push_back(std::make_unique<ParquetColumnReader>(file_, metadata_.leaves[leaf],
                                                                 group.chunks[leaf], bytes_read_));
      }
    }
    --rows_;
    for (size_t i = 0; i < readers_.size(); ++i) {
      line_ += names_[i];
      const std::optional<std::string_view> text = readers_[i]->next();
      if (text) {
        append_json_string(line_, *text);
      } else {
        line_ += "null";
      }
    }
    line_ += "}\n";
    return true;
  }

  std::shared_ptr<const ReadableFile> file_;
  ParquetMetadata metadata_;
  std::atomic<uint64_t>& bytes_read_;
  std::vector<size_t> leaves_;
  std::vector<std::string> names_;  // what stands before the value of each
  std::vector<std::unique_ptr<ParquetColumnReader>> readers_;
  size_t group_ = 0;
  int64_t rows_ = 0;  // left of the group
  std::string line_;
  size_t given_ = 0;  // bytes of it
};

}  // namespace

std::unique_ptr<ByteStream> parquet_stream(std::shared_ptr<const ReadableFile> file,
                                           const std::vector<std::string>& columns,
                                           std::atomic<uint64_t>& bytes_read) {
  return std::make_unique<ParquetStream>(std::move(file), columns, bytes_read);
}

}  // namespace ferry::tool
