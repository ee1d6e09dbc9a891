// An input is the words of a command line of training, each ended by a zero byte; after the word
// "--yaml" each is a line of a YAML file that is read last. Any words are
// arguments that fit together, or refused. What fits gives a namespace whose model and layout are
// read back, and schedules that have a rate at every sample.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ckpt/megatron/model/run_arguments.h"
#include "convert/arguments/arguments.h"
#include "tests/fuzz/finding.h"
#include "tests/fuzz/mutator.h"
#include "tests/io/memory_file_system.h"
#include "trainer/arguments/argument_row.h"
#include "trainer/arguments/complete.h"
#include "trainer/arguments/namespace.h"
#include "trainer/arguments/parse.h"
#include "trainer/log/log_lines.h"
#include "trainer/schedule/batch_size.h"
#include "trainer/schedule/exit.h"
#include "trainer/schedule/flops.h"
#include "trainer/schedule/learning_rate.h"

namespace ferry::test {
namespace {

struct Counts {
  uint64_t inputs = 0, parsed = 0, complete = 0;
  ~Counts() {
    std::fprintf(stderr, "of %llu command lines %llu were parsed and %llu fit together\n",
                 static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(parsed),
                 static_cast<unsigned long long>(complete));
  }
};

Counts& counts() {
  static Counts all;
  return all;
}

const std::vector<std::string> kValues = {"1",
                                          "2",
                                          "4",
                                          "8",
                                          "0",
                                          "3",
                                          "-1",
                                          "64",
                                          "1000",
                                          "1099511627776",
                                          "9223372036854775807",
                                          "-9223372036854775808",
                                          "99999999999999999999",
                                          "0.1",
                                          "1e-5",
                                          "1e308",
                                          "-1e308",
                                          "nan",
                                          "1e-400",
                                          "inf",
                                          "",
                                          "x",
                                          "16777216",
                                          "[0]*2+[1]*2",
                                          "[1]*65536",
                                          "(([0,1]*2)+[1])",
                                          "Et|tt|t|L",
                                          "E(t|)*4L",
                                          "0:8 1K:16",
                                          "0:8,5:4",
                                          "127,0",
                                          "@/args",
                                          "fp32",
                                          "torch_dist",
                                          "a b",
                                          "--",
                                          "SIGTERM"};

class ArgumentMutator final : public Mutator {
 public:
  std::string input(Random& random) const override {
    std::vector<std::string> words = {"--num-layers",
                                      "4",
                                      "--hidden-size",
                                      "32",
                                      "--num-attention-heads",
                                      "4",
                                      "--seq-length",
                                      "64",
                                      "--max-position-embeddings",
                                      "64",
                                      "--micro-batch-size",
                                      "2",
                                      "--train-iters",
                                      "10",
                                      "--lr",
                                      "1e-3",
                                      "--position-embedding-type",
                                      "rope"};
    for (uint64_t count = random.below(8); count > 0; --count) add(words, random);
    if (random.one_in(10))
      words.erase(words.begin() + static_cast<ptrdiff_t>(random.below(words.size())));
    if (random.one_in(20))
      words[random.below(words.size())] += static_cast<char>(random.below(256));
    if (random.one_in(4)) add_yaml(words, random);
    std::string bytes;
    for (const std::string& word : words) (bytes += word) += '\0';
    return bytes;
  }

 private:
  static void add_yaml(std::vector<std::string>& words, Random& random) {
    static const std::vector<std::string> kYaml = {
        "1",      "2",     "true", "false",  "null",
        "[1, 2]", "[]",    "0.5",  "[a, b]", "{a: 1}",
        "'x'",    "[[1]]", ".nan", "-.inf",  "99999999999999999999",
        "[0.1]",  "*a",    "&a 1", ""};
    words.emplace_back("--yaml");
    for (uint64_t count = 1 + random.below(4); count > 0; --count) {
      const ArgumentRow& row = random.pick(argument_rows());
      const std::string indent = random.one_in(8) ? "section:\n  " : "";
      words.push_back(indent + row.name() + ": " + random.pick(kYaml));
    }
  }

