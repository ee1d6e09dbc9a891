// The tutorial's stages: train a network, and apply it to the test images.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "network.h"

namespace ferry::mnist {

struct StageOptions {
  Task task = Task::autoencoder;
  std::string data;              // folder of the four files
  std::string log_dir;           // checkpoints come to log_dir/name/checkpoints
  std::string name = "example";  // of the run
  /// A checkpoint to begin with: its weights, but for skipped prefixes, and its settings. Empty:
  /// weights at random.
  std::string initial_checkpoint;
  std::vector<std::string> skipped_prefixes;
  bool resume_if_exists = true;  // goes on from the run's own last checkpoint
  bool resume_ignore_no_checkpoint = true;
  std::string resume_from;  // goes on from this one
  size_t save_top_k = 3;
  std::string pictures;            // folder; empty: none are drawn
  std::vector<std::string> words;  // more arguments, under Megatron-LM's names
};

using Print = std::function<void(std::string_view text)>;

/// Trains, and returns the path of the last checkpoint, as NeMo's callback names it: with ".ckpt"
/// appended. `print` takes whole lines.
std::string train_stage(const StageOptions& options, const Print& print);

struct PredictOptions {
  std::string data, checkpoint;
  std::string out;  // folder for predictions.csv and pictures; empty: nothing is written
  std::vector<std::string> words;
};

/// What a network makes of all test images, each once. A classifier's share of right ones is
/// returned; of an autoencoder it is the mean squared error.
double predict_stage(const PredictOptions& options, const Print& print);

}  // namespace ferry::mnist
