// Saves by thousands of ranks, of which one process plays two: a rank among made-up peers, and
// rank 0 with what they would send it.
//
//   bench_scale --ranks 16384 --shards 400
//
// Each rank holds parts of as many tensors as it has shards: a group of `--together` ranks
// shares each of them by rows. Prints what a rank's planning takes (layout and checks of its own
// files, descriptions and all, without writing a byte), and what rank 0 takes to choose writers,
// and after each save to write .metadata and the manifest, with the peak of memory of both. Times
// of the processor follow those of the clock.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>

#include "ckpt/format/dcp/dcp_writer.h"
#include "ckpt/group/wire.h"
#include "ckpt/integrity/manifest/manifest.h"
#include "ckpt/memory/saving/gathered_shards.h"
#include "ckpt/memory/saving/own_files.h"
#include "ckpt/memory/snapshot_format.h"

namespace {

using namespace ferry;

struct Shape {
  int64_t ranks = 16384, shards = 400, together = 128;
  static constexpr int64_t kRows = 64, kColumns = 128;  // of a shard
};

std::string name_of(const Shape& shape, int64_t rank, int64_t shard) {
  return fmt::format("decoder.layers.{}.self_attention.linear_qkv.weight.{}", rank / shape.together,
                     shard);
}

std::vector<ConstRegion> regions_of(const Shape& shape, int64_t rank, const std::byte* memory) {
  std::vector<ConstRegion> regions;
  for (int64_t i = 0; i < shape.shards; ++i) {
    const int64_t row = rank % shape.together * Shape::kRows;
    regions.push_back({name_of(shape, rank, i),
                       DType::bf16,
                       {shape.together * Shape::kRows, Shape::kColumns},
                       {{{row, 0}, {Shape::kRows, Shape::kColumns}}},
                       memory});
  }
  return regions;
}

const OwnFilesFormat& plain_format() { return dynamic_cast<const OwnFilesFormat&>(*dcp_format()); }

std::string description_of(const Shape& shape, int64_t rank, const std::byte* memory) {
  return OwnFiles(regions_of(shape, rank, memory), {}, plain_format(), 1, static_cast<int>(rank))
      .description();
}

// As OwnFiles::write() returns it.
std::string places_of(const Shape& shape, int64_t rank) {
  constexpr uint64_t kItem = 17000;
  Packer packer;
  packer.number(1).text(fmt::format("__{}_0.distcp", rank));
  packer.number(kItem * static_cast<uint64_t>(shape.shards));
  for (int64_t i = 0; i < shape.shards; ++i) {
    const auto at = static_cast<uint64_t>(i) * kItem;
    packer.number(0).number(at).number(kItem);
    packer.digest({0x123456789abcdef0 + at, 0x0fedcba987654321 ^ at});
  }
  return packer.take();
}

double peak_mebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// "1.23 s (processor 1.20 s)"
template <typename Work>
std::string timed(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t processor = std::clock();
  work();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return fmt::format("{:.3f} s (processor {:.3f} s)", seconds.count(),
                     static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC);
}

void play_a_rank(const Shape& shape) {
  const std::vector<std::byte> memory(Shape::kRows * Shape::kColumns * 2);
  const double before = peak_mebibytes();
  const std::string all(static_cast<size_t>(shape.shards), '1');
  for (const char* save : {"first", "second"}) {
    const std::string seconds = timed([&] {
      OwnFiles files(regions_of(shape, shape.ranks / 2, memory.data()), {}, plain_format(), 1,
                     static_cast<int>(shape.ranks / 2));
      const std::string description = files.description();
      digest_of(std::as_bytes(std::span(description)));
      files.plan(all, 1);
    });
    fmt::print("a rank, {} save: {} for planning\n", save, seconds);
  }
  fmt::print("a rank: {:.1f} MiB for planning\n", peak_mebibytes() - before);
}

void play_rank_0(const Shape& shape) {
  const std::vector<std::byte> memory(Shape::kRows * Shape::kColumns * 2);
  std::vector<std::string> descriptions;
  size_t bytes = 0;
  for (int64_t rank = 0; rank < shape.ranks; ++rank) {
    descriptions.push_back(description_of(shape, rank, memory.data()));
    bytes += descriptions.back().size();
  }
  fmt::print("rank 0: {} MiB of descriptions\n", bytes >> 20);
  std::optional<GatheredShards> shards;
  fmt::print("rank 0, first save: {} to choose writers\n",
             timed([&] { shards.emplace(descriptions); }));
  descriptions = {};
  std::vector<std::string> places;
  for (int64_t rank = 0; rank < shape.ranks; ++rank) places.push_back(places_of(shape, rank));
  size_t metadata = 0, manifest = 0;
  const std::string every = timed([&] {
    shards->set_places(places);
    places = {};
    plain_format().complete(shards->content(), 1);
    metadata = write_dcp_metadata_with_id(shards->content()).size();
  });
  fmt::print("rank 0, each save: {} for .metadata ({} MiB)\n", every, metadata >> 20);
  const std::string text = timed([&] { manifest = to_text(shards->manifest()).size(); });
  fmt::print("rank 0, each save: {} for the manifest ({} MiB)\n", text, manifest >> 20);
  fmt::print("rank 0: peak {:.0f} MiB\n", peak_mebibytes());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Planning of a save by thousands of ranks");
  Shape shape;
  app.add_option("--ranks", shape.ranks)->capture_default_str();
  app.add_option("--shards", shape.shards, "of each rank")->capture_default_str();
  app.add_option("--together", shape.together, "ranks that share a tensor")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  play_a_rank(shape);
  play_rank_0(shape);
}
