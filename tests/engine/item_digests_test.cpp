// Items of a plan: CRC-32s stand where they belong and digests are those of the final bytes.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <numeric>

#include "ckpt/base/digest.h"
#include "ckpt/base/error.h"
#include "ckpt/core/item_index.h"
#include "ckpt/engine/items/written_runs.h"
#include "ckpt/engine/run.h"
#include "tests/io/fault_file_system.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

// The definition: reflected polynomial 0xedb88320, one bit at a time.
uint32_t slow_crc32(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

std::string little_endian(uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

std::string hex_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return to_hex({hash.high64, hash.low64});
}

TEST(Digest, IsThatOfXxh128sumHoweverItIsCut) {
  EXPECT_EQ(to_hex(digest_of({})), "99aa06d3014798d86001c324468d497f");
  std::string text(5000, '\0');
  std::iota(text.begin(), text.end(), '\0');
  const auto bytes = std::as_bytes(std::span(text));
  DigestStream stream;
  for (size_t at = 0; at < bytes.size(); at += 700) {
    stream.add(bytes.subspan(at, std::min<size_t>(700, bytes.size() - at)));
  }
  EXPECT_EQ(to_hex(stream.digest()), hex_of(text));
  EXPECT_EQ(to_hex(digest_of(bytes)), hex_of(text));
}

TEST(Crc32, IsThatOfZip) {
  EXPECT_EQ(crc32(std::as_bytes(std::span(std::string_view("123456789")))), 0xcbf43926u);
  const uint32_t before = crc32(std::as_bytes(std::span(std::string_view("1234"))));
  EXPECT_EQ(crc32(std::as_bytes(std::span(std::string_view("56789"))), before), 0xcbf43926u);
}

// Two files. The first: a header item, one with the CRC-32s of a transposed tensor and of a header
// after them, an empty one. The second: bytes of no item, then an item of parts of both tensors.
struct DigestedJob {
  static constexpr int64_t kRows = 300, kColumns = 70;
  static constexpr uint64_t kBytes = kRows * kColumns * 2;

  DigestedJob() {
    std::string content(2 * kBytes, '\0');
    for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * i >> 3);
    memory->put("src/a", content);
    memory->create_folder("out");
    source.file_system = memory;
    source.add_file("src/a", content.size());
    for (uint64_t i = 0; i < 2; ++i) {
      source.entries.push_back({i ? "b" : "a", DType::u16, {kRows, kColumns}, {}, Role::model});
      source.entries[i].chunks.push_back(
          {{Box::whole({kRows, kColumns})}, {}, {0, i * kBytes, kBytes}});
    }
    plan.source = SharedCatalog::borrow(source);
    plan.target.files = {{"one", 10 + 30 + kBytes + 40}, {"two", 6 + kBytes}};
    plan.literals = {{0, 0, "ten bytes."},
                     {0, 10, "thirty bytes before a payload."},
                     {0, 40 + kBytes, "placeXXXXholder, fortYYYYtes all inXXXX!"},
                     {1, 0, "no item"}};
    plan.literals[3].bytes.pop_back();
    Entry transposed{"a", DType::u16, {kColumns, kRows}, {}, Role::model};
    transposed.chunks.push_back({{Box::whole({kColumns, kRows})}, {}, {0, 40, kBytes}});
    plan.target.entries.push_back(transposed);
    plan.recipes.push_back(
        {{0}, {{0, {0, 0}, {0, 0}, {{kRows, 0, 1, 1, 1}, {kColumns, 1, 1, 0, 1}}}}, {}});
    Entry halves{"b", DType::u16, {kRows, kColumns}, {}, Role::model};
    for (int64_t half = 0; half < 2; ++half) {  // the second half comes first
      const auto offset = static_cast<uint64_t>(6 + (1 - half) * (kRows / 2) * kColumns * 2);
      halves.chunks.push_back(
          {{{{half * kRows / 2, 0}, {kRows / 2, kColumns}}}, {}, {1, offset, kBytes / 2}});
    }
    plan.target.entries.push_back(halves);
    plan.recipes.push_back({{1}, {copy_all({kRows, kColumns})}, {}});
    const Item::Payload thirty{10, 30, {40 + kBytes + 21}};
    const Item::Payload tensor{40, kBytes, {40 + kBytes + 5, 40 + kBytes + 35}};
    plan.items = {{0, 0, 10, {}},
                  {1, 6, kBytes, {}},
                  {0, 10, 30 + kBytes + 40, {thirty, tensor}},
                  {1, 6, 0, {}}};
  }

  std::shared_ptr<MemoryFileSystem> memory = std::make_shared<MemoryFileSystem>();
  Catalog source;
  Plan plan;
};

class ItemDigests : public testing::TestWithParam<std::tuple<int, uint64_t>> {};

