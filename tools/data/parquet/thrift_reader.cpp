#include "tools/data/parquet/thrift_reader.h"

#include "ckpt/base/error.h"

namespace ferry::tool {
namespace {

constexpr int kDeepestThrift = 32;

}  // namespace

ThriftReader::Depth::Depth(ThriftReader& reader) : reader_(reader) {
  if (++reader_.depth_ <= kDeepestThrift) return;
  --reader_.depth_;
  fail(ErrorKind::corrupt, "its metadata nest structures more than {} deep", kDeepestThrift);
}

uint8_t ThriftReader::byte() {
  if (at_ >= bytes_.size()) throw ThriftEnd();
  return static_cast<uint8_t>(bytes_[at_++]);
}

void ThriftReader::pass(uint64_t bytes) {
  if (bytes > bytes_.size() - at_) throw ThriftEnd();
  at_ += bytes;
}

uint64_t ThriftReader::varint() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const uint64_t next = byte();
    value |= (next & 0x7F) << shift;
    if (next < 0x80) return value;
  }
  fail(ErrorKind::corrupt, "a number in its metadata has more than 64 bits");
}

int64_t ThriftReader::zigzag() {
  const uint64_t value = varint();
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

void ThriftReader::expect(ThriftType found, ThriftType expected) {
  if (found == expected) return;
  fail(ErrorKind::corrupt, "a field of its metadata has the type {}, and should have {}",
       static_cast<int>(found), static_cast<int>(expected));
}

// `field` is the one before: the numbers of a structure's fields count on from each other.
bool ThriftReader::next_field(ThriftField& field) {
  const uint8_t header = byte();
  const int type = header & 0x0F, step = header >> 4;
  if (type == 0) return false;
  if (type > static_cast<int>(ThriftType::uuid)) {
    fail(ErrorKind::corrupt, "a field of its metadata has the type {}, which is none", type);
  }
  field.id = step == 0 ? zigzag() : field.id + step;
  if (field.id < INT16_MIN || field.id > INT16_MAX) {
    fail(ErrorKind::corrupt, "a field of its metadata has the number {}", field.id);
  }
  field.type = static_cast<ThriftType>(type);
  return true;
}

int64_t ThriftReader::integer(const ThriftField& field) {
  if (field.type != ThriftType::i16 && field.type != ThriftType::i32) {
    expect(field.type, ThriftType::i64);
  }
  return zigzag();
}

bool ThriftReader::boolean(const ThriftField& field) {
  if (field.type == ThriftType::no) return false;
  expect(field.type, ThriftType::yes);
  return true;
}

std::string_view ThriftReader::text() {
  const uint64_t length = varint();
  const size_t begin = at_;
  pass(length);
  return {reinterpret_cast<const char*>(bytes_.data()) + begin, length};
}

std::string_view ThriftReader::text(const ThriftField& field) {
  expect(field.type, ThriftType::binary);
  return text();
}

ThriftList ThriftReader::read_list(const ThriftField& field) {
  if (field.type != ThriftType::set) expect(field.type, ThriftType::list);
  const uint8_t header = byte();
  const int type = header & 0x0F;
  if ((type == 0 && header != 0) || type > static_cast<int>(ThriftType::uuid)) {
    fail(ErrorKind::corrupt, "a list in its metadata is of type {}, which is none", type);
  }
  ThriftList list{static_cast<uint64_t>(header >> 4), static_cast<ThriftType>(type)};
  if (list.size == 15) list.size = varint();
  if (list.size > bytes_.size() - at_) throw ThriftEnd();  // each element has a byte at least
  return list;
}

void ThriftReader::skip_elements(ThriftType type, uint64_t count) {
  if (count > bytes_.size() - at_) throw ThriftEnd();
  // Truth values are a byte each here, and none at all as fields.
  if (type == ThriftType::yes || type == ThriftType::no) return pass(count);
  for (uint64_t i = 0; i < count; ++i) skip(type);
}

void ThriftReader::skip(ThriftType type) {
  const Depth depth(*this);
  switch (type) {
    case ThriftType::stop:
    case ThriftType::yes:
    case ThriftType::no:
      return;
    case ThriftType::byte:
      return pass(1);
    case ThriftType::i16:
    case ThriftType::i32:
    case ThriftType::i64:
      static_cast<void>(varint());
      return;
    case ThriftType::real:
      return pass(8);
    case ThriftType::uuid:
      return pass(16);
    case ThriftType::binary:
      static_cast<void>(text());
      return;
    case ThriftType::list:
    case ThriftType::set: {
      const ThriftList list = read_list({0, ThriftType::list});
      return skip_elements(list.type, list.size);
    }
    case ThriftType::map: {
      const uint64_t size = varint();
      if (size == 0) return;
      const uint8_t types = byte();
      if (size > bytes_.size() - at_) throw ThriftEnd();
      for (uint64_t i = 0; i < size; ++i) {
        skip_elements(static_cast<ThriftType>(types >> 4), 1);
        skip_elements(static_cast<ThriftType>(types & 0x0F), 1);
      }
      return;
    }
    case ThriftType::structure:
      for (ThriftField field; next_field(field);) skip(field.type);
      return;
  }
}

}  // namespace ferry::tool
