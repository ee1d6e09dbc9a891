#include <cstdlib>
#include <memory>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/store/run_folder.h"
#include "tests/io/memory_file_system.h"

// Any bytes, met as a tracker, as --iteration and as a folder's name, choose a complete iteration
// or are an Error that says what is there.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
  const std::string text(reinterpret_cast<const char*>(data), size);
  RunFolder run;
  run.path = "run";
  run.tracker = parse_tracker(text);
  const auto add = [&](std::string name, std::optional<int64_t> iteration, std::string unfinished) {
    run.iterations.push_back(
        {std::move(name), iteration, [text = std::move(unfinished)] { return text; }});
  };
  add("iter_0000005", 5, "");
  add("iter_0000010", 10, "no .metadata");
  if (const auto iteration = iteration_of(text)) {
    add(text, iteration, *iteration % 2 ? "" : "the folder is empty");
  }
  add("release", std::nullopt, "");
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
