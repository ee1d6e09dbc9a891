#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/signals_blocked.h"
#include "ckpt/engine/run.h"
#include "ckpt/io/staging/reader_lock.h"
#include "ckpt/memory/load_plan.h"
#include "ckpt/memory/read_units.h"
#include "ckpt/memory/tensor_memory.h"

namespace ferry {
namespace {

// How often a caller who waits sees that it is to stop.
constexpr std::chrono::milliseconds kCancelInterval{50};
// Tensors that were returned and count as long as they are kept.
constexpr size_t kReturned = 2;

}  // namespace

// The engine writes files, one a tensor, whose memory is granted in their order: a thread waits
// when it comes to one that has none yet. The caller takes them in that order, too, so that
// whichever it waits for can be completed.
class TensorStream::State {
 public:
  State(TensorSet tensors, StreamOptions options);
  ~State();

  std::span<const Entry* const> tensors() const noexcept { return returned_; }
  std::optional<OwnedTensor> next();

 private:
  class File;

  void read(const Plan& plan) noexcept;  // on the stream's thread
  void complete(File& file);
  void wait_for_memory(size_t number);
  bool grant();
  uint64_t held() const;
  void wait_for(const std::function<bool()>& done, std::unique_lock<std::mutex>& lock);
  std::optional<OwnedTensor> take(File& file);

  const TensorSet tensors_;
  EngineOptions options_;
  const std::atomic<bool>* cancel_;  // the caller's
  uint64_t memory_bytes_ = 0;        // for tensors
  std::vector<std::unique_ptr<File>> files_;
  std::vector<const Entry*> returned_;
  std::optional<LoadPlan> plan_;
  const std::shared_ptr<TensorMemory> memory_ = std::make_shared<TensorMemory>();
  std::atomic<bool> stop_{false};

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  size_t granted_ = 0;       // files that have memory, or had
  size_t next_ = 0;          // file that the caller gets next
  uint64_t ahead_ = 0;       // bytes of those in between
  bool is_awaited_ = false;  // the caller waits for the next one
  bool is_read_ = false;     // all of them are
  // Those that were returned last: whether they are back, and their bytes.
  std::deque<std::pair<std::shared_ptr<const std::atomic<bool>>, uint64_t>> held_;
  std::exception_ptr error_;

  std::thread thread_;
};

// A tensor that is being read.
class TensorStream::State::File final : public WritableFile {
 public:
  File(State& stream, const Entry& tensor, size_t number, size_t end_of_unit, bool asked)
      : entry(tensor),
        bytes(static_cast<uint64_t>(entry.bytes())),
        unit_end(end_of_unit),
        is_asked(asked),
        is_complete(bytes == 0),
        stream_(stream),
        number_(number),
        path_("memory for tensor " + entry.name),
        left_(bytes) {}

  const std::string& path() const noexcept override { return path_; }
  void write(uint64_t offset, std::span<const std::byte> from) override {
    const std::span<std::byte> to = room(offset, from.size());
    if (!from.empty() && to.data() != from.data()) {
      std::memcpy(to.data(), from.data(), from.size());
    }
    if (left_.fetch_sub(from.size()) == from.size()) stream_.complete(*this);
  }
  void read(uint64_t, std::span<std::byte>) const override {
    fail(ErrorKind::internal, "{} is read back", path_);
  }
  void sync() override {}
  std::span<std::byte> room(uint64_t offset, uint64_t length) override {
    if (offset > bytes || length > bytes - offset) {
      fail(ErrorKind::internal, "{}: {} bytes at {} of {} are written", path_, length, offset,
           bytes);
    }
    if (memory_.load(std::memory_order_acquire) == nullptr) stream_.wait_for_memory(number_);
    return {memory_.load(std::memory_order_acquire) + offset, length};
  }

  void give(TensorMemory::Lease granted) {
    lease = std::move(granted);
    memory_.store(lease.bytes.data(), std::memory_order_release);
  }

  const Entry& entry;
  const uint64_t bytes;
  const size_t unit_end;  // number of the first file that is not read together with this one
  const bool is_asked;
  // Guarded by the stream's mutex.
  bool is_complete;
  TensorMemory::Lease lease;

