#include "tools/terminal/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string_view>

#include "ckpt/group/mpi/launcher.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"

namespace ferry::tool {

namespace {

constexpr double kSecondsBetweenLines = 30, kSecondsInPlace = 0.1;

size_t terminal_columns() {
  struct winsize size {};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

std::string progress_line(const Progress& progress, double seconds) {
  const auto done = static_cast<double>(progress.bytes_done);
  const auto total = static_cast<double>(progress.bytes_total);
  std::string line =
      fmt::format("{:3.0f}%  {} of {}", total > 0 ? 100 * done / total : 100.0,
                  human_bytes(progress.bytes_done), human_bytes(progress.bytes_total));
  if (seconds <= 0 || done <= 0) return line;
  const double rate = done / seconds;
  line += fmt::format("  {}/s", human_bytes(static_cast<uint64_t>(rate)));
  if (done < total) line += fmt::format("  {} left", human_seconds((total - done) / rate));
  return line;
}

std::string cut_to_width(std::string text, size_t columns) {
  // The last column is left: some terminals begin a new line when it is written to.
  if (columns > 1 && text.size() >= columns) text.resize(columns - 1);
  return text;
}

ProgressManner progress_manner(bool is_terminal, const char* terminal, bool in_logs) {
  if (!is_terminal) return in_logs ? ProgressManner::line_by_line : ProgressManner::silent;
  const bool is_plain = terminal == nullptr || std::string_view(terminal) == "dumb";
  return is_plain ? ProgressManner::line_by_line : ProgressManner::in_place;
}

bool is_progress_due(ProgressManner manner, double elapsed, double last) {
  if (manner == ProgressManner::silent || elapsed < 1) return false;
  const bool in_place = manner == ProgressManner::in_place;
  return elapsed - last >= (in_place ? kSecondsInPlace : kSecondsBetweenLines);
}

ProgressLine::ProgressLine(std::string what, bool in_logs)
    : what_(std::move(what)),
      start_(std::chrono::steady_clock::now()),
      manner_(progress_manner(isatty(STDERR_FILENO) == 1, process_environment()("TERM"), in_logs)) {
}

ProgressLine::~ProgressLine() {
  if (shown_ && manner_ == ProgressManner::in_place) print_aside("\r\033[K");
}

double ProgressLine::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void ProgressLine::show(const Progress& progress) {
  const double elapsed = seconds();
  if (!is_progress_due(manner_, elapsed, last_)) return;
  last_ = elapsed;
  const std::string line = fmt::format("{} {}", what_, progress_line(progress, elapsed));
  const bool in_place = manner_ == ProgressManner::in_place;
  print_aside(in_place ? "\r\033[K" + cut_to_width(line, terminal_columns()) : line + "\n");
  shown_ = true;
}

}  // namespace ferry::tool
