#include "trainer/loop/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>

#include "trainer/loop/training_log.h"

namespace ferry {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

// Little-endian, as all hosts that this is built for are.
static_assert(std::endian::native == std::endian::little);
template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string masked_checksum(std::string_view bytes) {
  return raw(std::rotr(crc32c(bytes), 15) + 0xA282EAD8u);
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes += static_cast<char>(value);
}

// A field's key: number and wire type.
constexpr char key(int number, int type) { return static_cast<char>(number << 3 | type); }
constexpr int kVarint = 0, kDouble = 1, kBytes = 2, kFloat = 5;

std::string bytes_field(int number, std::string_view bytes) {
  return key(number, kBytes) + varint(bytes.size()) + std::string(bytes);
}

std::string event(double seconds, int64_t step, const std::string& what) {
  return key(1, kDouble) + raw(seconds) + key(2, kVarint) + varint(static_cast<uint64_t>(step)) +
         what;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "host";
  std::string host(name.data());
  for (char& c : host) c = c == '/' ? '_' : c;
  return host;
}

double now_seconds() { return static_cast<double>(now_microseconds()) / 1e6; }

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  }
  return ~crc;
}

std::string event_record(std::string_view bytes) {
  const std::string length = raw(static_cast<uint64_t>(bytes.size()));
  return length + masked_checksum(length) + std::string(bytes) + masked_checksum(bytes);
}

std::string scalar_event(double seconds, int64_t step, std::string_view name, float value) {
  const std::string scalar = bytes_field(1, name) + key(2, kFloat) + raw(value);
  return event(seconds, step, bytes_field(5, bytes_field(1, scalar)));
}

EventFile::EventFile(const FileSystem& files, const std::string& folder)
    : file_(files, [&] {
        make_folders(files, folder);
        return join(folder, fmt::format("events.out.tfevents.{}.{}.{}.0",
                                        now_microseconds() / 1'000'000, host_name(), ::getpid()));
      }()) {
  file_.append(event_record(event(now_seconds(), 0, bytes_field(3, "brain.Event:2"))));
}

void EventFile::add(std::string_view name, double value, int64_t step) {
  file_.append(event_record(scalar_event(now_seconds(), step, name, static_cast<float>(value))));
}

}  // namespace ferry
