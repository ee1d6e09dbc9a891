#include "trainer/data/documents/token_source.h"

#include "ckpt/base/error.h"
#include "trainer/data/samples/random_order.h"

namespace ferry {

namespace {

constexpr uint32_t kSeed = 0;
constexpr int64_t kSequences = 100000;
constexpr int32_t kLengthLimit = 4096;

}  // namespace

MockTokens::MockTokens(int64_t vocabulary_size, int32_t end_of_document)
    : length_values_(numpy_integers(kSeed, 1, kLengthLimit, kSequences)),
      vocabulary_size_(vocabulary_size),
      end_of_document_(end_of_document) {
  if (vocabulary_size < 1) {
    fail(ErrorKind::invalid, "mock data needs the size of the vocabulary, which is {}",
         vocabulary_size);
  }
  set_lengths(std::as_bytes(std::span(length_values_)).data(), kSequences);
}

void MockTokens::read(int64_t sequence, int64_t offset, std::span<int32_t> into) const {
  const int64_t last = length(sequence) - 1;
  for (int64_t i = 0; i < std::ssize(into); ++i) {
    const int64_t position = offset + i;
    into[static_cast<size_t>(i)] = position == last
                                       ? end_of_document_
                                       : static_cast<int32_t>((position + 1) % vocabulary_size_);
  }
}

}  // namespace ferry
