// write_events FOLDER: an event file with scalars that tests/interop/trainer/check_events.py knows.
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>

#include "trainer/log/log_files.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const auto files = ferry::posix_file_system();
    ferry::EventFile events(*files, argv[1]);
    for (int64_t step = 1; step <= 1000; ++step) {
      events.add("lm loss", 5.0 / static_cast<double>(step), step);
    }
    events.add("lm loss vs samples", 0.25, int64_t{1} << 40);
    events.add("learning-rate", 1e-8, 3);
    events.add("loss-scale", 4294967296.0, 0);
    events.add("grad-norm", NAN, 7);
    events.add(std::string(300, 'n'), -1.5, 1);
    events.sync();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
