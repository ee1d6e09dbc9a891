#include "ckpt/megatron/optimizer/masters/passing.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/load_as.h"
#include "ckpt/base/processors.h"
#include "ckpt/base/threads.h"
#include "ckpt/core/passing_values.h"

namespace ferry {
namespace {

constexpr size_t kKeys = 1024;  // elements that one row of keys is for

uint32_t mixed(uint64_t x) {
  x = (x + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 31)) * 0x94d049bb133111eb;
  return static_cast<uint32_t>(x >> 32);
}

// The key of an element is keys[position % kKeys] * mixed(position / kKeys), both odd. The first
// are all different, so that two exchanged elements are noticed; and of 16 bits, as products of
// such numbers are what every processor adds fastest.
struct Keys {
  Keys() {
    for (size_t i = 0; i < kKeys; ++i) {  // odd numbers times an odd number: different modulo 2^16
      of[i] = static_cast<int16_t>(static_cast<uint16_t>((2 * i + 1) * 0x9e37));
    }
  }
  std::array<int16_t, kKeys> of;
};
const Keys kKey;

// To nearest even, as optimizers round. What becomes of NaNs does not matter: equal sums of them
// come from equal bits.
int16_t rounded_to_bf16(uint32_t master) {
  return static_cast<int16_t>((master + 0x7fff + ((master >> 16) & 1)) >> 16);
}

uint32_t product(int16_t value, int16_t key) {
  return static_cast<uint32_t>(int32_t{value} * int32_t{key});
}

// The sum of `count` elements of fp32 (four bytes) or bf16 (two).
FERRY_FOR_EACH_PROCESSOR uint32_t sum_of(const std::byte* elements, size_t element_bytes,
                                         const int16_t* keys, size_t count) {
  uint32_t sum = 0;
  if (element_bytes == sizeof(uint32_t)) {
    for (size_t i = 0; i < count; ++i) {
      sum += product(rounded_to_bf16(load_as<uint32_t>(elements + 4 * i)), keys[i]);
    }
  } else {
    for (size_t i = 0; i < count; ++i) {
      sum += product(load_as<int16_t>(elements + 2 * i), keys[i]);
    }
  }
  return sum;
}

// A chunk whose elements are in a file as they are, in row-major order of its box.
struct Place {
  uint64_t begin = 0, end = 0;  // bytes of the file
  size_t tensor = 0;            // 2 * pair, and 1 more for the weight
  const Shard* shard = nullptr;
  size_t element_bytes = 0;
  // Elements of the box that follow one another in the tensor, too.
  int64_t row = 1;
};

int64_t row_length(const Box& box, const Dims& shape) {
  int64_t row = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    row *= box.size[axis];
    if (box.size[axis] != shape[axis]) break;
  }
  return row;
}

// Position in a row-major tensor with these strides of the element at `at` of the flattened box.
int64_t position_of(int64_t at, const Box& box, const Dims& strides) {
  int64_t position = 0;
  for (size_t axis = strides.size(); axis-- > 0;) {
    position += (box.offset[axis] + at % box.size[axis]) * strides[axis];
    at /= box.size[axis];
  }
  return position;
}

}  // namespace

struct PassingMasters::Sums {
  struct Tensor {
    std::atomic<uint32_t> sum{0};
    std::atomic<int64_t> seen{0};  // elements
    int64_t elements = -1;         // -1: no sum can be taken of it
    Dims strides;
  };

  explicit Sums(size_t pairs) : tensors(2 * pairs) {}

  // Elements [first, first + count) of the place.
  void add(const Place& place, int64_t first, int64_t count, const std::byte* bytes) {
    Tensor& tensor = tensors[place.tensor];
    uint32_t sum = 0;
    for (int64_t done = 0; done < count;) {
      const int64_t at = place.shard->run_begin + first + done;
      const int64_t position = position_of(at, place.shard->box, tensor.strides);
      const int64_t left_of_keys = int64_t{kKeys} - position % int64_t{kKeys};
      const int64_t together = std::min({count - done, place.row - at % place.row, left_of_keys});
      const auto key = static_cast<uint64_t>(position) / kKeys;
      sum += (mixed(key) | 1) * sum_of(bytes + static_cast<size_t>(done) * place.element_bytes,
                                       place.element_bytes, &kKey.of[position % int64_t{kKeys}],
                                       static_cast<size_t>(together));
      done += together;
    }
    tensor.sum += sum;
    tensor.seen += count;
  }

  std::vector<Tensor> tensors;
  std::vector<std::vector<Place>> places;  // one list a file, in order, without overlap
};