 private:
  State& stream_;
  const size_t number_;
  const std::string path_;
  std::atomic<uint64_t> left_;  // bytes that are not written yet
  std::atomic<std::byte*> memory_{nullptr};
};

TensorStream::State::State(TensorSet tensors, StreamOptions options)
    : tensors_(std::move(tensors)), options_(std::move(options.engine)), cancel_(options_.cancel) {
  const TensorSet::State& set = tensors_.state();
  const std::vector<ReadUnit> units = read_units(set, options);
  const uint64_t all = options_.memory_bytes;
  options_.memory_bytes = engine_memory(set, units, all);
  options_.cancel = &stop_;
  memory_bytes_ = all - options_.memory_bytes;
  plan_.emplace(set);
  for (const ReadUnit& unit : units) {
    const size_t end = files_.size() + unit.positions.size();
    for (size_t i = 0; i < unit.positions.size(); ++i) {
      const Entry& entry = set.entries()[unit.positions[i]];
      files_.push_back(std::make_unique<File>(*this, entry, files_.size(), end, unit.is_asked[i]));
      plan_->add(unit.positions[i], *files_.back());
      if (unit.is_asked[i]) returned_.push_back(&entry);
    }
  }
  const Plan& plan = plan_->finish();
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this, &plan] { read(plan); });
  } catch (const std::system_error& error) {
    fail(ErrorKind::exhausted, "no thread for reading ahead: {}", error.what());
  }
}

TensorStream::State::~State() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void TensorStream::State::read(const Plan& plan) noexcept {
  std::exception_ptr error;
  try {
    run_in_order(plan, plan_->files(), options_);
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  error_ = error;
  is_read_ = true;
  changed_.notify_all();
}

void TensorStream::State::complete(File& file) {
  const std::lock_guard lock(mutex_);
  file.is_complete = true;
  changed_.notify_all();
}

void TensorStream::State::wait_for_memory(size_t number) {
  std::unique_lock lock(mutex_);
  while (number >= granted_) {
    if (stop_) fail(ErrorKind::cancelled, "stopped on request");
    if (!grant()) changed_.wait(lock);
  }
}

// Gives memory to the next files that have none, where there is enough. A caller who waits for them
// gets them whatever it holds.
bool TensorStream::State::grant() {
  const size_t end = files_[granted_]->unit_end;
  uint64_t bytes = 0;
  for (size_t i = granted_; i < end; ++i) bytes += files_[i]->bytes;
  const bool is_due = is_awaited_ && ahead_ == 0;
  if (ahead_ + held() + bytes > memory_bytes_ && !is_due) return false;
  for (; granted_ < end; ++granted_) {
    File& file = *files_[granted_];
    const uint64_t used = ahead_ + held();
    file.give(memory_->take(file.bytes, memory_bytes_ - std::min(used, memory_bytes_)));
    ahead_ += file.lease.capacity;
  }
  changed_.notify_all();
  return true;
}

uint64_t TensorStream::State::held() const {
  uint64_t bytes = 0;
  for (const auto& [is_back, size] : held_) bytes += *is_back ? 0 : size;
  return bytes;
}

void TensorStream::State::wait_for(const std::function<bool()>& done,
                                   std::unique_lock<std::mutex>& lock) {
  for (;;) {
    if (cancel_ && *cancel_) {
      stop_ = true;
      changed_.notify_all();
      fail(ErrorKind::cancelled, "stopped on request");
    }
    if (done()) return;
    if (error_) std::rethrow_exception(error_);
    if (cancel_) {
      changed_.wait_for(lock, kCancelInterval);
    } else {
      changed_.wait(lock);
    }
  }
}

std::optional<OwnedTensor> TensorStream::State::next() {
  std::unique_lock lock(mutex_);
  is_awaited_ = true;
  changed_.notify_all();
  std::optional<OwnedTensor> tensor;
  while (!tensor && next_ < files_.size()) {
    wait_for([&] { return files_[next_]->is_complete; }, lock);
    tensor = take(*files_[next_++]);
    changed_.notify_all();
  }
  if (!tensor) wait_for([&] { return is_read_ && !error_; }, lock);
  is_awaited_ = false;
  lock.unlock();
  check_reader_locks(tensors_.state().source()->reader_locks);
  return tensor;
}

// Nothing for one that is read for the sake of another.
std::optional<OwnedTensor> TensorStream::State::take(File& file) {
  TensorMemory::Lease lease = std::exchange(file.lease, {});
  ahead_ -= lease.capacity;
  if (!file.is_asked) return std::nullopt;
  if (lease.is_back) held_.emplace_back(std::move(lease.is_back), lease.capacity);
  if (held_.size() > kReturned) held_.pop_front();
  const Entry& entry = file.entry;
  return OwnedTensor{entry.name, entry.dtype, entry.shape, lease.bytes, std::move(lease.owner)};
}

TensorStream::TensorStream(TensorSet tensors, StreamOptions options)
    : state_(std::make_unique<State>(std::move(tensors), std::move(options))) {}

TensorStream::~TensorStream() = default;

std::span<const Entry* const> TensorStream::tensors() const noexcept { return state_->tensors(); }

std::optional<OwnedTensor> TensorStream::next() { return state_->next(); }

}  // namespace ferry
