#include "trainer/log/log_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "ckpt/base/error.h"
#include "trainer/log/log_lines.h"

namespace ferry {

GrowingFile::GrowingFile(const FileSystem& files, const std::string& path) {
  const PathStatus status = files.status(path);
  if (status.kind == PathKind::missing && !status.link) files.create(path, 0);
  file_ = files.open_to_append(files.real_path(path));  // keeps symbolic links
}

void GrowingFile::append(std::string_view bytes) {
  file_->append(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

void LineFile::append(std::string_view line) {
  if (last_byte().value_or(std::byte{'\n'}) == std::byte{'\n'}) return GrowingFile::append(line);
  GrowingFile::append("\n" + std::string(line));  // in one write, so that lines are not interleaved
}

std::unique_ptr<LockableFile> lock_of_writer(const FileSystem& files, const std::string& path) {
  auto lock = files.open_lockable(path, LockMode::exclusive);
  if (lock->lock(LockMode::exclusive) != LockState::busy) return lock;
  fail(ErrorKind::busy, "{} is being written by another run; name another file", path);
}

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

// Little-endian, like all supported hosts.
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

// A protobuf field key: number and wire type.
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

namespace {

using Json = nlohmann::ordered_json;

class Scalars {
 public:
  Scalars(int64_t iteration, int64_t samples) : iteration_(iteration), samples_(samples) {}

  void add(const std::string& name, double value) { all_.push_back({name, value, iteration_}); }
  void add_both(const std::string& name, double value) {
    add(name, value);
    all_.push_back({name + " vs samples", value, samples_});
  }
  std::vector<Scalar> all() && { return std::move(all_); }

 private:
  int64_t iteration_, samples_;
  std::vector<Scalar> all_;
};

Json json_number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

std::vector<Scalar> training_scalars(const TrainArguments& a, const TrainingLine& line) {
  Scalars scalars(line.iteration, line.consumed_samples);
  if (line.learning_rate) scalars.add_both("learning-rate", *line.learning_rate);
  if (line.skipped_samples > 0) {
    scalars.add("skipped-train-samples", static_cast<double>(line.skipped_samples));
  }
  scalars.add_both("batch-size", static_cast<double>(line.batch_size));
  for (const auto& [name, loss] : line.losses) scalars.add_both(name, loss);
  if (a.log_loss_scale_to_tensorboard) scalars.add_both("loss-scale", line.loss_scale);
  if (a.log_world_size_to_tensorboard) {
    scalars.add_both("world-size", static_cast<double>(a.world_size));
  }
  if (line.gradient_norm) scalars.add_both("grad-norm", *line.gradient_norm);
  if (line.zeros) scalars.add_both("num-zeros", *line.zeros);
  if (line.parameter_norm) scalars.add_both("params-norm", *line.parameter_norm);
  return std::move(scalars).all();
}

std::vector<Scalar> timing_scalars(const TrainArguments& a, const TrainingLine& line) {
  Scalars scalars(line.iteration, line.consumed_samples);
  if (!a.log_timers_to_tensorboard) return {};
  scalars.add("iteration-time", line.milliseconds / 1000);
  if (line.teraflops) scalars.add("throughput", *line.teraflops);
  return std::move(scalars).all();
}

std::vector<Scalar> validation_scalars(const TrainArguments& a, const NamedLosses& losses,
                                       int64_t iteration, int64_t consumed_samples) {
  std::vector<Scalar> all;
  const auto add = [&](const std::string& name, double value) {
    all.push_back({name, value, iteration});
    all.push_back({name + " vs samples", value, consumed_samples});
  };
  for (const auto& [name, loss] : losses) {
    add(name + " validation", loss);
    if (a.log_validation_ppl_to_tensorboard) add(name + " validation ppl", perplexity(loss));
  }
  return all;
}

std::string metrics_json(const TrainingLine& line) {
  Json json = {{"iteration", line.iteration},
               {"consumed_samples", line.consumed_samples},
               {"skipped_samples", line.skipped_samples},
               {"milliseconds", json_number(line.milliseconds)},
               {"global_batch_size", line.batch_size},
               {"loss_scale", json_number(line.loss_scale)}};
  for (const auto& [name, loss] : line.losses) json[name] = json_number(loss);
  if (line.learning_rate) json["learning_rate"] = json_number(*line.learning_rate);
  if (line.teraflops) json["teraflops"] = json_number(*line.teraflops);
  if (line.gradient_norm) json["grad_norm"] = json_number(*line.gradient_norm);
  if (line.zeros) json["num_zeros"] = json_number(*line.zeros);
  if (line.parameter_norm) json["params_norm"] = json_number(*line.parameter_norm);
  json["skipped_iterations"] = line.skipped;
  json["nan_iterations"] = line.nan;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string validation_json(const NamedLosses& losses, int64_t iteration,
                            int64_t consumed_samples) {
  Json json = {{"iteration", iteration}, {"consumed_samples", consumed_samples}};
  for (const auto& [name, loss] : losses) json[name + " validation"] = json_number(loss);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ferry
