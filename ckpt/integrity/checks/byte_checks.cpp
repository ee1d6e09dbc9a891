#include "ckpt/integrity/checks/byte_checks.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>
#include <tuple>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/engine/progress_meter.h"

namespace ferry {
namespace {

constexpr uint64_t kBlockBytes = 256 << 10;  // read at once: stays in the second-level cache
constexpr uint64_t kTaskBytes = 1 << 20;     // neighbours are done together up to here,
constexpr uint64_t kGapBytes = 4 << 10;      // small gaps between them are read, too
constexpr uint64_t kLongBytes = 64 << 20;    // a task of this length is not left for the end

// A run of bytes that is read from front to back, and the checks in it.
struct Task {
  uint32_t file = 0;
  uint64_t begin = 0, end = 0;  // bytes
  size_t first = 0, last = 0;   // [first, last) of the ordered checks
};

std::vector<uint32_t> in_order(std::span<const ByteCheck> checks) {
  std::vector<uint32_t> order(checks.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::tie(checks[a].file, checks[a].offset, checks[a].bytes, a) <
           std::tie(checks[b].file, checks[b].offset, checks[b].bytes, b);
  });
  return order;
}

std::vector<Task> cut_into_tasks(std::span<const ByteCheck> checks,
                                 std::span<const uint32_t> order) {
  std::vector<Task> tasks;
  for (size_t i = 0; i < order.size(); ++i) {
    const ByteCheck& check = checks[order[i]];
    const bool same_file = !tasks.empty() && tasks.back().file == check.file;
    const bool overlaps = same_file && check.offset < tasks.back().end;
    const bool joins = same_file && check.offset - tasks.back().end <= kGapBytes &&
                       tasks.back().end - tasks.back().begin < kTaskBytes;
    if (!overlaps && !joins) tasks.push_back({check.file, check.offset, check.offset, i, i});
    Task& task = tasks.back();
    task.end = std::max(task.end, check.offset + check.bytes);
    task.last = i + 1;
  }
  return tasks;
}

// The long ones first, the longest before all, so that no thread is still at one when the others
// have nothing left to do. The others stay in order, as disks like it.
void put_long_ones_first(std::vector<Task>& tasks) {
  const auto length = [](const Task& task) {
    return task.end - task.begin < kLongBytes ? 0 : task.end - task.begin;
  };
  std::stable_sort(tasks.begin(), tasks.end(),
                   [&](const Task& a, const Task& b) { return length(a) > length(b); });
}

bool is_read_only(const ByteCheck& check) {
  return std::holds_alternative<std::monostate>(check.expected);
}

// One checksum that is being computed.
class Running {
 public:
  Running(uint32_t number, const ByteCheck& check) : number_(number), check_(&check) {
    if (std::holds_alternative<Sha256>(check.expected)) sha256_.emplace();
  }

  uint32_t number() const { return number_; }
  uint64_t end() const { return check_->offset + check_->bytes; }

  // `block` is at `at` of the file.
  void add(std::span<const std::byte> block, uint64_t at) {
    if (is_read_only(*check_)) return;
    const uint64_t begin = std::max(at, check_->offset);
    const uint64_t stop = std::min(at + block.size(), end());
    const auto bytes = block.subspan(begin - at, stop - begin);
    if (std::holds_alternative<Crc32>(check_->expected)) {
      crc32_ = crc32(bytes, crc32_);
    } else if (sha256_) {
      sha256_->add(bytes);
    } else if (bytes.size() == check_->bytes) {
      digest_ = digest_of(bytes);
    } else {
      if (!stream_) stream_.emplace();
      stream_->add(bytes);
    }
  }

  bool holds() {
    if (is_read_only(*check_)) return true;
    if (const auto* crc = std::get_if<Crc32>(&check_->expected)) return crc->value == crc32_;
    if (const auto* hash = std::get_if<Sha256>(&check_->expected))
      return *hash == sha256_->finish();
    return std::get<Digest>(check_->expected) == (stream_ ? stream_->digest() : digest_);
  }

 private:
  uint32_t number_;
  const ByteCheck* check_;
  uint32_t crc32_ = 0;
  Digest digest_ = digest_of({});
  std::optional<DigestStream> stream_;  // of a run that is longer than a block
  std::optional<Sha256Stream> sha256_;
};

// What a thread needs to do tasks.
class Worker {
 public:
  Worker(const FileSystem& file_system, std::span<const FileInfo> files,
         std::span<const ByteCheck> checks, std::span<const uint32_t> order, uint64_t block_bytes,
         SeeBytes see)
      : file_system_(file_system),
        files_(files),
        checks_(checks),
        order_(order),
        buffer_(block_bytes),
        see_(std::move(see)) {}

  void run(const Task& task, ProgressMeter& meter, const std::atomic<bool>* cancel) {
    if (!open(task)) return;
    size_t next = task.first;
    for (uint64_t at = task.begin; at < task.end || next < task.last;) {
      if (cancel && *cancel) fail(ErrorKind::cancelled, "stopped on request");
      const auto block =
          std::span(buffer_).first(std::min<uint64_t>(buffer_.size(), task.end - at));
      for (; next < task.last && starts_in(order_[next], at, block.size()); ++next) {
        running_.emplace_back(order_[next], checks_[order_[next]]);
      }
      if (read(at, block)) {
        add(block, at);
        if (see_) see_(task.file, at, block);
      }
      at += block.size();
      finish(at);
      meter.add(block.size());
    }
  }

