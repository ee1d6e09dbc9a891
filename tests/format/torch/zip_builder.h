// Writes zip files record by record, right ones and wrong ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ferry::test {

inline std::string number(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

class ZipBuilder {
 public:
  struct Record {
    std::string name = {}, content = {};
    uint64_t header = 0;
    uint16_t flags = 0x0808, method = 0;
    uint64_t stored = UINT64_MAX;  // in the directory; UINT64_MAX: the length
    std::string local_name = {};   // empty: the name
    bool zip64 = false;
  };

  std::string bytes;  // so far; may be tampered with before finish()
  std::vector<Record> records;

  void add(const std::string& name, const std::string& content) {
    Record record{name, content};
    add(record);
  }

  void add(Record record) {
    record.header = bytes.size();
    const std::string& local = record.local_name.empty() ? record.name : record.local_name;
    const bool described = record.flags & 8;
    const uint64_t length = described ? 0 : record.content.size();
    bytes += "PK\3\4" + number(0, 2) + number(record.flags, 2) + number(record.method, 2) +
             number(0, 4) + number(0, 4) + number(length, 4) + number(length, 4) +
             number(local.size(), 2) + number(6, 2) + local + "FB" + number(2, 2) + "ZZ" +
             record.content;
    if (described) {
      bytes += "PK\7\10" + number(0, 4) + number(record.content.size(), 4) +
               number(record.content.size(), 4);
    }
    records.push_back(record);
  }

  std::string finish(bool zip64_end = false, const std::string& comment = {}) const {
    std::string directory;
    for (const Record& record : records) {
      const uint64_t length = record.content.size();
      const uint64_t stored = record.stored == UINT64_MAX ? length : record.stored;
      const std::string extra = record.zip64 ? number(1, 2) + number(24, 2) + number(length, 8) +
                                                   number(stored, 8) + number(record.header, 8)
                                             : "";
      const auto field = [&](uint64_t value) {
        return number(record.zip64 ? UINT32_MAX : value, 4);
      };
      directory += "PK\1\2" + number(0, 4) + number(record.flags, 2) + number(record.method, 2) +
                   number(0, 8) + field(stored) + field(length) + number(record.name.size(), 2) +
                   number(extra.size(), 2) + number(0, 2) + number(0, 2) + number(0, 2) +
                   number(0, 4) + field(record.header) + record.name + extra;
    }
    std::string end;
    if (zip64_end) {
      end = "PK\6\6" + number(44, 8) + number(0, 4) + number(0, 8) + number(records.size(), 8) +
            number(records.size(), 8) + number(directory.size(), 8) + number(bytes.size(), 8);
      end += "PK\6\7" + number(0, 4) + number(bytes.size() + directory.size(), 8) + number(1, 4);
    }
    const auto narrow = [&](uint64_t value, int n) { return number(zip64_end ? ~0ull : value, n); };
    end += "PK\5\6" + number(0, 4) + narrow(records.size(), 2) + narrow(records.size(), 2) +
           narrow(directory.size(), 4) + narrow(bytes.size(), 4) + number(comment.size(), 2) +
           comment;
    return bytes + directory + end;
  }
};

/// The pickle that torch.save writes for a tensor in storage "0".
inline std::string tensor_pickle(const std::string& storage_class, int64_t storage_elements,
                                 int64_t offset, const std::vector<int64_t>& shape,
                                 const std::vector<int64_t>& strides) {
  const auto integer = [](int64_t value) { return "\x8a\x08" + number(value, 8); };
  const auto tuple = [&](const std::vector<int64_t>& values) {
    std::string text = "(";
    for (int64_t value : values) text += integer(value);
    return text + "t";
  };
  return "\x80\x02"
         "ctorch._utils\n_rebuild_tensor_v2\n((X\7" +
         number(0, 3) + "storagectorch\n" + storage_class + "\nX\1" + number(0, 3) + "0X\3" +
         number(0, 3) + "cpu" + integer(storage_elements) + "tQ" + integer(offset) + tuple(shape) +
         tuple(strides) +
         "\x89"
         "ccollections\nOrderedDict\n)RtR.";
}

/// A torch.save archive of one tensor.
inline std::string tensor_archive(const std::string& pickle, const std::string& storage) {
  ZipBuilder zip;
  zip.add("archive/data.pkl", pickle);
  zip.add("archive/byteorder", "little");
  zip.add("archive/data/0", storage);
  zip.add("archive/version", "3\n");
  return zip.finish();
}

}  // namespace ferry::test
