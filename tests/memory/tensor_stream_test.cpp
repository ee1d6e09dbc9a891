// Tensors of a checkpoint one by one, read ahead in bounded memory.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <thread>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/format/hugging_face/safetensors.h"
#include "ckpt/io/forwarding_file_system.h"
#include "ckpt/memory/load.h"
#include "tests/support.h"

namespace ferry::test {
namespace {

using testing::HasSubstr;

// Counts bytes that are read, and fails to read more of a file than `readable`.
class CountingFileSystem final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;

  std::shared_ptr<const ReadableFile> open(const std::string& path) const override {
    return std::make_shared<File>(inner().open(path), bytes, readable);
  }

  const std::shared_ptr<std::atomic<uint64_t>> bytes = std::make_shared<std::atomic<uint64_t>>(0);
  uint64_t readable = UINT64_MAX;

 private:
  class File final : public ReadableFile {
   public:
    File(std::shared_ptr<const ReadableFile> inner, std::shared_ptr<std::atomic<uint64_t>> bytes,
         uint64_t readable)
        : inner_(std::move(inner)), bytes_(std::move(bytes)), readable_(readable) {}
    const std::string& path() const noexcept override { return inner_->path(); }
    uint64_t size() const noexcept override { return inner_->size(); }
    void read(uint64_t offset, std::span<std::byte> into) const override {
      *bytes_ += into.size();
      if (offset + into.size() > readable_) fail(ErrorKind::io, "{}: broken", path());
      inner_->read(offset, into);
    }

   private:
    std::shared_ptr<const ReadableFile> inner_;
    std::shared_ptr<std::atomic<uint64_t>> bytes_;
    uint64_t readable_;
  };
};

// A file of tensors of random bytes, "t0", "t1", ...
class Streams : public testing::Test {
 protected:
  void make(const std::vector<int64_t>& sizes) {
    std::vector<Entry> entries(sizes.size());
    std::vector<Entry*> members;
    for (size_t i = 0; i < sizes.size(); ++i) {
      entries[i].name = "t" + std::to_string(i);
      entries[i].dtype = DType::u8;
      entries[i].shape = {sizes[i]};
      members.push_back(&entries[i]);
    }
    uint64_t file_bytes = 0;
    std::string file = write_safetensors_header(members, {}, 0, &file_bytes);
    uint32_t random = 1;
    while (file.size() < file_bytes) {
      random = random * 1664525 + 1013904223;
      file.push_back(static_cast<char>(random >> 24));
    }
    memory_->put("a.safetensors", file);
    stored_ = open_checkpoint(memory_, "a.safetensors");
    checkpoint_ = open_checkpoint(files_, "a.safetensors");
    *files_->bytes = 0;
  }

  std::string stored(const Entry& entry) const {
    return read_tensor(stored_.catalog, entry, uint64_t{1} << 30);
  }

  void expect_stored(const OwnedTensor& tensor) const {
    const Entry* const entry = stored_.catalog->find(tensor.name);
    ASSERT_NE(entry, nullptr) << tensor.name;
    EXPECT_EQ(tensor.dtype, entry->dtype);
    EXPECT_EQ(tensor.shape, entry->shape);
    const std::string bytes = stored(*entry);
    ASSERT_EQ(tensor.bytes.size(), bytes.size());
    EXPECT_TRUE(std::ranges::equal(tensor.bytes, std::as_bytes(std::span(bytes)))) << tensor.name;
  }

  static StreamOptions with_memory(uint64_t bytes, int threads = 2) {
    StreamOptions options;
    options.engine.memory_bytes = bytes;
    options.engine.threads = threads;
    return options;
  }