  std::vector<FailedCheck> failed;

 private:
  bool starts_in(uint32_t check, uint64_t at, uint64_t bytes) const {
    return checks_[check].offset < at + bytes || bytes == 0;
  }

  bool open(const Task& task) {
    try {
      if (!file_ || opened_ != task.file) file_ = file_system_.open(files_[task.file].path);
      opened_ = task.file;
      return true;
    } catch (const Error& error) {
      file_ = nullptr;
      for (size_t i = task.first; i < task.last; ++i) failed.push_back({order_[i], error.what()});
      return false;
    }
  }

  // On failure all that is running fails; what begins after the block goes on.
  bool read(uint64_t at, std::span<std::byte> block) {
    try {
      if (!block.empty()) file_->read(at, block);
      return true;
    } catch (const Error& error) {
      for (const Running& check : running_) failed.push_back({check.number(), error.what()});
      running_.clear();
      return false;
    }
  }

  void add(std::span<const std::byte> block, uint64_t at) {
    for (Running& check : running_) check.add(block, at);
  }

  void finish(uint64_t at) {
    std::erase_if(running_, [&](Running& check) {
      if (check.end() > at) return false;
      if (!check.holds()) failed.push_back({check.number(), {}});
      return true;
    });
  }

  const FileSystem& file_system_;
  std::span<const FileInfo> files_;
  std::span<const ByteCheck> checks_;
  std::span<const uint32_t> order_;
  std::vector<std::byte> buffer_;
  SeeBytes see_;
  std::vector<Running> running_;
  std::shared_ptr<const ReadableFile> file_;
  uint32_t opened_ = 0;
};

}  // namespace

std::vector<FailedCheck> run_checks(const FileSystem& file_system, std::span<const FileInfo> files,
                                    std::span<const ByteCheck> checks, const EngineOptions& options,
                                    const std::function<SeeBytes()>& seer) {
  const std::vector<uint32_t> order = in_order(checks);
  std::vector<Task> tasks = cut_into_tasks(checks, order);
  put_long_ones_first(tasks);
  const int threads = std::min<int>(thread_count(options.threads), static_cast<int>(tasks.size()));
  if (threads == 0) return {};
  uint64_t total = 0, longest = 0;
  for (const Task& task : tasks) {
    total += task.end - task.begin;
    longest = std::max(longest, task.end - task.begin);
  }
  const uint64_t share = options.memory_bytes / static_cast<uint64_t>(threads);
  const uint64_t block_bytes =
      std::clamp<uint64_t>(share, 1, std::clamp<uint64_t>(longest, 1, kBlockBytes));
  ProgressMeter meter(options.progress, total);
  std::vector<FailedCheck> failed;
  std::mutex mutex;
  std::atomic<size_t> next{0};
  on_threads(threads, [&](int, const std::atomic<bool>& stop) {
    Worker worker(file_system, files, checks, order, block_bytes, seer ? seer() : SeeBytes());
    for (size_t i = next++; i < tasks.size() && !stop; i = next++) {
      worker.run(tasks[i], meter, options.cancel);
    }
    const std::lock_guard lock(mutex);
    failed.insert(failed.end(), worker.failed.begin(), worker.failed.end());
  });
  meter.finish();
  std::vector<uint32_t> rank(checks.size());
  for (uint32_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
  std::sort(failed.begin(), failed.end(), [&](const FailedCheck& a, const FailedCheck& b) {
    return rank[a.check] < rank[b.check];
  });
  return failed;
}

uint64_t covered_bytes(std::span<const ByteCheck> checks) {
  uint64_t covered = 0, end = 0;
  uint32_t file = UINT32_MAX;
  for (uint32_t i : in_order(checks)) {
    const ByteCheck& check = checks[i];
    if (is_read_only(check)) continue;
    if (check.file != file) end = 0;
    file = check.file;
    const uint64_t stop = check.offset + check.bytes;
    if (stop > end) covered += stop - std::max(end, check.offset);
    end = std::max(end, stop);
  }
  return covered;
}

std::vector<ByteCheck> reads_of_uncovered(std::span<const ByteCheck> checks,
                                          std::span<const std::vector<ByteRange>> ranges) {
  std::vector<std::vector<ByteRange>> covered(ranges.size());
  for (const uint32_t i : in_order(checks)) {
    const ByteCheck& check = checks[i];
    if (check.file >= covered.size() || is_read_only(check)) continue;
    std::vector<ByteRange>& runs = covered[check.file];
    const uint64_t end = check.offset + check.bytes;
    if (runs.empty() || check.offset > runs.back().end) {
      runs.push_back({check.offset, end});
    } else {
      runs.back().end = std::max(runs.back().end, end);
    }
  }
  std::vector<ByteCheck> reads;
  for (uint32_t file = 0; file < ranges.size(); ++file) {
    for (const ByteRange& range : ranges[file]) {
      const auto run = std::ranges::partition_point(
          covered[file], [&](const ByteRange& each) { return each.end < range.end; });
      const bool is_covered = run != covered[file].end() && run->begin <= range.begin;
      if (is_covered) continue;
      reads.push_back({file, range.begin, range.end - range.begin, std::monostate()});
    }
  }
  return reads;
}

}  // namespace ferry
