// Times saves from memory and loads to memory against plain writes and reads of the same bytes by
// as many threads, and prints the ratios.
//
//   bench_save WORK [--mebibytes 2048] [--repeat 5] [--threads N] [--warm] [--keep]
//   bench_save --load CHECKPOINT [--repeat 5] [--threads N]
//
// WORK is an existing folder on the file system to measure. Each repetition times, in turn: plain
// pwrite of the tensors into one file a thread, then fsync; save(), manifest and CRC-32s included;
// AsyncSaver: until save() returns, until its ticket's wait() does (the memory may change then),
// and until all is on disk; plain pread of the checkpoint's bytes into memory; load() of all
// tensors. Reads are of warm files, memory has been touched before. --warm touches free memory
// before each write, too: where the host of a virtual machine takes back what is free, the first
// use of a page costs more than what is timed. --keep leaves the checkpoint WORK/run; --load times
// loads of one only.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <random>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/checkpoint.h"
#include "ckpt/engine/tiles/buffer.h"
#include "ckpt/memory/async_saver.h"
#include "ckpt/memory/load.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kCallBytes = 1 << 20;  // of plain reads and writes

struct Settings {
  std::string folder, load;
  uint64_t mebibytes = 2048;
  uint64_t touched_mebibytes = 0;
  int repeat = 5, threads = 0;
  bool warm = false, keep = false;
};

// The tensors of a Llama's layers, bf16, in one piece of memory, with bytes that do not repeat.
class Model {
 public:
  explicit Model(uint64_t mebibytes) {
    const std::vector<std::pair<const char*, Dims>> kinds{
        {"input_norm", {4096}}, {"qkv", {6144, 4096}},      {"proj", {4096, 4096}},
        {"ffn_norm", {4096}},   {"gate_up", {28672, 4096}}, {"down", {4096, 14336}}};
    uint64_t bytes = 0;
    for (int64_t layer = 0; bytes < mebibytes << 20; ++layer) {
      for (const auto& [name, shape] : kinds) {
        regions_.push_back(whole_region(fmt::format("layers.{}.{}", layer, name), DType::bf16,
                                        shape, static_cast<void*>(nullptr)));
        bytes += bytes_of(regions_.back());
      }
    }
    memory_ = buffer_.take(bytes);
    std::mt19937_64 random(1);
    for (uint64_t at = 0; at < bytes; at += 8) {
      const uint64_t word = random();
      std::memcpy(memory_.data() + at, &word, 8);
    }
    std::byte* data = memory_.data();
    for (Region& region : regions_) data = (region.data = data) + bytes_of(region);
  }

  static uint64_t bytes_of(const Region& region) {
    return static_cast<uint64_t>(region.shard.elements(region.name) * size_bytes(region.dtype));
  }
  std::span<const std::byte> memory() const { return memory_; }
  uint64_t bytes() const { return memory_.size(); }

  Snapshot snapshot(int64_t iteration) const {
    Snapshot snapshot;
    snapshot.iteration = iteration;
    for (const Region& region : regions_) {
      snapshot.tensors.push_back(
          {region.name, region.dtype, region.shape, region.shard, region.data});
    }
    return snapshot;
  }

 private:
  Buffer buffer_;
  std::span<std::byte> memory_;
  std::vector<Region> regions_;
};

void require(bool ok, const char* what) {
  if (!ok) fail(ErrorKind::io, "{} failed", what);
}

// Hands the part of each thread to `work`(thread, offset, bytes).
template <typename Work>
void in_parts(uint64_t bytes, int threads, const Work& work) {
  const uint64_t count = static_cast<uint64_t>(threads);
  on_threads(threads, [&](int thread, const std::atomic<bool>&) {
    const uint64_t begin = bytes * static_cast<uint64_t>(thread) / count;
    work(thread, begin, bytes * static_cast<uint64_t>(thread + 1) / count - begin);
  });
}

