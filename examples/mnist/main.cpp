// The MNIST tutorial: an autoencoder is trained, goes on, and becomes a classifier.
//
//   mnist pretrain --data MNIST --log-dir runs/pretrain
//   mnist finetune --data MNIST --log-dir runs/classifier --skip-prefix digit_classifier
//                  --from runs/pretrain/example/checkpoints/NAME-last
//   mnist predict  --data MNIST --from runs/classifier/example/checkpoints/NAME-last --out OUT
//
// docs/tutorial-mnist.md walks through it.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "ckpt/base/error.h"
#include "run.h"

namespace {

constexpr const char* kUsage =
    "Train an autoencoder of MNIST's digits, make a classifier of it, and predict\n"
    "Usage: mnist pretrain --data FOLDER --log-dir FOLDER [OPTIONS] [ARGUMENTS]\n"
    "       mnist finetune --data FOLDER --log-dir FOLDER --from CHECKPOINT [OPTIONS] [ARGUMENTS]\n"
    "       mnist predict --data FOLDER --from CHECKPOINT [--out FOLDER] [ARGUMENTS]\n\n"
    "  --data FOLDER         with MNIST's four files, packed (.gz) or not\n"
    "  --log-dir FOLDER      checkpoints come to FOLDER/NAME/checkpoints\n"
    "  --name NAME           of the run (example)\n"
    "  --from CHECKPOINT     begins with its weights and settings\n"
    "  --skip-prefix PREFIX  parameters that begin so are not asked of it; may be given again\n"
    "  --resume-from CHECKPOINT  goes on from there\n"
    "  --no-resume           begins anew, in a folder of its own, where the run has checkpoints\n"
    "  --must-resume         fails where the run has none\n"
    "  --save-top-k N        checkpoints that stay by their loss, besides the last (3)\n"
    "  --pictures FOLDER     draws the losses\n"
    "  --out FOLDER          writes predictions and pictures of them\n"
    "Further arguments are those of ferry train: --train-iters 100 --data-parallel-size 2 --bf16\n";

using ferry::ErrorKind;
using ferry::fail;

// Takes one's options from the words, and leaves the others in them.
class Words {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {}

  bool take_flag(const std::string& name) {
    for (size_t i = 0; i < words_.size(); ++i) {
      if (words_[i] != name) continue;
      words_.erase(words_.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    return false;
  }
  // Every value that was given.
  std::vector<std::string> take_all(const std::string& name) {
    std::vector<std::string> values;
    for (size_t i = 0; i < words_.size();) {
      if (words_[i] != name) {
        ++i;
        continue;
      }
      if (i + 1 == words_.size()) fail(ErrorKind::invalid, "{} needs a value", name);
      values.push_back(words_[i + 1]);
      const auto at = words_.begin() + static_cast<std::ptrdiff_t>(i);
      words_.erase(at, at + 2);
    }
    return values;
  }
  std::string take(const std::string& name, const std::string& otherwise = "") {
    const std::vector<std::string> all = take_all(name);
    return all.empty() ? otherwise : all.back();
  }
  std::string take_needed(const std::string& name) {
    std::string value = take(name);
    if (value.empty()) fail(ErrorKind::invalid, "{} is missing: see mnist --help", name);
    return value;
  }
  std::vector<std::string> rest() const { return words_; }

 private:
  std::vector<std::string> words_;
};

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void train(ferry::mnist::Task task, Words& words) {
  ferry::mnist::StageOptions options;
  options.task = task;
  options.data = words.take_needed("--data");
  options.log_dir = words.take_needed("--log-dir");
  options.name = words.take("--name", options.name);
  options.initial_checkpoint = words.take("--from");
  options.skipped_prefixes = words.take_all("--skip-prefix");
  options.resume_from = words.take("--resume-from");
  options.resume_if_exists = !words.take_flag("--no-resume");
  options.resume_ignore_no_checkpoint = !words.take_flag("--must-resume");
  const std::string best = words.take("--save-top-k", "3");
  if (best.empty() || best.size() > 6 || best.find_first_not_of("0123456789") != best.npos) {
    fail(ErrorKind::invalid, "--save-top-k {} is not a number of checkpoints", best);
  }
  options.save_top_k = static_cast<size_t>(std::stoul(best));
  options.pictures = words.take("--pictures");
  options.words = words.rest();
  print("last checkpoint: " + ferry::mnist::train_stage(options, print) + "\n");
}

void predict(Words& words) {
  ferry::mnist::PredictOptions options;
  options.data = words.take_needed("--data");
  options.checkpoint = words.take_needed("--from");
  options.out = words.take("--out");
  options.words = words.rest();
  ferry::mnist::predict_stage(options, print);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string stage = count > 1 ? arguments[1] : "--help";
  Words words(std::vector<std::string>(arguments + (count > 1 ? 2 : 1), arguments + count));
  try {
    if (stage == "pretrain") {
      train(ferry::mnist::Task::autoencoder, words);
    } else if (stage == "finetune") {
      train(ferry::mnist::Task::classifier, words);
    } else if (stage == "predict") {
      predict(words);
    } else {
      std::fputs(kUsage, stage == "--help" || stage == "-h" ? stdout : stderr);
      return stage == "--help" || stage == "-h" ? 0 : 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
