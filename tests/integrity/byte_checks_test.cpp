// Checksums of all kinds, overlapping or apart, against the bytes of files.
#include "ckpt/integrity/checks/byte_checks.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "ckpt/base/error.h"
#include "ckpt/integrity/manifest/sha256_manifest.h"
#include "ckpt/io/forwarding_file_system.h"
#include "tests/io/memory_file_system.h"
#include "tests/random_cases.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

Sha256 sha256_of(std::string_view text) {
  Sha256Stream stream;
  stream.add(bytes_of(text));
  return stream.finish();
}

TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(to_hex(sha256_of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256_of("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256Stream pieces;
  pieces.add(bytes_of("a"));
  pieces.add(bytes_of("bc"));
  EXPECT_EQ(pieces.finish(), sha256_of("abc"));
}

// Two files of random bytes under checks of every kind.
struct Files {
  Files() {
    std::mt19937 random(1);
    for (const size_t size : {300'000, 70'000}) {
      std::string content(size, '\0');
      for (char& c : content) c = static_cast<char>(random());
      files.push_back({"file" + std::to_string(files.size()), size});
      memory.put(files.back().path, content);
      contents.push_back(std::move(content));
    }
  }

  void add(uint32_t file, uint64_t offset, uint64_t bytes, int kind) {
    const std::string_view text = std::string_view(contents[file]).substr(offset, bytes);
    Checksum expected = digest_of(bytes_of(text));
    if (kind == 1) expected = Crc32{crc32(bytes_of(text))};
    if (kind == 2) expected = sha256_of(text);
    checks.push_back({file, offset, bytes, expected});
  }

  std::vector<uint32_t> failed(int threads = 1, uint64_t memory_bytes = 1 << 20) {
    EngineOptions options;
    options.threads = threads;
    options.memory_bytes = memory_bytes;
    std::vector<uint32_t> numbers;
    for (const FailedCheck& failure : run_checks(memory, files, checks, options)) {
      numbers.push_back(failure.check);
      EXPECT_EQ(failure.problem, "");
    }
    return numbers;
  }

  void damage(uint32_t file, uint64_t offset) {
    std::string content = contents[file];
    content[offset] = static_cast<char>(content[offset] ^ 16);
    memory.put(files[file].path, content);
  }

  MemoryFileSystem memory;
  std::vector<FileInfo> files;
  std::vector<std::string> contents;
  std::vector<ByteCheck> checks;
};

TEST(ByteChecks, HoldAndFailHoweverTheyLie) {
  for (const int threads : {1, 3}) {
    for (const uint64_t memory : {1'000, 1 << 20}) {
      Files files;
      files.add(1, 0, 70'000, 2);         // 0: a whole file
      files.add(0, 100'000, 150'000, 0);  // 1: longer than a block
      files.add(0, 10, 90, 0);            // 2
      files.add(0, 20, 30, 1);            // 3: inside of 2
      files.add(0, 90, 60, 1);            // 4: begins inside of 2, ends after it
      files.add(0, 150, 0, 0);            // 5: empty
      files.add(1, 70'000, 0, 1);         // 6: empty, at the end of the file
      files.add(0, 249'999, 1, 2);        // 7: the last byte of 1
      EXPECT_THAT(files.failed(threads, memory), IsEmpty());
      files.damage(0, 95);
      EXPECT_THAT(files.failed(threads, memory), ElementsAre(2, 4));
      files.damage(0, 249'999);
      EXPECT_THAT(files.failed(threads, memory), ElementsAre(1, 7));
      files.damage(0, 5);  // under no check
      EXPECT_THAT(files.failed(threads, memory), IsEmpty());
      files.damage(1, 69'999);
      EXPECT_THAT(files.failed(threads, memory), ElementsAre(0));
      EXPECT_EQ(covered_bytes(files.checks), 70'000u + 150'000 + 140);
    }
  }
}

TEST(ByteChecks, RandomOnesFailExactlyWhereTheDamageIs) {
  test::for_random_cases(50, [](uint64_t number) {
    std::mt19937 random(static_cast<uint32_t>(number));
    const auto below = [&](uint64_t limit) { return random() % limit; };
    Files files;
    for (int i = 0; i < 40; ++i) {
      const auto file = static_cast<uint32_t>(below(2));
      const uint64_t offset = below(files.contents[file].size());
      const uint64_t most = files.contents[file].size() - offset;
      files.add(file, offset, below(i % 2 ? most : std::min<uint64_t>(most, 500)), i % 3);
    }
    const auto file = static_cast<uint32_t>(below(2));
    const uint64_t at = below(files.contents[file].size());
    files.damage(file, at);
    std::vector<uint32_t> expected;
    for (uint32_t i = 0; i < files.checks.size(); ++i) {
      const ByteCheck& check = files.checks[i];
      if (check.file == file && at >= check.offset && at - check.offset < check.bytes) {
        expected.push_back(i);
      }
    }
    EXPECT_THAT(files.failed(1 + static_cast<int>(below(3)), 1 + below(1 << 20)),
                testing::UnorderedElementsAreArray(expected));
  });
}

TEST(ByteChecks, WhatCannotBeReadFailsAndTheRestGoesOn) {
  Files files;
  files.add(0, 0, 10, 0);
  files.add(0, 200'000, 100'000, 0);  // cut off
  files.add(1, 0, 10, 0);             // gone
  files.memory.put("file0", files.contents[0].substr(0, 250'000));
  files.memory.remove_all("file1");
  const auto failed = run_checks(files.memory, files.files, files.checks, {});
  ASSERT_EQ(failed.size(), 2u);
  EXPECT_EQ(failed[0].check, 1u);
  EXPECT_THAT(failed[0].problem, HasSubstr("file0"));
  EXPECT_EQ(failed[1].check, 2u);
  EXPECT_THAT(failed[1].problem, HasSubstr("file1"));
}

TEST(ByteChecks, ReportProgressAndStopOnRequest) {
  Files files;
  files.add(0, 0, 300'000, 0);
  files.add(0, 100, 300, 1);
  EngineOptions options;
  Progress last;
  options.progress = [&](const Progress& progress) { last = progress; };
  EXPECT_THAT(run_checks(files.memory, files.files, files.checks, options), IsEmpty());
  EXPECT_EQ(last.bytes_done, 300'000u);
  EXPECT_EQ(last.bytes_total, 300'000u);
  const std::atomic<bool> cancel{true};
  options.cancel = &cancel;
  EXPECT_THROW(run_checks(files.memory, files.files, files.checks, options), Error);
}

// As json.dump(..., indent=2) of Python prints it.
TEST(Sha256Manifest, IsThatOfMegatronCore) {
  MemoryFileSystem memory;
  memory.put("f/b", "abc");
  memory.put("f/a\"", "");
  const std::string text = sha256_manifest_text(hash_folder(memory, "f", 2));
  EXPECT_EQ(text,
            "{\n  \"algorithm\": \"sha256\",\n  \"files\": {\n    \"a\\\"\": "
            "\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\",\n    \"b\": "
            "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\n  }\n}");
  EXPECT_EQ(parse_sha256_manifest(text, "m"), hash_folder(memory, "f", 1));
}

TEST(Sha256Manifest, NamesFilesOfFoldersInside) {
  MemoryFileSystem memory;
  for (const char* name : {"f/z", "f/b/c", "f/b/a/d"}) memory.put(name, name);
  std::vector<std::string> names;
  for (const auto& [name, hash] : hash_folder(memory, "f", 2)) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"b/a/d", "b/c", "z"}));
}

// One file cannot be opened, the others take their time.
class OneBadFile final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;

  std::shared_ptr<const ReadableFile> open(const std::string& path) const override {
    if (path == "f/000") fail(ErrorKind::io, "{}: no luck", path);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ++opened;
    return inner().open(path);
  }

  mutable std::atomic<int> opened{0};
};

TEST(Sha256Manifest, IsGivenUpAtTheFirstError) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  for (int i = 0; i < 500; ++i) memory->put(fmt::format("f/{:03}", i), "x");
  const OneBadFile files(memory);
  EXPECT_THROW(hash_folder(files, "f", 2), Error);
  EXPECT_LT(files.opened, 250);
}

TEST(Sha256Manifest, RefusesWhatItIsNot) {
  const auto kind_of = [](const std::string& text) {
    try {
      parse_sha256_manifest(text, "m");
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::internal;
  };
  EXPECT_EQ(kind_of(""), ErrorKind::corrupt);
  EXPECT_EQ(kind_of("[]"), ErrorKind::corrupt);
  EXPECT_EQ(kind_of("{}"), ErrorKind::corrupt);
  EXPECT_EQ(kind_of(R"({"files": {"a": 5}})"), ErrorKind::corrupt);
  EXPECT_EQ(kind_of(R"({"files": {"a": "00"}})"), ErrorKind::corrupt);
  EXPECT_EQ(kind_of(R"({"files": {"../a": ")" + std::string(64, '0') + "\"}}"), ErrorKind::corrupt);
  EXPECT_EQ(kind_of(R"({"algorithm": "md5", "files": {}})"), ErrorKind::unsupported);
  EXPECT_TRUE(parse_sha256_manifest(R"({"files": {}})", "m").empty());
}

}  // namespace
}  // namespace ferry
