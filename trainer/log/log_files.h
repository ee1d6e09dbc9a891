// A file of a run folder that only grows: logs, events, metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/io/file_system.h"
#include "trainer/log/log_lines.h"

namespace ferry {

/// Appends to an existing file or creates one. If others truncate it meanwhile, as logrotate's
/// copytruncate does, the next bytes follow what is left; if they rename it, writing continues
/// under the new name. One writer at a time; not thread-safe.
class GrowingFile {
 public:
  GrowingFile(const FileSystem& files, const std::string& path);
  /// On error nothing of it remains in the file, if the file system allows.
  void append(std::string_view bytes);
  /// Returns once everything is on disk.
  void sync() { file_->sync(); }

 protected:
  std::optional<std::byte> last_byte() const { return file_->last_byte(); }

 private:
  std::unique_ptr<AppendableFile> file_;
};

/// A file of lines. A last line that a kill or a full disk cut short is ended first, so that it
/// does not corrupt the next one.
class LineFile : public GrowingFile {
 public:
  using GrowingFile::GrowingFile;
  void append(std::string_view line);
};

/// Locks an existing file for exclusive writing by a run. busy if another run holds it.
std::unique_ptr<LockableFile> lock_of_writer(const FileSystem& files, const std::string& path);

// TensorBoard's event files: scalars by name and step.
//
// Source: TensorFlow's core/util/event.proto and core/framework/summary.proto (field numbers),
// core/lib/io/record_writer.cc (records), core/lib/hash/crc32c.h (masks).

/// Castagnoli's cyclic redundancy check (RFC 3720).
uint32_t crc32c(std::string_view bytes);

/// Length, checksum of the length, bytes, checksum of the bytes.
std::string event_record(std::string_view bytes);

/// An Event with a scalar; `seconds` since the epoch.
std::string scalar_event(double seconds, int64_t step, std::string_view name, float value);

/// One file for each process: events.out.tfevents.SECONDS.HOST.PROCESS.0
class EventFile {
 public:
  EventFile(const FileSystem& files, const std::string& folder);
  void add(std::string_view name, double value, int64_t step);
  void sync() { file_.sync(); }

 private:
  GrowingFile file_;
};

// The metrics of an iteration in machine-readable form: as TensorBoard scalars under Megatron-LM's
// names, and as JSON lines.
//
// Source: Megatron-LM megatron/training/training.py (training_log, evaluate_and_print_results).

struct Scalar {
  std::string name;
  double value = 0;
  int64_t step = 0;  // an iteration, or consumed samples ("... vs samples")
};

/// For iterations divisible by --tensorboard-log-interval. `line` has this iteration's own figures,
/// not averages; missing ones are left out.
std::vector<Scalar> training_scalars(const TrainArguments& arguments, const TrainingLine& line);
/// For logged iterations except a process's first: average time and throughput.
std::vector<Scalar> timing_scalars(const TrainArguments& arguments, const TrainingLine& line);
std::vector<Scalar> validation_scalars(const TrainArguments& arguments, const NamedLosses& losses,
                                       int64_t iteration, int64_t consumed_samples);

/// {"iteration": 5, "consumed_samples": 40, "lm loss": 5.5, ...} and a newline; non-finite values
/// are null.
std::string metrics_json(const TrainingLine& line);
std::string validation_json(const NamedLosses& losses, int64_t iteration, int64_t consumed_samples);

}  // namespace ferry
