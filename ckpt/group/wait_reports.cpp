#include "ckpt/group/wait_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

namespace ferry {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBeforeHint{700}, kFirstReport{1200}, kLongestInterval{60'000};

std::string clock_text(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

}  // namespace

WaitReports::WaitReports(SayWait say, std::string who, std::function<std::string()> hint)
    : say_(std::move(say)), who_(std::move(who)), hint_(std::move(hint)) {
  if (say_) thread_ = std::thread([this] { report(); });
}

WaitReports::~WaitReports() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WaitReports::set(std::string what, Often often) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
  often_ = often;
}

// It may take as long as a name server does, and nobody is to wait for it.
std::shared_ptr<const WaitReports::Hint> WaitReports::ask_hint() const {
  const auto hint = std::make_shared<Hint>();
  std::thread([hint, ask = hint_] {
    std::string text = ask();
    const std::lock_guard lock(hint->mutex);
    hint->text = std::move(text);
  }).detach();
  return hint;
}

void WaitReports::report() {
  std::unique_lock lock(mutex_);
  const auto begin = std::chrono::steady_clock::now();
  std::shared_ptr<const Hint> hint;
  std::string said;
  if (hint_ && changed_.wait_until(lock, begin + kBeforeHint, [&] { return is_over_; })) return;
  if (hint_) hint = ask_hint();
  for (auto next = begin + kFirstReport;;) {
    if (changed_.wait_until(lock, next, [&] { return is_over_; })) return;
    const auto waited = std::chrono::steady_clock::now() - begin;
    next += std::clamp(std::chrono::duration_cast<milliseconds>(waited), kFirstReport,
                       kLongestInterval);
    if (what_ == said && often_ == Often::once) continue;
    said = what_;
    lock.unlock();  // who waits does not wait for a terminal
    say_(fmt::format("{} has waited since {} ({} s) {}{}", who_, clock_text(since_),
                     std::chrono::round<std::chrono::seconds>(waited).count(), said,
                     hint ? hint->known() : ""));
    lock.lock();
  }
}

}  // namespace ferry
