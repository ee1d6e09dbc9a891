#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "ckpt/base/error.h"
#include "tests/io/memory_file_system.h"
#include "trainer/data/documents/data_paths.h"
#include "trainer/data/documents/indexed_dataset_writer.h"
#include "trainer/data/open_datasets.h"

namespace {

using namespace ferry;

// Twice what the input is: from a sound cache the second time.
void read_samples(const std::shared_ptr<MemoryFileSystem>& memory) {
  DataOptions options;
  options.data_path = {"d"};
  options.split = "8,1,1";
  options.cache_path = "cache";
  options.sequence_length = 16;
  options.samples = {20, 2, std::nullopt};
  options.token_limit = 1 << 20;
  options.masks.reset_attention_mask = options.masks.reset_position_ids = true;
  for (int times = 0; times < 2; ++times) {
    const auto datasets = open_datasets(memory, options);
    Sample sample;
    Batch batch;
    for (const DataSplit split : kSplits) {
      for (int64_t i = 0; datasets[split] && i < std::min<int64_t>(datasets[split]->size(), 50);
           ++i) {
        datasets[split]->read(i, sample);
        for (const int32_t token : sample.tokens) {
          if (token < 0 || token >= options.token_limit) std::abort();
        }
        const int64_t indices[] = {i, 0};
        read_batch(*datasets[split], indices, sample, batch);
        if (batch.document_starts.size() < 2) std::abort();
      }
    }
  }
}

// What can be merged reads the same afterwards.
void merge(const std::shared_ptr<MemoryFileSystem>& memory) {
  const IndexedDataset dataset(memory, "d");
  IndexedDatasetWriter writer(memory, "copy", dataset.type());
  writer.append(dataset);
  writer.commit();
  const IndexedDataset copy(memory, "copy");
  if (copy.documents() != dataset.documents() || copy.sequences() != dataset.sequences() ||
      memory->get("copy.bin") != memory->get("d.bin")) {
    std::abort();
  }
}

}  // namespace

// Any bytes, met as an index and as names of datasets, are read or are an Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->put("d.idx", text);
  memory->put("d.bin", std::string(1 << 17, '\7'));
  for (const auto& use : {read_samples, merge}) {
    try {
      use(memory);
    } catch (const Error&) {
    }
  }
  DataOptions options;
  memory->put("arguments", text);
  options.data_args_path = "arguments";
  DataOptions each;
  each.per_split_data_args_path = "arguments";
  for (const DataOptions& named : {options, each}) {
    try {
      const DataPaths paths = parse_data_paths(*memory, named);
      if (paths.all && paths.all->prefixes.empty()) std::abort();
    } catch (const Error&) {
    }
  }
  try {
    split_matrix(parse_split(text));
  } catch (const Error&) {
  }
  return 0;
}
