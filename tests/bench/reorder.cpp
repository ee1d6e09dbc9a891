// Times transforms that reorder or cast elements against plain copies of the same bytes, by cp and
// by the engine itself, and prints the ratios.
//
//   bench_reorder WORK [--mebibytes 1024] [--repeat 5] [--threads N] [--memory-mebibytes 512]
//                 [--only TEXT]
//
// WORK is a folder on the file system to measure. Each repetition times cp of the source tensors,
// the engine's plain copy of them, and then the transform; all read warm files, write new ones and
// flush them. Rates count bytes read and written, a second of the clock; ratios are those of the
// medians, of the rates and of the bytes for each second of processor time (of the engine only),
// which is steadier where other programs run.
#include <fmt/core.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>

#include "ckpt/base/box.h"
#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/core/catalog.h"
#include "ckpt/core/plan.h"
#include "ckpt/core/recipe.h"
#include "ckpt/engine/run.h"
#include "ckpt/io/file_system.h"

namespace ferry {
namespace {

struct Settings {
  std::string folder;
  uint64_t mebibytes = 1024, memory_mebibytes = 512;
  int repeat = 5, threads = 0;
  std::string only;
};

// A source tensor's shape and what its elements become.
struct Output {
  Dims shape;
  std::vector<Move> moves;  // of the one input
};

struct Case {
  std::string name;
  DType in, out;
  Dims shape;  // of one source tensor; as many as fill the requested bytes are taken
  std::vector<Output> outputs;
};

Case transposition(DType dtype, int64_t rows, int64_t columns) {
  return {fmt::format("transpose {} x {}", rows, columns),
          dtype,
          dtype,
          {rows, columns},
          {{{columns, rows}, {{0, {0, 0}, {0, 0}, {{rows, 0, 1, 1, 1}, {columns, 1, 1, 0, 1}}}}}}};
}

Case cast_transposition(DType in, DType out, int64_t rows, int64_t columns) {
  Case result = transposition(in, rows, columns);
  result.out = out;
  return result;
}

Case cast(DType in, DType out) {
  return {"cast", in, out, {4096, 4096}, {{{4096, 4096}, {copy_all({4096, 4096})}}}};
}

// Query groups of 4 query heads, a key and a value head of 128 rows each.
Case qkv(DType dtype, int64_t groups, int64_t hidden) {
  const int64_t rows[] = {512, 128, 128};
  Case result{"QKV apart", dtype, dtype, {groups * 768, hidden}, {}};
  int64_t start = 0;
  for (int64_t part : rows) {
    Move move{0, {start, 0}, {0, 0}, {{groups, 0, 768, 0, part}}};
    move.loops.push_back({part, 0, 1, 0, 1});
    move.loops.push_back({hidden, 1, 1, 1, 1});
    result.outputs.push_back({{groups * part, hidden}, {move}});
    start += part;
  }
  return result;
}

// Rotary halves of each head interleaved: runs of one row, far apart on neither side.
Case rotary(DType dtype, int64_t heads, int64_t hidden) {
  const Dims shape{heads * 128, hidden};
  return {
      "rotary pairs",
      dtype,
      dtype,
      shape,
      {{shape,
        {{0,
          {0, 0},
          {0, 0},
          {{heads, 0, 128, 0, 128}, {2, 0, 64, 0, 1}, {64, 0, 1, 0, 2}, {hidden, 1, 1, 1, 1}}}}}}};
}

Case experts_apart(DType dtype, int64_t experts, int64_t rows, int64_t columns) {
  Case result{fmt::format("{} experts apart", experts), dtype, dtype, {experts, rows, columns}, {}};
  for (int64_t i = 0; i < experts; ++i) {
    result.outputs.push_back(
        {{rows, columns}, {{0, {i, 0, 0}, {0, 0}, {{rows, 1, 1, 0, 1}, {columns, 2, 1, 1, 1}}}}});
  }
  return result;
}

// Experts of a grouped weight, each transposed.
Case experts_transposed(DType dtype, int64_t experts, int64_t hidden, int64_t ffn) {
  Case result{
      fmt::format("{} experts transposed", experts), dtype, dtype, {experts, hidden, ffn}, {}};
  for (int64_t i = 0; i < experts; ++i) {
    result.outputs.push_back(
        {{ffn, hidden}, {{0, {i, 0, 0}, {0, 0}, {{hidden, 1, 1, 1, 1}, {ffn, 2, 1, 0, 1}}}}});
  }
  return result;
}

Case gate_up(DType dtype, int64_t ffn, int64_t hidden) {
  Case result{"gate and up apart", dtype, dtype, {2 * ffn, hidden}, {}};
  for (int64_t half = 0; half < 2; ++half) {
    result.outputs.push_back({{ffn, hidden}, {copy_box({{half * ffn, 0}, {ffn, hidden}}, {0, 0})}});
    result.outputs.back().moves[0].out_origin = {0, 0};
  }
  return result;
}

// A row-parallel weight cut into the columns of its ranks.
Case columns_apart(DType dtype, int64_t rows, int64_t columns, int64_t ranks) {
  Case result{fmt::format("columns to {} ranks", ranks), dtype, dtype, {rows, columns}, {}};
  const int64_t width = columns / ranks;
  for (int64_t i = 0; i < ranks; ++i) {
    result.outputs.push_back({{rows, width}, {copy_box({{0, i * width}, {rows, width}}, {0, 0})}});
  }
  return result;
}

std::vector<Case> all_cases() {
  const DType bf16 = DType::bf16, f32 = DType::f32;
  return {qkv(bf16, 8, 4096),
          rotary(bf16, 32, 4096),
          gate_up(bf16, 14336, 4096),
          experts_apart(bf16, 64, 2816, 2048),
          columns_apart(bf16, 4096, 14336, 8),
          experts_transposed(bf16, 64, 2048, 1408),
          transposition(bf16, 4096, 1024),
          transposition(bf16, 4096, 4096),
          transposition(bf16, 16384, 4096),
          transposition(bf16, 4096, 16384),
          transposition(bf16, 1600, 6400),
          transposition(f32, 4096, 4096),
          transposition(f32, 16384, 4096),
          transposition(DType::u8, 16384, 4096),
          transposition(DType::f64, 4096, 4096),
          qkv(f32, 8, 4096),
          cast_transposition(f32, bf16, 4096, 4096),
          cast(bf16, f32),
          cast(f32, bf16),
          cast(f32, DType::f16),
          cast(DType::f16, f32),
          cast(DType::f16, bf16)};
}

// A file of `bytes` bytes of numbers that are normal in every floating-point type.
void write_source(const std::string& path, DType dtype, uint64_t bytes) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(1 << 20);
  for (float& value : values) value = normal(random);
  const DType stored = is_floating_point(dtype) ? dtype : DType::f32;
  std::vector<std::byte> block(values.size() * static_cast<size_t>(size_bytes(stored)));
  convert(reinterpret_cast<const std::byte*>(values.data()), 4, DType::f32, block.data(),
          size_bytes(stored), stored, static_cast<int64_t>(values.size()));
  const auto file = posix_file_system()->create(path, bytes);
  for (uint64_t at = 0; at < bytes; at += block.size()) {
    file->write(at, std::span(block).first(std::min<uint64_t>(block.size(), bytes - at)));
  }
  file->sync();
}

void add_output(Plan& plan, uint32_t input, DType dtype, const Output& output) {
  const auto bytes =
      static_cast<uint64_t>(element_count(output.shape, "output") * size_bytes(dtype));
  FileInfo& file = plan.target.files[0];
  Entry entry{fmt::format("t{}", plan.target.entries.size()), dtype, output.shape, {}, Role::model};
  entry.chunks.push_back({{Box::whole(output.shape)}, {}, {0, file.bytes, bytes}});
  file.bytes += bytes;
  plan.target.entries.push_back(std::move(entry));
  plan.recipes.push_back({{input}, output.moves, {}});
}

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Times {
  std::vector<double> rates, processor_rates;  // GB/s
};

// Runs a plan that reads and writes `bytes` bytes.
void time_run(const Plan& plan, double bytes, const Settings& settings, Times& times) {
  const auto files = posix_file_system();
  const std::string out = join(settings.folder, "out");
  files->remove_all(out);
  files->create_folder(out);
  EngineOptions options;
  options.threads = settings.threads;
  options.memory_bytes = settings.memory_mebibytes << 20;
  const double processor_begin = processor_seconds();
  const auto begin = std::chrono::steady_clock::now();
  run(plan, *files, out, options);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  times.rates.push_back(bytes / taken.count() / 1e9);
  times.processor_rates.push_back(bytes / (processor_seconds() - processor_begin) / 1e9);
  files->remove_all(out);
}

void time_cp(const std::string& source, double bytes, const Settings& settings, Times& times) {
  const auto files = posix_file_system();
  const std::string out = join(settings.folder, "out");
  files->remove_all(out);
  const std::string command = fmt::format("cp '{0}' '{1}' && sync '{1}'", source, out);
  const auto begin = std::chrono::steady_clock::now();
  if (std::system(command.c_str()) != 0) fail(ErrorKind::io, "{} failed", command);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  times.rates.push_back(bytes / taken.count() / 1e9);
  files->remove_all(out);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void measure(const Case& c, const Settings& settings) {
  const auto files = posix_file_system();
  const auto tensor_bytes =
      static_cast<uint64_t>(element_count(c.shape, "source") * size_bytes(c.in));
  const uint64_t tensors = std::max<uint64_t>(1, (settings.mebibytes << 20) / tensor_bytes);
  const std::string path = join(settings.folder, "source");
  files->remove_all(path);
  write_source(path, c.in, tensors * tensor_bytes);
  Catalog source;
  source.file_system = files;
  source.add_file(path, tensors * tensor_bytes);
  Plan plain, transform;
  plain.source = transform.source = SharedCatalog::borrow(source);
  plain.target.files = transform.target.files = {{"file", 0}};
  for (uint32_t i = 0; i < tensors; ++i) {
    Entry entry{fmt::format("s{}", i), c.in, c.shape, {}, Role::model};
    entry.chunks.push_back({{Box::whole(c.shape)}, {}, {0, i * tensor_bytes, tensor_bytes}});
    source.entries.push_back(std::move(entry));
    add_output(plain, i, c.in, {c.shape, {copy_all(c.shape)}});
    for (const Output& output : c.outputs) add_output(transform, i, c.out, output);
  }
  check(plain);
  check(transform);
  const auto read = static_cast<double>(tensors * tensor_bytes);
  const double plain_bytes = 2 * read;
  const double bytes = read + static_cast<double>(transform.target_bytes());
  Times warm_up, cp, copy, moved;
  time_run(plain, plain_bytes, settings, warm_up);
  for (int i = 0; i < settings.repeat; ++i) {
    time_cp(path, plain_bytes, settings, cp);
    time_run(plain, plain_bytes, settings, copy);
    time_run(transform, bytes, settings, moved);
  }
  const std::string types =
      c.in == c.out ? std::string(safetensors_name(c.in))
                    : fmt::format("{} to {}", safetensors_name(c.in), safetensors_name(c.out));
  fmt::print(
      "{:<28} {:<12} cp {:4.2f} GB/s, copy {:4.2f}, transform {:4.2f}; of cp {:.2f}, of copy "
      "{:.2f} "
      "(processor {:.2f})\n",
      c.name, types, median(cp.rates), median(copy.rates), median(moved.rates),
      median(moved.rates) / median(cp.rates), median(moved.rates) / median(copy.rates),
      median(moved.processor_rates) / median(copy.processor_rates));
  std::fflush(stdout);
  files->remove_all(path);
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  ferry::Settings settings;
  CLI::App app{"Transforms that reorder against plain copies"};
  app.add_option("folder", settings.folder, "existing folder to work in")->required();
  app.add_option("--mebibytes", settings.mebibytes, "of source tensors");
  app.add_option("--memory-mebibytes", settings.memory_mebibytes, "the engine's budget");
  app.add_option("--repeat", settings.repeat);
  app.add_option("--threads", settings.threads, "0: one a core");
  app.add_option("--only", settings.only, "cases whose name holds this");
  CLI11_PARSE(app, argc, argv);
  for (const ferry::Case& c : ferry::all_cases()) {
    if (c.name.find(settings.only) != std::string::npos) ferry::measure(c, settings);
  }
}
