// Times streams of a checkpoint's tensors against `cp` of the files that they are in, and prints
// the ratios.
//
//   bench_stream RUN WORK [--memory MIB] [--repeat 5] [--threads N]
//
// RUN: of make_checkpoint.py, for one. WORK: an existing folder on the same file system. Each
// repetition times, in turn: `cp` of the model's files; a stream of the tensors as they are stored;
// one of the model in the names of Hugging Face; the same of a caller who keeps all tensors; and
// plain reads of the same bytes into memory that has been touched.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/engine/tiles/buffer.h"
#include "ops/convert.h"

namespace ferry {
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct ModelFiles {
  std::vector<std::string> paths;
  std::vector<std::string> tensors;
  uint64_t bytes = 0;  // of tensors
};

ModelFiles files_of(const Checkpoint& checkpoint) {
  ModelFiles files;
  std::set<std::string> paths;
  for (const Entry& entry : checkpoint.catalog->entries) {
    if (entry.role != Role::model) continue;
    files.tensors.push_back(entry.name);
    files.bytes += static_cast<uint64_t>(entry.bytes());
    for (const Chunk& chunk : entry.chunks) {
      paths.insert(checkpoint.catalog->files[chunk.extent.file].path);
    }
  }
  files.paths.assign(paths.begin(), paths.end());
  return files;
}

void copy(const ModelFiles& files, const std::string& work) {
  std::string command = "cp";
  for (const std::string& path : files.paths) command += " '" + path + "'";
  if (std::system((command + " '" + work + "'").c_str()) != 0) {
    fail(ErrorKind::io, "{} failed", command);
  }
}

void read_plainly(const ModelFiles& files, std::vector<Buffer>& buffers) {
  constexpr uint64_t kCallBytes = 4 << 20;
  std::atomic<size_t> next{0};
  on_threads(static_cast<int>(buffers.size()), [&](int thread, const auto&) {
    const std::span<std::byte> into = buffers[static_cast<size_t>(thread)].take(kCallBytes);
    for (size_t i = next++; i < files.paths.size(); i = next++) {
      const auto file = posix_file_system()->open(files.paths[i]);
      for (uint64_t at = 0; at < file->size(); at += kCallBytes) {
        file->read(at, into.first(std::min(kCallBytes, file->size() - at)));
      }
    }
  });
}

void measure(const std::string& run, const std::string& work, StreamOptions options, int repeat) {
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), run);
  const ModelFiles files = files_of(checkpoint);
  StreamOptions stored = options;
  stored.names = files.tensors;
  std::vector<Buffer> buffers(static_cast<size_t>(thread_count(options.engine.threads)));
  struct Way {
    std::string name;
    std::function<void()> work;
    std::vector<double> seconds = {};
  };
  const auto drain = [](const TensorSet& tensors, const StreamOptions& how) {
    TensorStream stream(tensors, how);
    while (stream.next()) {
    }
  };
  std::vector<Way> ways{{"cp", [&] { copy(files, work); }},
                        {"stored", [&] { drain(checkpoint, stored); }},
                        {"hf", [&] { drain(view_as_hugging_face(checkpoint).tensors, options); }},
                        {"hf, kept",
                         [&] {
                           TensorStream stream(view_as_hugging_face(checkpoint).tensors, options);
                           std::vector<OwnedTensor> kept;
                           while (auto tensor = stream.next()) kept.push_back(std::move(*tensor));
                         }},
                        {"pread", [&] { read_plainly(files, buffers); }}};
  for (int i = 0; i < repeat; ++i) {
    for (Way& way : ways) way.seconds.push_back(seconds_of(way.work));
    for (const std::string& path : files.paths) {
      std::filesystem::remove(work + "/" + std::filesystem::path(path).filename().string());
    }
  }
  const double cp = median(ways[0].seconds);
  fmt::print("{:.2f} GB in {} tensors\n", static_cast<double>(files.bytes) / 1e9,
             files.tensors.size());
  for (const Way& way : ways) {
    const double seconds = median(way.seconds);
    fmt::print("{:10} {:6.3f} s  {:5.2f} GB/s  {:5.2f} x cp\n", way.name, seconds,
               static_cast<double>(files.bytes) / seconds / 1e9, cp / seconds);
  }
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  CLI::App app{"Times streams of tensors"};
  std::string run, work;
  uint64_t mebibytes = 2048;
  int repeat = 5;
  ferry::StreamOptions options;
  app.add_option("run", run)->required();
  app.add_option("work", work)->required();
  app.add_option("--memory", mebibytes);
  app.add_option("--repeat", repeat);
  app.add_option("--threads", options.engine.threads);
  CLI11_PARSE(app, argc, argv);
  options.engine.memory_bytes = mebibytes << 20;
  try {
    ferry::measure(run, work, options, repeat);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
