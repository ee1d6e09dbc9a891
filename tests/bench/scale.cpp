// Saves by thousands of ranks, of which one process plays two: a rank among made-up fellows, and
// rank 0 with what they would send it.
//
//   bench_scale --ranks 16384 --shards 400
//
// Each rank holds parts of as many tensors as it has shards: a fellow group of `--together` ranks
// shares each of them by rows. Prints what a rank's planning takes (layout and checks of its own
// files, descriptions and all, without writing a byte), and what rank 0 takes to choose writers,
// and after each save to write .metadata and the manifest, with the peak of memory of both.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "ckpt/format/dcp/dcp_writer.h"
#include "ckpt/group/wire.h"
#include "ckpt/integrity/manifest.h"
#include "ckpt/memory/gathered_shards.h"
#include "ckpt/memory/own_files.h"
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

std::string description_of(const Shape& shape, int64_t rank, const std::byte* memory) {
  return OwnFiles(regions_of(shape, rank, memory), {}, *dcp_format(), 1, static_cast<int>(rank))
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
    packer.number(0x123456789abcdef0 + at).number(0x0fedcba987654321 ^ at);
  }
  return packer.take();
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double peak_mebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

template <typename Work>
double timed(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return seconds_since(start);
}

void play_a_rank(const Shape& shape) {
  const std::vector<std::byte> memory(Shape::kRows * Shape::kColumns * 2);
  const double before = peak_mebibytes();
  const std::string all(static_cast<size_t>(shape.shards), '1');
  for (const char* save : {"first", "second"}) {
    const double seconds = timed([&] {
      OwnFiles files(regions_of(shape, shape.ranks / 2, memory.data()), {}, *dcp_format(), 1,
                     static_cast<int>(shape.ranks / 2));
      const std::string description = files.description();
      digest_of(std::as_bytes(std::span(description)));
      files.plan(all, 1);
    });
    std::printf("a rank, %s save: %.1f ms for planning\n", save, seconds * 1e3);
  }
  std::printf("a rank: %.1f MiB for planning\n", peak_mebibytes() - before);
}

void play_rank_0(const Shape& shape) {
  const std::vector<std::byte> memory(Shape::kRows * Shape::kColumns * 2);
  std::vector<std::string> descriptions;
  size_t bytes = 0;
  for (int64_t rank = 0; rank < shape.ranks; ++rank) {
    descriptions.push_back(description_of(shape, rank, memory.data()));
    bytes += descriptions.back().size();
  }
  std::printf("rank 0: %.0f MiB of descriptions\n", static_cast<double>(bytes) / (1 << 20));
  std::optional<GatheredShards> shards;
  std::printf("rank 0, first save: %.2f s to choose writers\n",
              timed([&] { shards.emplace(descriptions); }));
  descriptions = {};
  std::vector<std::string> places;
  for (int64_t rank = 0; rank < shape.ranks; ++rank) places.push_back(places_of(shape, rank));
  size_t metadata = 0, manifest = 0;
  const double every = timed([&] {
    shards->set_places(places);
    places = {};
    dcp_format()->complete(shards->content(), 1);
    metadata = write_dcp_metadata_with_id(shards->content()).size();
  });
  std::printf("rank 0, each save: %.2f s for .metadata (%.0f MiB)\n", every,
              static_cast<double>(metadata) / (1 << 20));
  const double text = timed([&] { manifest = to_text(shards->manifest()).size(); });
  std::printf("rank 0, each save: %.2f s for the manifest (%.0f MiB)\n", text,
              static_cast<double>(manifest) / (1 << 20));
  std::printf("rank 0: peak %.0f MiB\n", peak_mebibytes());
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
