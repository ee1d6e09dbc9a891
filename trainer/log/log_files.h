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

/// Goes on behind what the file holds, or begins one. What others cut off meanwhile, as logrotate's
/// copytruncate does, is gone, and the next bytes follow what is left; a file that they rename goes
/// on under its new name. One writer at a time; one thread.
class GrowingFile {
 public:
  GrowingFile(const FileSystem& files, const std::string& path);
  /// On error nothing of it stays, where the file system lets.
  void append(std::string_view bytes);
  /// Returns when all of it is on disk.
  void sync() { file_->sync(); }

 protected:
  std::optional<std::byte> last_byte() const { return file_->last_byte(); }

 private:
  std::unique_ptr<AppendableFile> file_;
};

/// One of lines, each with its end. A last one without an end, which a kill or a full disk cut
/// short, is ended first: so it spoils no other.
class LineFile : public GrowingFile {
 public:
  using GrowingFile::GrowingFile;
  void append(std::string_view line);
};

/// Of a file that is there: for as long as a run writes it alone. busy where another one does.
std::unique_ptr<LockableFile> lock_of_writer(const FileSystem& files, const std::string& path);

// TensorBoard's event files: scalars by name and step.
//
// Source: TensorFlow's core/util/event.proto and core/framework/summary.proto (field numbers),
// core/lib/io/record_writer.cc (records), core/lib/hash/crc32c.h (masks).

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

// The figures of an iteration for programs: as TensorBoard's scalars under Megatron-LM's names, and
// as a JSON object a line.
//
// Source: Megatron-LM megatron/training/training.py (training_log, evaluate_and_print_results).

struct Scalar {
  std::string name;
  double value = 0;
  int64_t step = 0;  // an iteration, or consumed samples ("... vs samples")
};

/// Of an iteration whose number --tensorboard-log-interval divides. `line` holds the iteration's
/// own figures, with `line.losses` of this iteration alone; those that are not there are left out.
std::vector<Scalar> training_scalars(const TrainArguments& arguments, const TrainingLine& line);
/// Of an iteration that is logged, but for a process's first: time and throughput, averaged.
std::vector<Scalar> timing_scalars(const TrainArguments& arguments, const TrainingLine& line);
std::vector<Scalar> validation_scalars(const TrainArguments& arguments, const NamedLosses& losses,
                                       int64_t iteration, int64_t consumed_samples);

/// {"iteration": 5, "consumed_samples": 40, "lm loss": 5.5, ...} and a newline; what is not finite
/// is null.
std::string metrics_json(const TrainingLine& line);
std::string validation_json(const NamedLosses& losses, int64_t iteration, int64_t consumed_samples);

}  // namespace ferry
