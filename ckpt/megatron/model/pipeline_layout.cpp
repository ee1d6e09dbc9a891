#include "ckpt/megatron/model/pipeline_layout.h"

#include <algorithm>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"

namespace ferry {
namespace {

// Layers of each stage, all its chunks together. Where embedding or loss count as a layer they are
// included here and taken off the first, or last, chunk afterwards.
std::vector<int64_t> layers_of_stages(const RunArguments& run) {
  const auto refuse = [&]() -> void {
    fail(ErrorKind::mismatch,
         "{} layers cannot be split over {} pipeline stages as the run's "
         "arguments say",
         run.layers, run.pipeline);
  };
  const bool uneven = run.first_stage_layers || run.last_stage_layers;
  const bool counted = run.embedding_is_a_layer || run.loss_is_a_layer;
  if (uneven && counted) refuse();
  int64_t left = run.layers + (run.embedding_is_a_layer ? 1 : 0) + (run.loss_is_a_layer ? 1 : 0);
  int64_t stages_left = run.pipeline;
  if (run.first_stage_layers) left -= *run.first_stage_layers, --stages_left;
  if (run.last_stage_layers) left -= *run.last_stage_layers, --stages_left;
  if (left < 0 || stages_left < 0 || (stages_left == 0 ? left != 0 : left % stages_left != 0)) {
    refuse();
  }
  std::vector<int64_t> layers(run.pipeline, stages_left > 0 ? left / stages_left : 0);
  if (run.first_stage_layers) layers.front() = *run.first_stage_layers;
  if (run.last_stage_layers) layers.back() = *run.last_stage_layers;
  for (int64_t count : layers) {
    if (count % run.virtual_pipeline != 0) refuse();
  }
  return layers;
}

// Layers that so many prediction depths have.
int64_t built_mtp_layers(const RunArguments& run, int64_t depths) {
  return run.repeated_mtp ? std::min<int64_t>(depths, 1) : depths;
}

}  // namespace

PipelineLayout::PipelineLayout(const RunArguments& run)
    : stages_(run.pipeline), chunks_(run.virtual_pipeline) {
  if (!run.stage_letters.empty()) {
    const auto rows = static_cast<int64_t>(run.stage_letters.size());
    if (rows % stages_ != 0) {
      fail(ErrorKind::mismatch,
           "pipeline_model_parallel_layout of the run has {} stages, not a multiple of {}", rows,
           stages_);
    }
    chunks_ = rows / stages_;
  }
  constexpr int64_t kMostChunks = int64_t{1} << 20;
  if (checked_multiply(stages_, chunks_, "pipeline stages") > kMostChunks) {
    fail(ErrorKind::mismatch, "{} pipeline stages of {} chunks each are too many", stages_,
         chunks_);
  }
  contents_.resize(stages_ * chunks_);
  mutable_at(0, 0).first = true;
  mutable_at(stages_ - 1, chunks_ - 1).last = true;
  if (run.stage_letters.empty()) {
    split_evenly(run);
  } else {
    split_by_letters(run);
  }
  // Without MTP the final norm goes with the output, with MTP with the decoder's last layer.
  for (StageContents& stage : contents_) {
    stage.final_norm = run.mtp_layers == 0
                           ? stage.last
                           : stage.layers > 0 && stage.first_layer + stage.layers == run.layers;
  }
}

const StageContents& PipelineLayout::at(int64_t stage, int64_t chunk) const {
  return contents_.at(stage * chunks_ + chunk);
}

StageContents& PipelineLayout::mutable_at(int64_t stage, int64_t chunk) {
  return contents_.at(stage * chunks_ + chunk);
}

void PipelineLayout::split_evenly(const RunArguments& run) {
  const std::vector<int64_t> layers = layers_of_stages(run);
  int64_t next = 0;
  for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
    for (int64_t stage = 0; stage < stages_; ++stage) {
      StageContents& contents = mutable_at(stage, chunk);
      contents.first_layer = next;
      contents.layers = layers[stage] / chunks_ - (contents.first && run.embedding_is_a_layer) -
                        (contents.last && run.loss_is_a_layer);
      if (contents.layers < 0) {
        fail(ErrorKind::mismatch, "pipeline stage {} of the run would have no layer to remove",
             stage);
      }
      next += contents.layers;
    }
  }
  mutable_at(stages_ - 1, chunks_ - 1).mtp_layers = built_mtp_layers(run, run.mtp_layers);
}

void PipelineLayout::split_by_letters(const RunArguments& run) {
  int64_t next = 0, next_mtp = 0;
  for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
    for (int64_t stage = 0; stage < stages_; ++stage) {
      const std::string& letters = run.stage_letters[chunk * stages_ + stage];
      StageContents& contents = mutable_at(stage, chunk);
      contents.first_layer = next;
      contents.layers = std::count(letters.begin(), letters.end(), 't');
      const int64_t depths = std::count(letters.begin(), letters.end(), 'm');
      contents.first_mtp = run.repeated_mtp ? 0 : next_mtp;
      contents.mtp_layers = built_mtp_layers(run, depths);
      next += contents.layers;
      next_mtp += depths;
    }
  }
  if (next != run.layers || next_mtp != run.mtp_layers) {
    fail(ErrorKind::mismatch,
         "pipeline_model_parallel_layout (--pipeline-model-parallel-layout) holds {} decoder and "
         "{} MTP layers, the model has {} and {}",
         next, next_mtp, run.layers, run.mtp_layers);
  }
}

}  // namespace ferry
