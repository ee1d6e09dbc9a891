#include <cstdlib>
#include <memory>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/io/memory_file_system.h"
#include "ckpt/store/run_folder.h"

// Any bytes, met as a tracker, as --iteration and as a folder's name, choose a complete iteration
// or are an Error that says what is there.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
  const std::string text(reinterpret_cast<const char*>(data), size);
  RunFolder run;
  run.path = "run";
  run.tracker = parse_tracker(text);
  run.iterations = {
      {"iter_0000005", 5, ""}, {"iter_0000010", 10, "no .metadata"}, {"release", {}, ""}};
  if (const auto iteration = iteration_of(text)) {
    run.iterations.push_back({text, iteration, *iteration % 2 ? "" : "the folder is empty"});
  }
  const auto choose = [&](std::string_view requested) {
    try {
      std::string note;
      if (!choose_iteration(run, requested, &note).complete()) std::abort();
    } catch (const Error& error) {
      const std::string message = error.what();
      for (const char c : message) {
        if (c < ' ' || c > '~') std::abort();
      }
      const bool lists = message.find("Complete there: ") != std::string::npos;
      if (!lists && error.kind() != ErrorKind::invalid) std::abort();
    }
  };
  choose("");
  choose(text);
  return 0;
}
