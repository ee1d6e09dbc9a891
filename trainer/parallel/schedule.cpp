#include "trainer/parallel/schedule.h"

#include <algorithm>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// The passes of one direction in order: chunk by chunk for as many micro-batches as there are
// stages, then for the next ones.
class Passes {
 public:
  Passes(int64_t stages, int64_t chunks, int64_t micro_batches)
      : stages_(stages), chunks_(chunks), micro_batches_(micro_batches) {}

  int64_t count() const { return chunks_ * micro_batches_; }
  PipelineAction at(int64_t pass, bool is_forward) const {
    if (chunks_ == 1) return {is_forward, 0, pass};
    const int64_t round = pass / (stages_ * chunks_), inside = pass % (stages_ * chunks_);
    const int64_t chunk = inside / stages_;
    return {is_forward, is_forward ? chunk : chunks_ - 1 - chunk,
            round * stages_ + inside % stages_};
  }

 private:
  int64_t stages_, chunks_, micro_batches_;
};

void check_rounds(int64_t stages, int64_t chunks, int64_t micro_batches) {
  if (chunks == 1 || micro_batches % stages == 0) return;
  fail(ErrorKind::mismatch,
       "{} micro-batches are not a multiple of the {} pipeline stages, which virtual stages need: "
       "change --global-batch-size or --micro-batch-size, or leave out the virtual stages",
       micro_batches, stages);
}

}  // namespace

std::vector<PipelineAction> pipeline_schedule(int64_t stages, int64_t stage, int64_t chunks,
                                              int64_t micro_batches) {
  check_rounds(stages, chunks, micro_batches);
  const Passes passes(stages, chunks, micro_batches);
  const int64_t stages_after = stages - 1 - stage;
  int64_t ahead = chunks == 1 ? stages_after : 2 * stages_after + (chunks - 1) * stages;
  ahead = std::min(ahead, passes.count());
  std::vector<PipelineAction> schedule;
  for (int64_t pass = 0; pass < ahead; ++pass) schedule.push_back(passes.at(pass, true));
  for (int64_t pass = 0; pass < passes.count(); ++pass) {
    if (pass + ahead < passes.count()) schedule.push_back(passes.at(pass + ahead, true));
    schedule.push_back(passes.at(pass, false));
  }
  return schedule;
}

std::vector<PipelineAction> forward_schedule(int64_t stages, int64_t chunks,
                                             int64_t micro_batches) {
  std::vector<PipelineAction> schedule;
  if (chunks > 1 && micro_batches % stages != 0) {
    for (int64_t batch = 0; batch < micro_batches; ++batch) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk) schedule.push_back({true, chunk, batch});
    }
    return schedule;
  }
  const Passes passes(stages, chunks, micro_batches);
  for (int64_t pass = 0; pass < passes.count(); ++pass) schedule.push_back(passes.at(pass, true));
  return schedule;
}

int64_t most_in_flight(const std::vector<PipelineAction>& schedule, int64_t chunk) {
  int64_t now = 0, most = 0;
  for (const PipelineAction& action : schedule) {
    if (action.chunk != chunk) continue;
    now += action.is_forward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace ferry
