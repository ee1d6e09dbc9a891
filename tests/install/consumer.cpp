// A program of someone else's: converts, reshards, verifies and estimates a run, reads its model,
// is cancelled, and fails with an error that it can show.
#include <estimate/estimate.h>
#include <ferry/ferry.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string run = argv[1], work = argv[2];

  const ferry::ConvertReport model = ferry::convert({.source = run, .target = work + "/model"});
  std::printf("%s, %lld parameters\n", model.family.c_str(), (long long)model.parameters);

  ferry::ReshardOptions reshard{.source = run, .target = work + "/resharded"};
  reshard.layout.tensor = 2;
  uint64_t written = 0;
  reshard.write.engine.progress = [&](const ferry::Progress& p) { written = p.bytes_done; };
  ferry::reshard(reshard);
  if (written == 0 || !ferry::verify(reshard.target).problems.empty()) return 1;

  const ferry::Estimate needs = ferry::estimate({.model = run, .gpus = 2});
  if (needs.parameters.without_padding != model.parameters) return 1;

  const std::atomic<bool> cancelled = true;
  reshard.target = work + "/cancelled";
  reshard.write.engine.cancel = &cancelled;
  try {
    ferry::reshard(reshard);
    return 1;
  } catch (const ferry::Error& error) {
    if (error.kind() != ferry::ErrorKind::cancelled) return 1;
  }
  try {
    ferry::convert({.source = work + "/nothing", .target = work + "/model2"});
    return 1;
  } catch (const ferry::Error& error) {
    std::printf("%s: %s\n", ferry::name(error.kind()).data(), error.what());
  }
  const ferry::ModelView view = ferry::view_as_hugging_face({.source = run});
  ferry::TensorStream stream(view.tensors, {.ranks = 2});
  const std::optional<ferry::OwnedTensor> first = stream.next();
  if (!first || first->bytes.empty() || view.parameters != model.parameters) return 1;
  const ferry::TensorSet files(ferry::open_checkpoint(ferry::posix_file_system(), work + "/model"));
  std::vector<std::byte> again(first->bytes.size());
  ferry::load(files, std::vector{ferry::whole_region(first->name, first->dtype, first->shape,
                                                     again.data())});
  if (!std::equal(again.begin(), again.end(), first->bytes.begin())) return 1;
  if (!files.map(first->name)) return 1;

  const ferry::InspectReport tensors = ferry::inspect(reshard.source);
  const ferry::SharedCatalog catalog = tensors.checkpoint->catalog;
  return ferry::read_tensor(catalog, catalog->entries.at(0), 1 << 30).empty() ? 1 : 0;
}
