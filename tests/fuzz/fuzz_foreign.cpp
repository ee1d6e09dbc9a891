// An input is the pickle of a file of FSDP's ranks or of DeepSpeed's. It takes the place of one
// such file in a checkpoint that its program saved, whose other files stay as they are; what it
// holds says of which.
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ckpt/checkpoint.h"
#include "ckpt/format/pickle/pickle.h"
#include "ckpt/format/torch/archive/zip_writer.h"
#include "convert/import.h"
#include "convert/state_dict/state_dict.h"
#include "tests/fuzz/finding.h"
#include "tests/fuzz/planning.h"
#include "tests/io/memory_file_system.h"

namespace {

using namespace ferry;
using namespace ferry::test;

struct Counts {
  std::array<uint64_t, 5> all{};  // inputs, pickles, opened, model read, planned
  ~Counts() {
    std::printf(
        "of %llu inputs %llu were pickles, %llu checkpoints were opened, %llu models read and "
        "%llu runs planned\n",
        ull(0), ull(1), ull(2), ull(3), ull(4));
  }
  unsigned long long ull(size_t at) const { return all[at]; }
};

Counts& counts() {
  static Counts all;
  return all;
}

// A checkpoint, and which of its files an input replaces.
struct Source {
  const char* folder;
  const char* replaced;
};
constexpr Source kVerlModel = {"verl/fsdp2/global_step_1/actor", "model_world_size_2_rank_1.pt"};
constexpr Source kVerlOptimizer = {"verl/fsdp2/global_step_1/actor",
                                   "optim_world_size_2_rank_0.pt"};
constexpr Source kSharded = {"training/fsdp1_sharded", "pytorch_model_fsdp_0_rank1.bin"};
constexpr Source kZeroModel = {"ds/zero2/global_step2", "mp_rank_00_model_states.pt"};
constexpr Source kZero = {"ds/zero2/global_step2",
                          "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"};
constexpr Source kZero3 = {"ds/zero3/global_step2",
                           "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"};
constexpr Source kUniversal = {"ds/zero2_universal/global_step2", "zero/optimizer_state.pt"};

const Source& source_of(const Value& root) {
  const Value zero = root.get("optimizer_state_dict");
  if (zero.has("fp32_flat_groups")) return kZero3;
  if (root.has("group_paddings") || root.has("param_groups")) {
    return root.has("state") ? kVerlOptimizer : kUniversal;
  }
  if (zero) return kZero;
  if (root.has("module") || root.has("param_shapes")) return kZeroModel;
  for (size_t i = 0; i < root.pair_count() && i < 4; ++i) {
    if (root.pair_value(i)[1].text().ends_with(".ShardedTensor")) return kSharded;
  }
  return kVerlModel;
}

using Files = std::map<std::string, std::string>;

// Read once.
const Files& files_of(const std::string& folder) {
  static std::map<std::string, Files> all;
  const auto [at, is_new] = all.try_emplace(folder);
  if (!is_new) return at->second;
  const std::filesystem::path path = std::string(FERRY_FIXTURES "/foreign/") + folder;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    at->second[std::filesystem::relative(entry.path(), path).string()] =
        read_file(*posix_file_system(), entry.path().string(), uint64_t{1} << 30);
  }
  return at->second;
}

// The pickle with storages of zeros, a few of them large enough for flat groups.
std::string archive_of(std::string_view pickle) {
  static const std::string large(16 << 10, '\0'), small(2800, '\0');
  ZipWriter zip(kTorchArchiveFolder);
  zip.add("data.pkl", pickle);
  zip.add("byteorder", "little");
  for (int i = 0; i < 72; ++i) zip.add("data/" + std::to_string(i), i < 8 ? large : small);
  TorchArchiveLayout layout = std::move(zip).finish();
  return std::move(layout.literals.at(0).bytes);
}

std::shared_ptr<MemoryFileSystem> folder_with(const Source& source, std::string_view pickle) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  for (const auto& [name, content] : files_of(source.folder)) {
    memory->put("x/" + name, name == source.replaced ? archive_of(pickle) : content);
  }
  for (const auto& [name, content] : files_of("model")) {
    if (name.ends_with(".json")) memory->put("model/" + name, content);
  }
  return memory;
}

void plan_all(const Checkpoint& checkpoint, bool optimizer, Random& random) {
  StateDictOptions options;
  options.config_folder = "model";
  options.optimizer = optimizer;
  options.drop_unknown = random.one_in(2);
  StateDict state_dict;
  if (!succeeds("state dict", [&] { state_dict = read_state_dict(checkpoint, options); })) return;
  ++counts().all[3];
  ImportOptions import;
  import.config_folder = "model";
  import.optimizer = optimizer;
  import.drop_unknown = options.drop_unknown;
  import.dtype = random.one_in(2) ? DType::bf16 : DType::f32;
  Import run;
  if (!succeeds("import", [&] { run = import_model(state_dict.model, import); })) return;
  const nlohmann::json layout = random_layout(random);
  if (plan_state(std::move(run.state), layout_of(layout), random_writer(random))) {
    ++counts().all[4];
  }
}

}  // namespace

// Whatever a rank's file says, the checkpoint is opened or there is an Error; what was opened has
// chunks inside of its files, and becomes a run with its optimizer, or there is an Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.starts_with("PK")) return 0;  // an archive of the corpus: its pickle is what counts
  ++counts().all[0];
  std::shared_ptr<const Document> document;
  const bool parses =
      succeeds("parse", [&] { document = parse_pickle(std::as_bytes(std::span(bytes)), "fuzz"); });
  if (!parses) return 0;
  ++counts().all[1];
  const auto files = folder_with(source_of(document->root()), bytes);
  Checkpoint checkpoint;
  if (!succeeds("open", [&] { checkpoint = open_checkpoint(files, "x"); })) return 0;
  ++counts().all[2];
  const EntryIndex no_name_stands_twice(checkpoint.catalog);
  for (const Entry& entry : checkpoint.catalog->entries) check_chunks(checkpoint.catalog, entry);
  uint64_t seed = size;
  for (size_t i = 0; i < size; i += 7) seed = seed * 31 + data[i];
  Random random(seed);
  plan_all(checkpoint, true, random);
  if (random.one_in(4)) plan_all(checkpoint, false, random);
  return 0;
}