  // Waits until nothing more is read.
  uint64_t bytes_read_ahead() const {
    uint64_t before = UINT64_MAX;
    while (before != *files_->bytes) {
      before = *files_->bytes;
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    return before;
  }

  const std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
  const std::shared_ptr<CountingFileSystem> files_ = std::make_shared<CountingFileSystem>(memory_);
  Checkpoint checkpoint_, stored_;
};

class StreamedFixture : public testing::TestWithParam<const char*> {};

TEST_P(StreamedFixture, AllTensorsAreWhatPyTorchReads) {
  const Checkpoint checkpoint =
      open_checkpoint(posix_file_system(), fixture(std::string("megatron/") + GetParam()));
  const nlohmann::json truth = truth_of(GetParam());
  for (const uint64_t memory : {uint64_t{1} << 21, uint64_t{1} << 31}) {
    StreamOptions options;
    options.engine.memory_bytes = memory;
    TensorStream stream(checkpoint, options);
    size_t at = 0;
    while (const std::optional<OwnedTensor> tensor = stream.next()) {
      EXPECT_EQ(tensor->name, checkpoint.catalog->entries.at(at++).name);
      const std::string bytes(reinterpret_cast<const char*>(tensor->bytes.data()),
                              tensor->bytes.size());
      EXPECT_EQ(hash_of(bytes), truth[tensor->name]["xxh3_128"].get<std::string>()) << tensor->name;
    }
    EXPECT_EQ(at, truth.size());
    EXPECT_FALSE(stream.next());  // still
  }
}

INSTANTIATE_TEST_SUITE_P(Peers, StreamedFixture,
                         testing::Values("hot_llama", "hot_mixtral", "llama_tp2dp2_dpr"),
                         [](const auto& each) { return std::string(each.param); });

TEST_F(Streams, WhoKeepsAllTensorsHasThemAll) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < 60; ++i) sizes.push_back(i % 7 == 0 ? i % 2 : 1000 + 33'333 * (i % 5));
  make(sizes);
  TensorStream stream(checkpoint_, with_memory(500'000));
  std::vector<OwnedTensor> kept;
  while (std::optional<OwnedTensor> tensor = stream.next()) kept.push_back(std::move(*tensor));
  EXPECT_EQ(kept.size(), sizes.size());
  for (const OwnedTensor& tensor : kept) expect_stored(tensor);
}

TEST_F(Streams, ReadsNoFurtherAheadThanFits) {
  make(std::vector<int64_t>(50, 100'000));
  TensorStream stream(checkpoint_, with_memory(1'000'000));
  uint64_t returned = 0;
  const auto expect_bounded = [&] {
    const uint64_t ahead = bytes_read_ahead() - returned;
    EXPECT_LE(ahead, 1'000'000u);
    EXPECT_GE(ahead, std::min<uint64_t>(500'000, 5'000'000 - returned));
  };
  expect_bounded();
  std::optional<OwnedTensor> previous;
  for (int i = 0; i < 50; ++i) {
    std::optional<OwnedTensor> tensor = stream.next();
    ASSERT_TRUE(tensor);
    expect_stored(*tensor);
    returned += tensor->bytes.size();
    if (i % 10 == 0) expect_bounded();
    previous = std::move(tensor);
  }
  EXPECT_FALSE(stream.next());
}

TEST_F(Streams, UseBuffersAgain) {
  make(std::vector<int64_t>(100, 300'000));
  TensorStream stream(checkpoint_, with_memory(2'000'000));
  std::set<const std::byte*> places;
  while (const std::optional<OwnedTensor> tensor = stream.next()) {
    places.insert(tensor->bytes.data());
    expect_stored(*tensor);
  }
  EXPECT_LE(places.size(), 5u);
}

TEST_F(Streams, TensorsOutliveTheStreamAndTheCheckpoint) {
  make({100'000, 200'000});
  std::optional<OwnedTensor> first;
  {
    const Checkpoint checkpoint = checkpoint_;
    TensorStream stream(checkpoint);
    first = stream.next();
  }
  ASSERT_TRUE(first);
  expect_stored(*first);
}

TEST_F(Streams, ATensorMayTakeNearlyAllMemory) {
  make({900'000, 10, 900'000, 900'000});
  std::vector<OwnedTensor> kept;
  TensorStream stream(checkpoint_, with_memory(1'000'000));
  while (std::optional<OwnedTensor> tensor = stream.next()) {
    expect_stored(*tensor);
    kept.push_back(std::move(*tensor));  // two of them are too many, but are the caller's
  }
  EXPECT_EQ(kept.size(), 4u);
}

TEST_F(Streams, ATensorThatDoesNotFitIsRefusedAtOnce) {
  make({10, 980'000});
  try {
    TensorStream stream(checkpoint_, with_memory(1'000'000));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::exhausted);
    EXPECT_THAT(error.what(), HasSubstr("tensor t1 has 980 kB (980000 bytes)"));
    EXPECT_THAT(error.what(), HasSubstr("options.memory_bytes=1000000"));
    EXPECT_THAT(error.what(), HasSubstr("give 1045334 or more"));
  }
  TensorStream stream(checkpoint_, with_memory(1'045'334));
  stream.next();
  expect_stored(*stream.next());
}

TEST_F(Streams, NamesAreTakenInTheirOrder) {
  make({10, 20, 30, 40});
  StreamOptions options;
  options.names = {"t3", "t0", "t3"};
  TensorStream stream(checkpoint_, options);
  EXPECT_EQ(stream.tensors().size(), 3u);
  for (const std::string& name : *options.names) {
    const std::optional<OwnedTensor> tensor = stream.next();
    ASSERT_TRUE(tensor);
    EXPECT_EQ(tensor->name, name);
    expect_stored(*tensor);
  }
  EXPECT_FALSE(stream.next());
  options.names = std::vector<std::string>();
  EXPECT_FALSE(TensorStream(checkpoint_, options).next());
  options.names = {"t4"};
  EXPECT_THROW(TensorStream(checkpoint_, options), Error);
}

TEST_F(Streams, RanksShareTheBytes) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < 200; ++i) sizes.push_back(i % 9 == 0 ? 40'000 : 100 + 10 * (i % 40));
  make(sizes);
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  for (const int64_t ranks : {1, 3, 8}) {
    std::map<std::string, int> times;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      StreamOptions options;
      options.rank = rank;
      options.ranks = ranks;
      TensorStream stream(checkpoint_, options);
      int64_t bytes = 0;
      for (const Entry* expected : stream.tensors()) {
        const std::optional<OwnedTensor> tensor = stream.next();
        ASSERT_TRUE(tensor);
        EXPECT_EQ(tensor->name, expected->name);
        expect_stored(*tensor);
        ++times[tensor->name];
        bytes += static_cast<int64_t>(tensor->bytes.size());
      }
      EXPECT_FALSE(stream.next());
      EXPECT_LE(bytes, total / ranks + 40'000);
    }
    EXPECT_EQ(times.size(), sizes.size());
    for (const auto& [name, count] : times) EXPECT_EQ(count, 1) << name;
  }
  StreamOptions options;
  options.rank = 2;
  options.ranks = 2;
  EXPECT_THROW(TensorStream(checkpoint_, options), Error);
}

TEST_F(Streams, ErrorsComeAfterWhatWasRead) {
  make(std::vector<int64_t>(20, 100'000));
  files_->readable = memory_->get("a.safetensors").size() - 750'000;
  TensorStream stream(checkpoint_, with_memory(uint64_t{1} << 20, 1));
  size_t complete = 0;
  const auto read_all = [&] {
    while (stream.next()) ++complete;
  };
  for (int again = 0; again < 2; ++again) {
    try {
      read_all();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::io) << error.what();
      EXPECT_EQ(complete, 12u);
    }
  }
}

TEST_F(Streams, ACheckpointThatIsReplacedIsNoLongerRead) {
  make(std::vector<int64_t>(20, 100'000));
  TensorStream stream(checkpoint_, with_memory(400'000));
  EXPECT_TRUE(stream.next());
  memory_->put("a.safetensors", memory_->get("a.safetensors"));
  try {
    stream.next();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::busy) << error.what();
  }
}

TEST_F(Streams, StopOnRequest) {
  make(std::vector<int64_t>(20, 100'000));
  std::atomic<bool> cancel{false};
  StreamOptions options = with_memory(400'000);
  options.engine.cancel = &cancel;
  TensorStream stream(checkpoint_, options);
  EXPECT_TRUE(stream.next());
  cancel = true;
  try {
    stream.next();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cancelled);
  }
}

TEST_F(Streams, MayEndAtAnyTime) {
  make(std::vector<int64_t>(100, 50'000));
  for (int count = 0; count < 60; ++count) {
    std::optional<OwnedTensor> last;
    {
      TensorStream stream(checkpoint_, with_memory(count % 2 == 0 ? 300'000 : 30'000'000, 3));
      for (int i = 0; i < count; ++i) last = stream.next();
    }
    if (last) expect_stored(*last);
  }
}

TEST_F(Streams, SeveralAtOnceOfOneSet) {
  make(std::vector<int64_t>(40, 70'000));
  const TensorSet set(checkpoint_);
  std::vector<std::jthread> threads;
  std::atomic<int> tensors{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      TensorStream stream(set, with_memory(400'000));
      while (const std::optional<OwnedTensor> tensor = stream.next()) {
        expect_stored(*tensor);
        ++tensors;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(tensors, 160);
}

}  // namespace
}  // namespace ferry::test
