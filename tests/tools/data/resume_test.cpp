// A run with a journal in which one operation fails once: what the next run makes of it is what an
// undisturbed one writes, wherever that was.
#include <gmock/gmock.h>

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

// However many partitions have room in memory, and wherever a run stopped.
TEST(TokenizeRun, ReadsAsOftenAsPartitionsHaveNoRoom) {
  constexpr int64_t kPartitions = 5;
  auto files = std::make_shared<MemoryFileSystem>();
  const std::string text = lines(5000);
  files->put("/in.jsonl", text);
  files->create_folder("/o");
  struct Passes {
    int pieces = 0;
    std::string note;
  };
  const auto run = [&](uint64_t held_bytes, Journal* journal = nullptr, int stop_after = INT_MAX) {
    TokenizePlan plan;
    plan.inputs = {{.path = "/in.jsonl", .can_seek = true, .bytes = text.size()}};
    plan.inputs[0].format = TextFormat::json_lines;
    plan.ranges = ranges_of(plan.inputs, {});
    plan.encode.keys = plan.reader.columns = {"a", "b"};
    plan.encode.partitions = kPartitions;
    plan.reader.piece_bytes = text.size() / 20;
    plan.prefixes = {"/o/a", "/o/b"};
    plan.overwrite = true;
    plan.held_bytes = held_bytes;
    Passes passes;
    const ByteTokenizer tokenizer;
    const auto use = [&](const EncodeCounts&, uint64_t) {
      if (++passes.pieces > stop_after) fail(ErrorKind::cancelled, "stopped");
    };
    const auto note = [&](const std::string& one) { passes.note = one; };
    const TokenizeResult result = tokenize(files, tokenizer, plan, journal, {use, [] {}, note});
    EXPECT_EQ(result.counts.lines, 5000);
    return passes;
  };
  const Passes once = run(64 << 20);
  EXPECT_EQ(once.note, "");
  std::vector<std::string> whole;
  for (const std::string& path : kOutputs) whole.push_back(files->get(path));
  const auto expect_whole = [&](const std::string& what) {
    for (size_t i = 0; i < kOutputs.size(); ++i) {
      EXPECT_EQ(files->get(kOutputs[i]) == whole[i], true) << kOutputs[i] << ": " << what;
    }
  };
  const Passes each = run(0);
  EXPECT_EQ(each.pieces, kPartitions * once.pieces);
  EXPECT_THAT(each.note, testing::HasSubstr("the inputs are read 5 times"));
  expect_whole("each by itself");
  const Passes some = run(40'000);  // two or three of them
  EXPECT_GT(some.pieces, once.pieces);
  EXPECT_LT(some.pieces, each.pieces);
  expect_whole("some at once");
  for (const int stop_after : {2, once.pieces - 1, once.pieces + 1, some.pieces - 1}) {
    try {
      Journal journal(files, "/o/out", nlohmann::json{{"input", "the same"}});
      run(40'000, &journal, stop_after);
      ADD_FAILURE() << "it did not stop after " << stop_after;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::cancelled);
    }
    Journal journal(files, "/o/out", nlohmann::json{{"input", "the same"}});
    run(64 << 20, &journal);
    expect_whole("stopped after " + std::to_string(stop_after));
  }
}

}  // namespace
}  // namespace ferry::tool
