// TensorBoard's event files: scalars by name and step.
//
// Source: TensorFlow's core/util/event.proto and core/framework/summary.proto (field numbers),
// core/lib/io/record_writer.cc (records), core/lib/hash/crc32c.h (masks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/loop/growing_file.h"

namespace ferry {

/// Castagnoli's cyclic redundancy check (RFC 3720).
uint32_t crc32c(std::string_view bytes);

/// Length, checksum of the length, bytes, checksum of the bytes.
std::string event_record(std::string_view bytes);

/// An Event with a scalar; `seconds` since 1970.
std::string scalar_event(double seconds, int64_t step, std::string_view name, float value);

/// A file of its own for each process: events.out.tfevents.SECONDS.HOST.PROCESS.0
class EventFile {
 public:
  EventFile(const FileSystem& files, const std::string& folder);
  void add(std::string_view name, double value, int64_t step);
  void sync() { file_.sync(); }

 private:
  GrowingFile file_;
};

}  // namespace ferry
