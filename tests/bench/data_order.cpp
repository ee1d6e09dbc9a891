// data_order DOCUMENTS SEQUENCE_LENGTH: how long the arrays of a sample order take to build and to
// check, in seconds of the processor's time, over documents of 1 to 1,999 tokens. Prints JSON, with
// an XXH3 digest of each array. tests/bench/data_order.py holds it against Megatron-LM's own.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <ctime>

#include "ckpt/base/digest.h"
#include "trainer/data/samples/blended_dataset.h"
#include "trainer/data/samples/gpt_indices.h"

namespace {

using namespace ferry;

constexpr int kRepeats = 5;  // of which the fastest counts

class Lengths final : public TokenSource {
 public:
  explicit Lengths(int64_t documents) : values_(numpy_integers(0, 1, 2000, documents)) {
    set_lengths(std::as_bytes(std::span(values_)).data(), documents);
  }
  void read(int64_t, int64_t, std::span<int32_t>) const override {}
  std::string name() const override { return "made up"; }

 private:
  std::vector<int32_t> values_;
};

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

template <typename Work>
double best_of(const Work& work) {
  double best = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    const double start = cpu_seconds();
    work();
    best = std::min(best, cpu_seconds() - start);
  }
  return best;
}

template <typename T>
std::string hex(const std::vector<T>& values) {
  return to_hex(digest_of(std::as_bytes(std::span(values))));
}

int64_t number_of(const char* text) {
  int64_t value = 0;
  std::from_chars(text, text + std::strlen(text), value);
  return value;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const Lengths source(number_of(arguments[1]));
  const int64_t length = number_of(arguments[2]);
  const SequenceRange range{0, source.sequences()};
  const EpochPlan plan = plan_epochs(count_tokens(source, range), length, std::nullopt, true);
  std::vector<int32_t> documents, samples;
  std::vector<uint32_t> order;
  NumpyRandomState random(1234);
  const double document_seconds = best_of([&] {
    random = NumpyRandomState(1234);
    documents = build_document_index(range, plan, random);
  });
  const double sample_seconds = best_of(
      [&] { samples = build_sample_index<int32_t>(source, documents, length, plan.samples); });
  const NumpyRandomState before = random;
  const double shuffle_seconds = best_of([&] {
    random = before;
    order = build_shuffle_index(plan, random);
  });
  const double check_seconds = best_of([&] {
    const bool same = is_document_index(documents, range, plan) && is_shuffle_index(order, plan) &&
                      is_sample_index(std::span<const int32_t>(samples), source, documents, length);
    if (!same) fmt::print(stderr, "the arrays are not right\n");
  });
  BlendIndices blend;
  const std::vector<double> shares = {0.05, 0.1, 0.15, 0.2, 0.2, 0.15, 0.1, 0.05};
  const double blend_seconds = best_of([&] { blend = build_blend(shares, 2000000); });
  fmt::print(
      "{{\"document_index\": {:.6f}, \"sample_index\": {:.6f}, \"shuffle_index\": {:.6f}, "
      "\"check\": {:.6f}, \"blend\": {:.6f}, \"digests\": [\"{}\", \"{}\", \"{}\", \"{}\"]}}\n",
      document_seconds, sample_seconds, shuffle_seconds, check_seconds, blend_seconds,
      hex(documents), hex(samples), hex(order), hex(blend.datasets));
}