TEST_P(ItemDigests, DigestsAndChecksAreThoseOfTheBytes) {
  DigestedJob job;
  check(job.plan);
  EngineOptions options;
  options.threads = std::get<0>(GetParam());
  options.memory_bytes = std::get<1>(GetParam());
  const std::vector<Digest> digests = run(job.plan, *job.memory, "out", options);
  ASSERT_EQ(digests.size(), job.plan.items.size());
  for (size_t i = 0; i < digests.size(); ++i) {
    const Item& item = job.plan.items[i];
    const std::string file = job.memory->get("out/" + job.plan.target.files[item.file].path);
    EXPECT_EQ(to_hex(digests[i]), hex_of(std::string_view(file).substr(item.offset, item.length)));
  }
  const std::string one = job.memory->get("out/one");
  const std::string crc =
      little_endian(slow_crc32(std::string_view(one).substr(40, DigestedJob::kBytes)));
  const std::string of_header = little_endian(slow_crc32(std::string_view(one).substr(10, 30)));
  EXPECT_EQ(one.substr(40 + DigestedJob::kBytes),
            "place" + crc + "holder, fort" + of_header + "tes all in" + crc + "!");
  EXPECT_EQ(one.substr(0, 40), "ten bytes.thirty bytes before a payload.");
  const std::string source = job.memory->get("src/a");
  EXPECT_EQ(job.memory->get("out/two"),
            "no ite" + source.substr(DigestedJob::kBytes + DigestedJob::kBytes / 2) +
                source.substr(DigestedJob::kBytes, DigestedJob::kBytes / 2));
  EXPECT_EQ(one.substr(42, 2), source.substr(DigestedJob::kColumns * 2, 2));
}

INSTANTIATE_TEST_SUITE_P(ThreadsAndBudgets, ItemDigests,
                         testing::Combine(testing::Values(1, 4),
                                          testing::Values(1, 100, 3000, 1 << 20)));

// A file of many tensors as one item, with a header before and a CRC-32 after each; every second
// tensor is transposed. Threads write them at once, so that some bytes are hashed from memory and
// some are read back.
class DigestOfOneFile : public testing::TestWithParam<std::tuple<int, uint64_t>> {};

