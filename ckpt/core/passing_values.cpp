#include "ckpt/core/passing_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/base/threads.h"

namespace ferry {
namespace {

constexpr size_t kMostElementBytes = 16;

}  // namespace

std::optional<ByteRange> plain_bytes(const Catalog& catalog, const Entry& entry,
                                     const Chunk& stored) {
  const bool raw = stored.extent.encoding == Encoding::raw;
  if (!raw && !catalog.locator) return std::nullopt;
  const Chunk chunk = raw ? stored : catalog.locator->locate(catalog, entry, stored);
  const bool row_major =
      chunk.strides.empty() || chunk.strides == row_major_strides(chunk.box.size);
  if (chunk.extent.zstd || chunk.math.any() || !row_major) return std::nullopt;
  const uint64_t begin = chunk.extent.offset + chunk.extent.payload_offset;
  const auto elements = static_cast<uint64_t>(chunk.elements(entry.name));
  return ByteRange{begin, begin + elements * static_cast<uint64_t>(size_bytes(entry.dtype))};
}

std::string to_text(const std::vector<NonFiniteTensor>& tensors) {
  if (tensors.empty()) return {};
  std::vector<std::string> names;
  for (const NonFiniteTensor& each : tensors) {
    const auto [nan, infinite] = each.values;
    std::string counts = nan > 0 ? fmt::format("{} NaN", nan) : "";
    if (infinite > 0) counts += fmt::format("{}{} infinite", nan > 0 ? ", " : "", infinite);
    names.push_back(fmt::format("{} ({} of {})", each.name, counts, each.elements));
  }
  return fmt::format("{} tensor{} NaN or infinite values: {}", tensors.size(),
                     tensors.size() == 1 ? " holds" : "s hold", some_of(names));
}

struct PassingValues::Cut {
  uint32_t file = UINT32_MAX;
  uint64_t at = 0;   // where the next byte of the element is
  size_t count = 0;  // bytes so far
  std::array<std::byte, kMostElementBytes> bytes{};
};

PassingValues::PassingValues(const Catalog& catalog, std::span<const FileInfo> files, int threads)
    : catalog_(catalog), places_(files.size()) {
  std::unordered_map<std::string_view, size_t> numbers;
  for (size_t i = 0; i < files.size(); ++i) numbers.emplace(files[i].path, i);
  std::atomic<uint32_t> next{0};
  on_threads(threads, [&](int, const std::atomic<bool>& stop) {
    for (uint32_t i = next++; i < catalog.entries.size() && !stop; i = next++) {
      const Entry& entry = catalog.entries[i];
      if (!may_be_non_finite(entry.dtype) || entry.remainders) continue;
      for (const Chunk& chunk : entry.chunks) {
        const auto number = numbers.find(catalog.files.at(chunk.extent.file).path);
        if (number == numbers.end()) continue;
        try {
          const auto bytes = plain_bytes(catalog, entry, chunk);
          const bool inside =
              bytes && bytes->begin < bytes->end && bytes->end <= files[number->second].bytes;
          const std::lock_guard lock(mutex_);
          if (inside) places_[number->second].push_back({*bytes, i});
        } catch (const Error&) {
          continue;  // whoever reads the tensor says what is wrong
        }
      }
    }
  });
  for (std::vector<Place>& places : places_) {
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return std::tie(a.bytes.begin, a.entry) < std::tie(b.bytes.begin, b.entry);
    });
    // Where tensors share bytes, the first one counts.
    uint64_t end = 0;
    std::erase_if(places, [&](const Place& place) {
      if (place.bytes.begin < end) return true;
      end = place.bytes.end;
      return false;
    });
  }
}

void PassingValues::see(std::span<const std::byte> elements, uint32_t entry) {
  const NonFinite values = count_non_finite(elements, catalog_.entries[entry].dtype);
  if (!values.any()) return;
  const std::lock_guard lock(mutex_);
  NonFinite& sum = found_[entry];
  sum.nan += values.nan;
  sum.infinite += values.infinite;
}

// The part of `bytes`, which are at `offset`, that is of the place.
void PassingValues::see_place(const Place& place, uint64_t offset, std::span<const std::byte> bytes,
                              Cut& cut) {
  const auto size = static_cast<size_t>(size_bytes(catalog_.entries[place.entry].dtype));
  const uint64_t from = std::max(place.bytes.begin, offset);
  const uint64_t to = std::min(place.bytes.end, offset + bytes.size());
  std::span<const std::byte> part = bytes.subspan(from - offset, to - from);
  const auto keep = [&](size_t count) {
    std::copy_n(part.data(), count, cut.bytes.data() + cut.count);
    part = part.subspan(count);
    cut.count += count;
    cut.at = to - part.size();
  };
  if (const size_t before = (from - place.bytes.begin) % size; before > 0) {
    if (cut.at != from || cut.count != before) return;  // its begin did not pass by
    keep(std::min(size - before, part.size()));
    if (cut.count < size) return;
    see(std::span(cut.bytes).first(size), place.entry);
  }
  const size_t whole = part.size() / size * size;
  see(part.first(whole), place.entry);
  part = part.subspan(whole);
  cut.count = 0;
  keep(part.size());
}

PassingValues::Seer PassingValues::reader() {
  return [this, cut = Cut()](uint32_t file, uint64_t offset,
                             std::span<const std::byte> bytes) mutable {
    if (cut.file != file || cut.at != offset) cut = Cut{file, offset};
    const std::vector<Place>& places = places_.at(file);
    auto place = std::partition_point(places.begin(), places.end(),
                                      [&](const Place& each) { return each.bytes.end <= offset; });
    for (; place != places.end() && place->bytes.begin < offset + bytes.size(); ++place) {
      see_place(*place, offset, bytes, cut);
    }
  };
}

std::vector<std::vector<ByteRange>> PassingValues::ranges() const {
  std::vector<std::vector<ByteRange>> ranges(places_.size());
  for (size_t file = 0; file < places_.size(); ++file) {
    for (const Place& place : places_[file]) ranges[file].push_back(place.bytes);
  }
  return ranges;
}

std::vector<NonFiniteTensor> PassingValues::found() const {
  const std::lock_guard lock(mutex_);
  std::vector<NonFiniteTensor> tensors;
  for (const auto& [entry, values] : found_) {
    tensors.push_back({catalog_.entries[entry].name, values, catalog_.entries[entry].elements()});
  }
  return tensors;
}

}  // namespace ferry
