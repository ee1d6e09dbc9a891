// An input is a line of JSON: the text of trainer_state.json and of `latest`, and names of files
// and folders next to a model.
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/format/hugging_face/training_folder.h"
#include "tests/fuzz/finding.h"
#include "tests/fuzz/json_members.h"
#include "tests/io/memory_file_system.h"

namespace ferry::test {
namespace {

using nlohmann::json;

constexpr const char* kNames[] = {"optimizer.pt",
                                  "optimizer.bin",
                                  "optimizer_0",
                                  "scheduler.pt",
                                  "rng_state.pth",
                                  "rng_state_0.pth",
                                  "random_states_0.pkl",
                                  "pytorch_model_fsdp_0",
                                  "pytorch_model_fsdp.bin",
                                  "pytorch_model_fsdp_0_rank0.bin",
                                  "pytorch_model_fsdp_rank0.bin",
                                  "global_step2",
                                  "latest",
                                  "checkpoint-2",
                                  "checkpoint_10",
                                  "model.safetensors",
                                  "config.json"};
constexpr const char* kParts[] = {"0", "_", "-", "1",   "99999999999999999999", ".bin", "rank",
                                  "#", ".", "x", "\xff"};

std::string changed_name(Random& random) {
  std::string name = random.pick(kNames);
  for (uint64_t changes = random.below(3); changes > 0; --changes) {
    const size_t at = random.below(name.size() + 1);
    if (random.one_in(2)) {
      name.insert(at, random.pick(kParts));
    } else {
      name.erase(at, 1 + random.below(3));
    }
  }
  return name.empty() || name.find('/') != std::string::npos ? "x" : name;
}

class TrainingFolderMutator final : public Mutator {
 public:
  explicit TrainingFolderMutator(const std::vector<std::string>& corpus) {
    for (const std::string& text : corpus) {
      json state = json::parse(text, nullptr, false);
      if (!state.is_object()) continue;
      members_.learn(state);
      seeds_.push_back(std::move(state));
    }
    if (seeds_.empty()) seeds_.push_back({{"global_step", 4}, {"epoch", 1.0}, {"max_steps", 6}});
    members_.learn(seeds_.front());
  }

  std::string input(Random& random) const override {
    json state = random.pick(seeds_);
    for (uint64_t changes = random.below(6); changes > 0; --changes) {
      members_.change(state, random);
    }
    std::string text = to_json_text(state);
    if (random.one_in(8)) text.resize(random.below(text.size() + 1));
    json names = json::array();
    for (uint64_t count = random.below(6); count > 0; --count) {
      names.push_back(safe(changed_name(random)));
    }
    return json{{"state", safe(text)}, {"latest", safe(changed_name(random))}, {"names", names}}
        .dump();
  }

 private:
  // What JSON can hold as a string.
  static std::string safe(std::string text) {
    for (char& c : text) c = static_cast<unsigned char>(c) >= 0x80 ? '?' : c;
    return text;
  }

  std::vector<json> seeds_;
  Members members_;
};

}  // namespace

std::unique_ptr<Mutator> make_mutator(const std::vector<std::string>& corpus, size_t) {
  return std::make_unique<TrainingFolderMutator>(corpus);
}

}  // namespace ferry::test

// Whatever a training program's folder holds is reported, and the folder is opened or there is an
// Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
  using namespace ferry::test;
  const auto input = nlohmann::json::parse(data, data + size, nullptr, false);
  if (!input.is_object() || !input.contains("names")) return 0;
  const auto files = std::make_shared<MemoryFileSystem>();
  files->put("x/trainer_state.json", input["state"].get<std::string>());
  files->put("x/latest", input["latest"].get<std::string>());
  for (const auto& each : input["names"]) {
    const auto name = each.get<std::string>();
    const bool is_folder = name.size() % 3 == 0 || name.find('.') == std::string::npos;
    if (name.find('\0') == std::string::npos) {
      files->put("x/" + name + (is_folder ? "/a.bin" : ""), name);
    }
  }
  TrainingFolder found;
  if (!succeeds("read", [&] { found = read_training_folder(*files, "x"); })) {
    finding("a training folder is an error");
  }
  if (found.step && *found.step < 0) finding("a step below zero");
  if (!found.step && found.problem.empty()) finding("no step, and nothing says why");
  succeeds("part", [&] { model_part(*files, "x"); });
  succeeds("open", [&] { open_checkpoint(files, "x"); });
  return 0;
}
