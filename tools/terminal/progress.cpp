#include "tools/terminal/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tools/terminal/output.h"
#include "tools/terminal/text.h"

namespace ferry::tool {

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

ProgressLine::ProgressLine(std::string what)
    : what_(std::move(what)),
      start_(std::chrono::steady_clock::now()),
      terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (shown_) print_aside("\r\033[K");
}

double ProgressLine::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void ProgressLine::show(const Progress& progress) {
  const double elapsed = seconds();
  if (!terminal_ || elapsed < 1 || elapsed - last_ < 0.1) return;
  last_ = elapsed;
  print_aside(fmt::format("\r\033[K{} {}", what_, progress_line(progress, elapsed)));
  shown_ = true;
}

}  // namespace ferry::tool
