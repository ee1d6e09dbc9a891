// A run with a journal in which one operation fails once: what the next run makes of it is what an
// undisturbed one writes, wherever that was.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/io/fault_file_system.h"
#include "tests/io/memory_file_system.h"
#include "text/byte_tokenizer.h"
#include "tools/data/tokenize/tokenize_run.h"

namespace ferry::tool {
namespace {

const std::vector<std::string> kOutputs = {"/o/a.bin", "/o/a.idx", "/o/b.bin", "/o/b.idx"};

// More documents than the index keeps in memory, so that pieces are written while they are added.
std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "{\"a\": \"" + std::to_string(i) + "\", \"b\": \"x\"}\n";
  return text;
}

TEST(TokenizeRun, GoesOnAfterAnOperationThatFailedOnce) {
  const std::string text = lines(80000);
  const auto run = [&](const std::shared_ptr<const FileSystem>& files) {
    TokenizePlan plan;
    plan.inputs = {{.path = "/in.jsonl", .can_seek = true, .bytes = text.size()}};
    plan.inputs[0].format = TextFormat::json_lines;
    plan.ranges = ranges_of(plan.inputs, {});
    plan.encode.keys = plan.reader.columns = {"a", "b"};
    plan.prefixes = {"/o/a", "/o/b"};
    plan.journal_seconds = 1e9;  // so that what one piece too many left shows
    const ByteTokenizer tokenizer;
    Journal journal(files, "/o/out", nlohmann::json{{"input", "the same"}});
    tokenize(files, tokenizer, plan, &journal, {[](const EncodeCounts&, uint64_t) {}, [] {}});
  };
  const auto begun = [&] {
    auto memory = std::make_shared<MemoryFileSystem>();
    memory->put("/in.jsonl", text);
    memory->create_folder("/o");
    return memory;
  };
  const auto whole = begun();
  run(whole);
  int failed = 0;
  for (uint64_t fail_at = 1;; ++fail_at) {
    const auto memory = begun();
    const auto faulty = std::make_shared<FaultFileSystem>(memory, fail_at, ErrorKind::exhausted);
    bool is_done = false;
    try {
      run(faulty);
      is_done = true;
    } catch (const Error&) {
      ++failed;
    }
    if (is_done && faulty->operations() < fail_at) break;
    if (memory->status("/o/b.idx").kind == PathKind::missing) run(memory);
    for (const std::string& path : kOutputs) {
      ASSERT_EQ(memory->get(path) == whole->get(path), true) << path << " after " << fail_at;
    }
  }
  EXPECT_GT(failed, 10);
}

}  // namespace
}  // namespace ferry::tool
