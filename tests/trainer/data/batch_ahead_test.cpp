#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "trainer/data/sampler.h"

namespace ferry {
namespace {

using Place = BatchAhead::Place;

// A batch whose only token says which one it is.
void number_it(const Place& place, Batch& batch) {
  if (place.consumed > 100) throw std::out_of_range("past the end");
  batch.tokens = {static_cast<int32_t>(10 * place.consumed + place.number)};
}

TEST(BatchAhead, GivesWhatIsAskedForWhateverWasExpected) {
  std::atomic<int> reads = 0;
  BatchAhead ahead([&](const Place& place, Batch& batch) {
    ++reads;
    number_it(place, batch);
  });
  Batch batch;
  ahead.take({1, 0}, {1, 1}, batch);
  EXPECT_EQ(batch.tokens, std::vector<int32_t>{10});
  ahead.take({1, 1}, {2, 0}, batch);
  EXPECT_EQ(batch.tokens, std::vector<int32_t>{11});
  ahead.take({7, 0}, {7, 1}, batch);  // the next step was left out
  EXPECT_EQ(batch.tokens, std::vector<int32_t>{70});
  ahead.take({7, 1}, {8, 0}, batch);
  EXPECT_EQ(batch.tokens, std::vector<int32_t>{71});
  ahead.take({8, 0}, {101, 0}, batch);  // nothing is read past the end
  EXPECT_EQ(batch.tokens, std::vector<int32_t>{80});
  EXPECT_LE(reads, 7);  // three of them were ready when they were asked for
}

TEST(BatchAhead, ThrowsWhatReadingThrows) {
  BatchAhead ahead(number_it);
  Batch batch;
  EXPECT_THROW(ahead.take({101, 0}, {1, 0}, batch), std::out_of_range);
  ahead.take({1, 0}, {101, 0}, batch);
  EXPECT_THROW(ahead.take({101, 0}, {1, 0}, batch), std::out_of_range);
  ahead.take({1, 1}, {1, 2}, batch);
  EXPECT_EQ(batch.tokens, std::vector<int32_t>{11});
}

}  // namespace
}  // namespace ferry