void plain_write(const std::string& folder, std::span<const std::byte> bytes, int threads) {
  fs::create_directory(folder);
  in_parts(bytes.size(), threads, [&](int thread, uint64_t offset, uint64_t length) {
    const std::string path = fmt::format("{}/{}", folder, thread);
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    require(file >= 0, "open");
    for (uint64_t done = 0; done < length;) {
      const auto n = ::pwrite(file, bytes.data() + offset + done,
                              std::min(kCallBytes, length - done), static_cast<off_t>(done));
      require(n > 0, "pwrite");
      done += static_cast<uint64_t>(n);
    }
    require(::fsync(file) == 0, "fsync");
    ::close(file);
  });
}

// All bytes of the tensors' files, into memory from the start on.
void plain_read(const Catalog& catalog, std::span<std::byte> memory, int threads) {
  uint64_t base = 0;
  for (const FileInfo& info : catalog.files) {
    const int file = ::open(info.path.c_str(), O_RDONLY | O_CLOEXEC);
    require(file >= 0, "open");
    in_parts(info.bytes, threads, [&](int, uint64_t offset, uint64_t length) {
      for (uint64_t done = 0; done < length;) {
        const auto n =
            ::pread(file, memory.data() + base + offset + done, std::min(kCallBytes, length - done),
                    static_cast<off_t>(offset + done));
        require(n > 0, "pread");
        done += static_cast<uint64_t>(n);
      }
    });
    ::close(file);
    base += info.bytes;
  }
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Timings by name, in the order of their names' first use.
class Timings {
 public:
  void add(const std::string& name, double seconds) {
    if (!seconds_.contains(name)) names_.push_back(name);
    seconds_[name].push_back(seconds);
  }
  void time(const std::string& name, const std::function<void()>& work) {
    add(name, seconds_of(work));
  }
  double median(const std::string& name) const {
    std::vector<double> sorted = seconds_.at(name);
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  void print(uint64_t bytes) const {
    for (const std::string& name : names_) {
      fmt::print("{:<34}{:>11.6f} s {:>9.2f} GB/s   ", name, median(name),
                 static_cast<double>(bytes) / median(name) / 1e9);
      for (const double seconds : seconds_.at(name)) fmt::print(" {:.6f}", seconds);
      fmt::print("\n");
    }
  }
  void print_ratio(const std::string& name, const std::string& plain) const {
    fmt::print("{}: {:.2f} x the speed of {}\n", name, median(plain) / median(name), plain);
  }

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::vector<double>> seconds_;
};

// In a process of its own, which gives it back as it ends.
void touch_free_memory(uint64_t mebibytes) {
  const std::string self = fs::read_symlink("/proc/self/exe");
  require(std::system(fmt::format("'{}' --touch {}", self, mebibytes).c_str()) == 0, "--touch");
}

void touch(uint64_t mebibytes) {
  const auto flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
  void* memory = ::mmap(nullptr, mebibytes << 20, PROT_READ | PROT_WRITE, flags, -1, 0);
  require(memory != MAP_FAILED, "mmap");
}

void time_loads(const std::string& path, const Settings& settings, Timings& timings) {
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), path);
  uint64_t bytes = 0;
  for (const FileInfo& file : checkpoint.catalog->files) bytes += file.bytes;
  Buffer buffer;
  const auto memory = buffer.take(bytes);
  std::memset(memory.data(), 1, memory.size());
  std::vector<Region> regions;
  std::byte* data = memory.data();
  for (const Entry& entry : checkpoint.catalog->entries) {
    regions.push_back(whole_region(entry.name, entry.dtype, entry.shape, static_cast<void*>(data)));
    data += entry.bytes();
  }
  const int threads = thread_count(settings.threads);
  EngineOptions options;
  options.threads = threads;
  for (int i = 0; i <= settings.repeat; ++i) {
    const double plain = seconds_of([&] { plain_read(checkpoint.catalog, memory, threads); });
    const double loaded = seconds_of([&] {
      const Checkpoint again = open_checkpoint(posix_file_system(), path);
      load(again, regions, options);
    });
    if (i == 0) continue;  // warms the files
    timings.add("plain pread", plain);
    timings.add("open_checkpoint() and load()", loaded);
  }
}