namespace {

// Nothing where no sum can be taken of the chunk's bytes.
std::optional<Place> place_of(const Catalog& catalog, const Entry& entry, const Chunk& stored,
                              size_t tensor) {
  const auto range = plain_bytes(catalog, entry, stored);
  if (!range) return std::nullopt;
  return Place{range->begin,
               range->end,
               tensor,
               &stored,
               static_cast<size_t>(size_bytes(entry.dtype)),
               row_length(stored.box, entry.shape)};
}

// By number of the file.
using Places = std::vector<std::pair<size_t, Place>>;
std::optional<Places> places_of(const Catalog& catalog, const Entry& entry, size_t tensor,
                                const std::unordered_map<std::string_view, size_t>& files) {
  Places places;
  for (const Chunk& chunk : entry.chunks) {
    const auto number = files.find(catalog.files.at(chunk.extent.file).path);
    if (number == files.end()) return std::nullopt;
    try {
      const auto place = place_of(catalog, entry, chunk, tensor);
      if (!place) return std::nullopt;
      if (place->begin < place->end) places.emplace_back(number->second, *place);
    } catch (const Error&) {
      return std::nullopt;  // whoever reads the tensor says what is wrong
    }
  }
  return places;
}

}  // namespace

PassingMasters::PassingMasters(const Catalog& catalog, const std::vector<MasterPair>& pairs,
                               std::span<const FileInfo> files, int threads)
    : sums_(std::make_unique<Sums>(pairs.size())) {
  std::unordered_map<std::string_view, size_t> numbers;
  for (size_t i = 0; i < files.size(); ++i) numbers.emplace(files[i].path, i);
  sums_->places.resize(files.size());
  std::mutex mutex;
  std::atomic<size_t> next{0};
  on_threads(threads, [&](int, const std::atomic<bool>& stop) {
    for (size_t i = next++; i < sums_->tensors.size() && !stop; i = next++) {
      const MasterPair& pair = pairs[i / 2];
      if (pair.weight_dtype != DType::bf16) continue;
      const Recipe& recipe = i % 2 == 0 ? pair.master : pair.weight;
      const Entry& entry = catalog.entries.at(recipe.inputs.at(0));
      const auto places = places_of(catalog, entry, i, numbers);
      if (!places) continue;
      sums_->tensors[i].elements = entry.elements();
      sums_->tensors[i].strides = row_major_strides(entry.shape);
      const std::lock_guard lock(mutex);
      for (const auto& [number, place] : *places) sums_->places[number].push_back(place);
    }
  });
  for (std::vector<Place>& places : sums_->places) {
    std::sort(places.begin(), places.end(),
              [](const Place& a, const Place& b) { return a.begin < b.begin; });
    // No sums are taken of tensors that share bytes.
    const auto shared =
        std::adjacent_find(places.begin(), places.end(),
                           [](const Place& a, const Place& b) { return b.begin < a.end; });
    if (shared == places.end()) continue;
    for (const Place& place : places) sums_->tensors[place.tensor].elements = -1;
    places.clear();
  }
}

PassingMasters::~PassingMasters() = default;

PassingMasters::Seer PassingMasters::reader() {
  // An element of which a first part was seen at the end of a block.
  struct Begun {
    uint32_t file = 0;
    uint64_t at = 0;  // byte of the file that is awaited
    std::array<std::byte, sizeof(uint32_t)> bytes{};
    size_t count = 0;
  };
  return [this, begun = Begun{}](uint32_t file, uint64_t offset,
                                 std::span<const std::byte> bytes) mutable {
    const std::vector<Place>& places = sums_->places[file];
    auto place = std::partition_point(places.begin(), places.end(),
                                      [&](const Place& p) { return p.end <= offset; });
    const bool goes_on = begun.count > 0 && begun.file == file && begun.at == offset;
    if (!goes_on) begun.count = 0;
    for (; place != places.end() && place->begin < offset + bytes.size(); ++place) {
      uint64_t at = std::max(offset, place->begin);
      const uint64_t end = std::min(offset + bytes.size(), place->end);
      const uint64_t size = place->element_bytes;
      const auto element = [&](uint64_t byte) {
        return static_cast<int64_t>((byte - place->begin) / size);
      };
      for (; (at - place->begin) % size != 0 && at < end; ++at) {
        if (begun.count != (at - place->begin) % size) continue;  // its beginning was not seen
        begun.bytes[begun.count++] = bytes[at - offset];
        if (begun.count < size) continue;
        sums_->add(*place, element(at), 1, begun.bytes.data());
        begun.count = 0;
      }
      const auto whole = static_cast<int64_t>((end - at) / size);
      if (whole > 0) sums_->add(*place, element(at), whole, bytes.data() + (at - offset));
      at += static_cast<uint64_t>(whole) * size;
      if (at == end) continue;
      begun.count = 0;
      for (; at < end; ++at) begun.bytes[begun.count++] = bytes[at - offset];
    }
    begun.file = file;
    begun.at = offset + bytes.size();
  };
}

std::vector<size_t> PassingMasters::not_seen_to_agree() const {
  std::vector<size_t> positions;
  for (size_t i = 0; i < sums_->tensors.size(); i += 2) {
    const Sums::Tensor &master = sums_->tensors[i], &weight = sums_->tensors[i + 1];
    const bool seen = master.elements >= 0 && master.seen == master.elements &&
                      weight.elements == master.elements && weight.seen == weight.elements;
    if (!seen || master.sum != weight.sum) positions.push_back(i / 2);
  }
  return positions;
}

}  // namespace ferry
