#include "ckpt/engine/box_reader.h"

#include <span>

#include "ckpt/engine/memory_files.h"
#include "ckpt/engine/tensor_reader.h"

namespace ferry {
namespace {

constexpr uint64_t kBoxStreamBytes = uint64_t{4} << 20;  // of streams that an entry is decoded from

Plan plan_of(const Catalog& catalog, uint32_t position) {
  const Entry& entry = catalog.entries.at(position);
  Plan plan;
  plan.source = SharedCatalog::borrow(catalog);
  add_read_tensor(plan, entry.name, DType::f32, entry.shape,
                  {{position}, {copy_all(entry.shape)}, {}});
  return plan;
}

}  // namespace

struct BoxReader::State {
  State(const Catalog& catalog, uint32_t position)
      : plan(plan_of(catalog, position)),
        source(plan, stream_memory(catalog.entries[position], kBoxStreamBytes), 1) {}

  Plan plan;
  TensorSource source;
};

BoxReader::BoxReader(const Catalog& catalog, uint32_t entry)
    : state_(std::make_unique<State>(catalog, entry)) {}
BoxReader::~BoxReader() = default;

std::vector<float> BoxReader::read(const Box& box) {
  std::vector<float> values(static_cast<size_t>(element_count(box.size, "a box")));
  MemoryTarget target("memory", std::as_writable_bytes(std::span(values)));
  WritableFile* files[] = {&target};
  TileRunner runner(state_->source.files, files, nullptr, nullptr);
  runner.run(state_->source.compiler.compile_to_memory(0, box, DType::f32, box));
  return values;
}

}  // namespace ferry