  // Mostly arguments that mean something, with values that some argument takes.
  static void add(std::vector<std::string>& words, Random& random) {
    const ArgumentRow* row = &random.pick(argument_rows());
    while (row->flags.empty() || (!row->is_bound() && !random.one_in(20))) {
      row = &random.pick(argument_rows());
    }
    words.emplace_back(row->flag());
    if (row->kind <= ArgumentKind::either && !random.one_in(50)) return;
    if (!row->choices.empty() && !random.one_in(4)) {
      const std::vector<std::string> choices = split_words(row->choices, "choices");
      return words.push_back(random.pick(choices));
    }
    // The first few values fit most often.
    const auto value = [&] { return kValues[random.below(random.one_in(3) ? kValues.size() : 4)]; };
    words.push_back(value());
    while (random.one_in(6)) words.push_back(value());
  }
};

void check_complete(TrainArguments& arguments) {
  std::vector<std::string> notes;
  complete_arguments(arguments, Launch(), notes);
  ++counts().complete;
  const std::string banner = arguments_banner(arguments);
  complete_arguments(arguments, Launch(), notes);
  if (arguments_banner(arguments) != banner) finding("a second completion changes arguments");
  complete_vocabulary(arguments, 250);
  Draft draft;
  const LoadedValue saved = [&] {
    const Value root = write_namespace(arguments, {}, draft);
    return std::move(draft).finish(root);
  }();
  const RunArguments run = read_run_arguments(saved.value);
  if (run.layers != *arguments.num_layers || run.world_size != arguments.world_size) {
    finding("the namespace is of another run");
  }
  const ReadArguments read = read_arguments(saved.value, "args");
  if (read.architecture.hidden != *arguments.hidden_size)
    finding("the namespace is of another model");
  if (!(floating_point_operations(arguments, 8) > 0)) finding("no operations");
  decide_exit(arguments, 10, {true, true, true, true}, 1);
  data_sizes(arguments);
  batch_at(batch_sizes(arguments), 5);
  const Schedule schedule = schedule_of(arguments);
  for (const int64_t samples :
       {int64_t{0}, int64_t{1}, schedule.decay / 2, schedule.decay, INT64_MAX}) {
    const double rate = learning_rate(schedule, samples);
    if (!std::isfinite(rate) || rate < 0) finding("a learning rate of " + std::to_string(rate));
    if (!(weight_decay(schedule, samples) >= 0)) finding("a negative weight decay");
  }
}

void run(std::string_view bytes) {
  std::vector<std::string> words;
  while (!bytes.empty()) {
    words.emplace_back(bytes.substr(0, bytes.find('\0')));
    bytes.remove_prefix(std::min(bytes.size(), words.back().size() + 1));
  }
  MemoryFileSystem files;
  files.put("/args", "--bf16 --swiglu # a comment\n");
  if (const auto yaml = std::find(words.begin(), words.end(), "--yaml"); yaml != words.end()) {
    std::string text;
    for (auto line = yaml + 1; line != words.end(); ++line) (text += *line) += '\n';
    files.put("/yaml", text);
    words.erase(yaml, words.end());
    words.insert(words.end(), {"--yaml-cfg", "/yaml"});
  }
  TrainArguments arguments = parse_arguments(words, files);
  ++counts().parsed;
  no_effect_note(arguments);
  check_complete(arguments);
}

}  // namespace

std::unique_ptr<Mutator> make_mutator(const std::vector<std::string>&, size_t) {
  return std::make_unique<ArgumentMutator>();
}

}  // namespace ferry::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry::test;
  ++counts().inputs;
  succeeds("arguments", [&] { run({reinterpret_cast<const char*>(data), size}); });
  return 0;
}