void run_all(const Settings& settings) {
  const Model model(settings.mebibytes);
  const int threads = thread_count(settings.threads);
  const std::string plain = settings.folder + "/plain", run = settings.folder + "/run";
  const auto clean = [&] {
    fs::remove_all(plain);
    fs::remove_all(run);
    ::sync();
    if (settings.warm) touch_free_memory(3 * settings.mebibytes);
  };
  fmt::print("{:.2f} GB, {} threads\n", static_cast<double>(model.bytes()) / 1e9, threads);
  SaveOptions options;
  options.engine.threads = threads;
  options.files_per_rank = threads;
  AsyncSaverOptions async;
  async.save = options;
  clean();
  AsyncSaver saver(posix_file_system(), run, lone_group(), async);
  saver.save(model.snapshot(1)).wait();  // has its buffer from now on
  saver.finish();
  Timings timings;
  const auto group = lone_group();
  for (int i = 0; i < settings.repeat; ++i) {
    clean();
    timings.time("plain pwrite + fsync", [&] { plain_write(plain, model.memory(), threads); });
    clean();
    Snapshot snapshot = model.snapshot(1);
    AsyncSaver::Ticket ticket;
    const double returned = seconds_of([&] { ticket = saver.save(std::move(snapshot)); });
    const double copied = returned + seconds_of([&] { ticket.wait(); });
    timings.add("AsyncSaver: save() returns", returned);
    timings.add("AsyncSaver: wait() returns", copied);
    timings.add("AsyncSaver: all on disk", copied + seconds_of([&] { saver.finish(); }));
    clean();
    timings.time("save()",
                 [&] { save(posix_file_system(), run, model.snapshot(1), *group, options); });
  }
  time_loads(run, settings, timings);
  timings.print(model.bytes());
  timings.print_ratio("save()", "plain pwrite + fsync");
  timings.print_ratio("AsyncSaver: all on disk", "plain pwrite + fsync");
  timings.print_ratio("open_checkpoint() and load()", "plain pread");
  fs::remove_all(plain);
  if (!settings.keep) fs::remove_all(run);
}

void load_only(const Settings& settings) {
  Timings timings;
  time_loads(settings.load, settings, timings);
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), settings.load);
  uint64_t bytes = 0;
  for (const Entry& entry : checkpoint.catalog->entries)
    bytes += static_cast<uint64_t>(entry.bytes());
  timings.print(bytes);
  timings.print_ratio("open_checkpoint() and load()", "plain pread");
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  ferry::Settings settings;
  CLI::App app("Saves from memory and loads to memory against plain writes and reads");
  app.add_option("WORK", settings.folder, "folder on the file system to measure");
  app.add_option("--load", settings.load, "times loads of this checkpoint only");
  app.add_option("--mebibytes", settings.mebibytes, "of tensors");
  app.add_option("--repeat", settings.repeat);
  app.add_option("--threads", settings.threads, "0: one for each core, at most 64");
  app.add_flag("--warm", settings.warm,
               "touches three times as much free memory before each write");
  app.add_option("--touch", settings.touched_mebibytes,
                 "what --warm runs: touches memory and ends");
  app.add_flag("--keep", settings.keep, "leaves the checkpoint WORK/run");
  CLI11_PARSE(app, argc, argv);
  try {
    if (settings.touched_mebibytes > 0) {
      ferry::touch(settings.touched_mebibytes);
    } else {
      settings.load.empty() ? ferry::run_all(settings) : ferry::load_only(settings);
    }
  } catch (const ferry::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