TEST_P(DigestOfOneFile, IsThatOfTheBytes) {
  constexpr int64_t kTensors = 7, kRows = 700, kColumns = 900;
  constexpr uint64_t kBytes = kRows * kColumns * 4, kHeader = 77, kTrailer = 9;
  constexpr uint64_t kStep = kHeader + kBytes + kTrailer;
  const auto memory = std::make_shared<MemoryFileSystem>();
  std::string content(kTensors * kBytes, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * i >> 7);
  memory->put("src", content);
  memory->create_folder("out");
  Catalog source;
  source.file_system = memory;
  source.add_file("src", content.size());
  Plan plan;
  plan.source = SharedCatalog::borrow(source);
  plan.target.files = {{"file", kTensors * kStep}};
  plan.items = {{0, 0, kTensors * kStep, {}}};
  for (uint32_t i = 0; i < kTensors; ++i) {
    source.entries.push_back(
        {"t" + std::to_string(i), DType::f32, {kRows, kColumns}, {}, Role::model});
    source.entries[i].chunks.push_back(
        {{Box::whole({kRows, kColumns})}, {}, {0, i * kBytes, kBytes}});
    plan.literals.push_back({0, i * kStep, std::string(kHeader, 'h')});
    plan.literals.push_back({0, i * kStep + kHeader + kBytes, std::string(kTrailer, 't')});
    const uint64_t at = i * kStep + kHeader;
    plan.items[0].payloads.push_back({at, kBytes, {at + kBytes + 2}});
    const bool turned = i % 2 == 1;
    const Dims shape = turned ? Dims{kColumns, kRows} : Dims{kRows, kColumns};
    Entry target{"t" + std::to_string(i), DType::f32, shape, {}, Role::model};
    target.chunks.push_back({{Box::whole(shape)}, {}, {0, at, kBytes}});
    plan.target.entries.push_back(target);
    const Move turn{0, {0, 0}, {0, 0}, {{kRows, 0, 1, 1, 1}, {kColumns, 1, 1, 0, 1}}};
    plan.recipes.push_back({{i}, {turned ? turn : copy_all(shape)}, {}});
  }
  check(plan);
  EngineOptions options;
  options.threads = std::get<0>(GetParam());
  options.memory_bytes = std::get<1>(GetParam());
  const std::vector<Digest> digests = run(plan, *memory, "out", options);
  const std::string file = memory->get("out/file");
  EXPECT_EQ(to_hex(digests.at(0)), hex_of(file));
  for (uint64_t i = 0; i < kTensors; ++i) {
    const auto tensor = std::string_view(file).substr(i * kStep + kHeader, kBytes);
    const uint32_t crc = crc32(std::as_bytes(std::span(tensor)));
    EXPECT_EQ(file.substr(i * kStep + kHeader + kBytes, kTrailer),
              "tt" + little_endian(crc) + "ttt");
    if (i % 2 == 0) {
      EXPECT_EQ(tensor, std::string_view(content).substr(i * kBytes, kBytes));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ThreadsAndBudgets, DigestOfOneFile,
                         testing::Combine(testing::Values(1, 2, 5),
                                          testing::Values(100 << 10, 5 << 20, 64 << 20)));

TEST(WrittenRuns, JoinWhatTouches) {
  WrittenRuns runs;
  EXPECT_EQ(runs.end_from(5), 5u);
  runs.add(20, 30);
  runs.add(5, 10);
  EXPECT_EQ(runs.end_from(5), 10u);
  EXPECT_EQ(runs.end_from(12), 12u);
  runs.add(12, 15);
  runs.add(40, 50);
  runs.add(15, 20);  // between two
  EXPECT_EQ(runs.end_from(12), 30u);
  runs.add(25, 45);  // over two
  EXPECT_EQ(runs.end_from(13), 50u);
  runs.add(14, 16);  // inside
  EXPECT_EQ(runs.end_from(20), 50u);
  EXPECT_EQ(runs.end_from(50), 50u);
}

TEST(ItemDigestFaults, EveryFaultIsAnError) {
  const auto run_with_fault = [](uint64_t fail_at) {
    DigestedJob job;
    const FaultFileSystem faulty(job.memory, fail_at, ErrorKind::exhausted);
    EngineOptions options;
    options.threads = 2;
    options.memory_bytes = 20000;
    run(job.plan, faulty, "out", options);
    return faulty.operations();
  };
  const uint64_t operations = run_with_fault(0);
  ASSERT_GT(operations, 12u);
  for (uint64_t n = 1; n <= operations; ++n) {
    try {
      run_with_fault(n);
      ADD_FAILURE() << "operation " << n << " failed without a word";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::exhausted);
    }
  }
}

TEST(ItemIndex, FindsTheFirstItemThatSharesAByte) {
  const std::vector<Item> items{{1, 30, 10, {}}, {1, 10, 10, {}}, {1, 15, 0, {}}, {0, 5, 5, {}}};
  const ItemIndex index(items);
  EXPECT_EQ(index.in_order(), (std::vector<uint32_t>{3, 1, 0}));
  EXPECT_EQ(index.find(0, 0, 5), std::nullopt);
  EXPECT_EQ(index.find(0, 0, 6), 3u);
  EXPECT_EQ(index.find(0, 9, 1), 3u);
  EXPECT_EQ(index.find(0, 10, 100), std::nullopt);
  EXPECT_EQ(index.find(1, 0, 100), 1u);
  EXPECT_EQ(index.find(1, 19, 20), 1u);
  EXPECT_EQ(index.find(1, 20, 10), std::nullopt);
  EXPECT_EQ(index.find(1, 20, 11), 0u);
  EXPECT_EQ(index.find(1, 40, 1), std::nullopt);
  EXPECT_EQ(index.find(2, 0, 1), std::nullopt);
}

void expect_refused(const char* what, const std::function<void(Plan&)>& change) {
  DigestedJob job;
  change(job.plan);
  EXPECT_THROW(check(job.plan), Error) << what;
}

TEST(PlanCheck, RefusesItemsThatDoNotFit) {
  constexpr uint64_t kBytes = DigestedJob::kBytes;
  expect_refused("no such file", [](Plan& plan) { plan.items[0].file = 2; });
  expect_refused("outside its file", [](Plan& plan) { plan.items[1].length = kBytes + 1; });
  expect_refused("wraps", [](Plan& plan) { plan.items[1].length = UINT64_MAX - 3; });
  expect_refused("overlap", [](Plan& plan) { plan.items[0].length = 11; });
  expect_refused("cuts a chunk", [](Plan& plan) { plan.items[1].length = kBytes - 1; });
  expect_refused("inside a chunk", [](Plan& plan) { plan.items[1] = {1, 7, 10, {}}; });
  expect_refused("CRC in the payload",
                 [](Plan& plan) { plan.items[2].payloads[1].crc32_offsets = {40 + kBytes - 1}; });
  expect_refused("CRC after the item",
                 [](Plan& plan) { plan.items[2].payloads[1].crc32_offsets = {40 + kBytes + 37}; });
  expect_refused("CRC in another payload",
                 [](Plan& plan) { plan.items[2].payloads[0].crc32_offsets = {38}; });
  expect_refused("payloads that overlap",
                 [](Plan& plan) { plan.items[2].payloads[0].length = 31; });
  expect_refused("payload before the item",
                 [](Plan& plan) { plan.items[2].payloads[0].offset = 9; });
  expect_refused("payload after the item",
                 [](Plan& plan) { plan.items[2].payloads[1].length = UINT64_MAX; });
  expect_refused("chunk outside the payload",
                 [](Plan& plan) { plan.items[2].payloads[1].length = kBytes - 1; });
  expect_refused("literal outside its file", [](Plan& plan) { plan.literals[0].offset = 1 << 30; });
}

}  // namespace
}  // namespace ferry
