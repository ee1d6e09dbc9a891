#include "tools/runs/follow.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <span>
#include <thread>

#include "ckpt/base/error.h"
#include "tools/report/training/log_lines.h"
#include "tools/report/training/run_sources.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr auto kLook = std::chrono::milliseconds(500);
constexpr uint64_t kPiece = 1 << 20;      // bytes
constexpr size_t kMostPending = 1 << 16;  // bytes of a line that has no end yet
constexpr size_t kMostShown = 6;          // figures of a line

std::string line_of(const LogRecord& record) {
  const std::string when = record.when.empty() ? "" : record.when + "  ";
  if (record.kind == LogRecord::Kind::saved) {
    return fmt::format("{}saved iteration {}\n", when, record.iteration);
  }
  if (record.kind == LogRecord::Kind::exit) return when + printable(record.text) + "\n";
  if (record.kind == LogRecord::Kind::job_began) return when + "a job begins\n";
  if (record.kind != LogRecord::Kind::figures) return "";
  std::string text = fmt::format("{}iteration {}", when, record.iteration);
  if (record.planned > 0) text += fmt::format("/{}", record.planned);
  size_t shown = 0;
  for (const auto& [name, value] : record.figures) {
    const bool is_count = name == "consumed_samples" || name == "global_batch_size" ||
                          name == "loss_scale" || name == "skipped_samples";
    const bool is_zero = value == 0 && name.ends_with("_iterations");
    if (is_count || is_zero || shown++ >= kMostShown) continue;
    text += fmt::format("  {} {:.6g}", printable(name), value);
  }
  return text + "\n";
}

class Follower {
 public:
  Follower(const FileSystem& files, std::string paths, const FollowOptions& options)
      : files_(files), paths_(std::move(paths)), options_(options) {}

  // What came since the last look.
  void look() {
    for (const std::string& path : run_source_files(files_, paths_)) read(path);
  }

  bool is_over() const {
    const bool is_planned = planned_ > 0 && last_ >= planned_;
    return is_planned || (options_.until && last_ >= *options_.until);
  }
  bool is_any() const { return is_any_; }

  // The last lines of what was there, then each as it comes.
  void begin() {
    is_beginning_ = false;
    for (const std::string& line : first_) print(line);
    first_.clear();
  }

 private:
  struct Source {
    uint64_t offset = 0;
    std::string line;
  };

  void read(const std::string& path) {
    Source& source = sources_[path];
    const auto file = files_.open(path);
    if (file->size() < source.offset) source = {};  // begun anew
    std::string piece;
    for (; source.offset < file->size(); source.offset += piece.size()) {
      piece.resize(std::min(kPiece, file->size() - source.offset));
      file->read(source.offset, std::as_writable_bytes(std::span(piece)));
      for (const char c : piece) {
        if (c == '\n') {
          take(source.line);
          source.line.clear();
        } else if (source.line.size() < kMostPending) {
          source.line += c;
        }
      }
    }
  }

  void take(const std::string& line) {
    const LogRecord record = read_log_line(line);
    if (record.kind == LogRecord::Kind::nothing) return;
    is_any_ = true;
    if (record.kind == LogRecord::Kind::figures && !record.is_validation) {
      last_ = record.iteration;
      if (record.planned > 0) planned_ = record.planned;
    }
    if (options_.until && last_ > *options_.until) return;  // was there before it was asked for
    const std::string text = line_of(record);
    if (text.empty()) return;
    if (!is_beginning_) return print(text);
    first_.push_back(text);
    if (first_.size() > static_cast<size_t>(options_.lines)) first_.pop_front();
  }

  const FileSystem& files_;
  std::string paths_;
  const FollowOptions& options_;
  std::map<std::string, Source> sources_;
  std::deque<std::string> first_;
  int64_t last_ = -1, planned_ = 0;
  bool is_beginning_ = true, is_any_ = false;
};

}  // namespace

bool follow_run(const FileSystem& files, const std::string& paths, const FollowOptions& options) {
  const InterruptScope interrupt;
  Follower follower(files, paths, options);
  follower.look();
  if (!follower.is_any() && options.once) {
    fail(ErrorKind::not_found, "{} shows no training yet", printable(paths));
  }
  if (!follower.is_any()) {
    print_aside("note: " + printable(paths) +
                " has no log line yet: waiting for the first (Ctrl-C ends)\n");
  }
  follower.begin();
  while (!options.once && !follower.is_over()) {
    std::this_thread::sleep_for(kLook);
    if (*interrupt.flag()) return false;
    follower.look();
  }
  return true;
}

}  // namespace ferry::tool
