// Writes the logits that a run's model gives tokens, for
// tests/interop/trainer/check_trainer_logits.py.
//
//   write_logits TOKENS OUT ARGUMENT...
//
// TOKENS: int32 [micro-batch size, sequence length] as the arguments say. OUT: [sequence length,
// micro-batch size, padded vocabulary] of the type that the arguments say. The arguments are those
// of ferry train with --load; one rank computes.
#include <cstdio>
#include <fstream>

#include "ckpt/base/error.h"
#include "ckpt/io/file_system.h"
#include "tests/trainer/test_device.h"
#include "trainer/arguments/complete.h"
#include "trainer/arguments/parse.h"
#include "trainer/checkpoint/run_checkpoint.h"
#include "trainer/language/rank_model.h"
#include "trainer/language/tokenizer_facts.h"

namespace ferry::test {
namespace {

std::vector<int32_t> read_tokens(const char* path, size_t count) {
  std::vector<int32_t> tokens(count);
  const auto bytes = static_cast<std::streamsize>(count * sizeof(int32_t));
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(tokens.data()), bytes)) {
    fail(ErrorKind::invalid, "{} has fewer than {} tokens", path, count);
  }
  return tokens;
}

// Positions count from 0 in each sequence; what the loss is of does not matter.
Batch batch_of(std::vector<int32_t> tokens, int64_t sequences, int64_t length) {
  Batch batch;
  batch.rows = sequences;
  batch.sequence_length = length;
  batch.labels = tokens;
  batch.tokens = std::move(tokens);
  batch.loss_mask.assign(batch.tokens.size(), 1);
  for (int64_t row = 0; row < sequences; ++row) {
    batch.document_starts.push_back(static_cast<int32_t>(row * length));
    for (int64_t i = 0; i < length; ++i) batch.position_ids.push_back(static_cast<int32_t>(i));
  }
  return batch;
}

void write(const char* tokens_path, const char* out, const std::vector<std::string>& words) {
  const auto files = posix_file_system();
  std::vector<std::string> notes;
  TrainArguments arguments = parse_arguments(words, *files);
  adopt_source_arguments(files, words, arguments, notes);
  complete_arguments(arguments, Launch{}, notes);
  adopt_tokenizer(*files, arguments);
  complete_vocabulary(arguments, arguments.vocab_size.value_or(0));
  const auto group = thread_groups(1).front();
  const auto links = thread_links({group}).front();
  const auto source = open_source(files, arguments, *group);
  if (!source) fail(ErrorKind::not_found, "give --load with a checkpoint");
  const RunModel model = model_of(arguments, source.get());
  RankDevice device = test_device(group, links);
  kernels::Kernels& kernels = *device.kernels;
  RankModel rank(arguments, model, 0, device, source->checkpoint.path);
  load_tensors(source->checkpoint, source->state, device.stager.get(), rank.memory, Load::weights);

  const int64_t sequences = arguments.micro_batch_size.value_or(1);
  const int64_t length = arguments.seq_length.value_or(0);
  const kernels::Type type = pipeline_options(arguments).type;
  const auto bytes =
      static_cast<size_t>(sequences * length * model.architecture.padded_vocab * size_bytes(type));
  const auto memory = kernels.allocate(bytes);
  rank.pipeline.keep_logits({memory.get(), type});
  rank.pipeline.evaluate(1, [&](int64_t, Batch& batch) {
    const auto count = static_cast<size_t>(sequences * length);
    batch = batch_of(read_tokens(tokens_path, count), sequences, length);
  });
  std::vector<char> logits(bytes);
  kernels.download(memory.get(), logits.data(), bytes);
  kernels.wait();
  std::ofstream(out, std::ios::binary).write(logits.data(), static_cast<std::streamsize>(bytes));
}

}  // namespace
}  // namespace ferry::test

int main(int count, char** words) {
  if (count < 3) return 2;
  try {
    ferry::test::write(words[1], words[2], {words + 3, words + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
