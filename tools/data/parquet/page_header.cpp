#include "tools/data/parquet/page_header.h"

#include <initializer_list>
#include <utility>

namespace ferry::tool {
namespace {

// The numbers among a structure's fields: each its id, and where it goes.
using Numbers = std::initializer_list<std::pair<int64_t, int64_t*>>;

bool read_number(ThriftReader& in, const ThriftField& field, Numbers numbers) {
  for (const auto& [id, number] : numbers) {
    if (field.id != id) continue;
    *number = in.integer(field);
    return true;
  }
  return false;
}

void read_numbers(ThriftReader& in, const ThriftField& of, Numbers numbers) {
  in.expect(of.type, ThriftType::structure);
  in.structure([&](const ThriftField& field) { return read_number(in, field, numbers); });
}

}  // namespace

ParquetPageHeader read_parquet_page_header(ThriftReader& in) {
  ParquetPageHeader header;
  const auto read_version_2 = [&](const ThriftField& of) {
    in.expect(of.type, ThriftType::structure);
    in.structure([&](const ThriftField& field) {
      if (field.id == 7) {
        header.is_compressed = in.boolean(field);
        return true;
      }
      return read_number(in, field,
                         {{1, &header.values},
                          {4, &header.encoding},
                          {5, &header.definition_bytes},
                          {6, &header.repetition_bytes}});
    });
  };
  in.structure([&](const ThriftField& field) {
    switch (field.id) {
      case 5:  // a data page
        read_numbers(in, field,
                     {{1, &header.values}, {2, &header.encoding}, {3, &header.level_encoding}});
        return true;
      case 7:  // a dictionary
        read_numbers(in, field, {{1, &header.values}, {2, &header.encoding}});
        return true;
      case 8:
        read_version_2(field);
        return true;
      default:
        return read_number(in, field,
                           {{1, &header.type}, {2, &header.bytes}, {3, &header.stored_bytes}});
    }
  });
  return header;
}

}  // namespace ferry::tool
