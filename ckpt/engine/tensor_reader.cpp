#include "ckpt/engine/tensor_reader.h"

#include <cstring>

#include "ckpt/base/error.h"

namespace ferry {

// The part of the file that is none which is being read.
class TensorReader::Target final : public WritableFile {
 public:
  void set(uint64_t begin, std::span<std::byte> into) {
    begin_ = begin;
    into_ = into;
  }
  const std::string& path() const noexcept override { return path_; }
  void write(uint64_t offset, std::span<const std::byte> from) override {
    if (offset < begin_ || offset - begin_ > into_.size() ||
        from.size() > into_.size() - (offset - begin_)) {
      fail(ErrorKind::internal, "a part of a tensor leaves the memory that it is read into");
    }
    std::memcpy(into_.data() + (offset - begin_), from.data(), from.size());
  }
  void read(uint64_t, std::span<std::byte>) const override {
    fail(ErrorKind::internal, "a callback file cannot be read");
  }
  void sync() override {}

 private:
  std::string path_ = "memory";
  uint64_t begin_ = 0;
  std::span<std::byte> into_;
};

void add_read_tensor(Plan& plan, std::string name, DType dtype, const Dims& shape, Recipe recipe) {
  Entry entry{std::move(name), dtype, shape, {}, Role::model};
  const auto bytes = static_cast<uint64_t>(entry.bytes());
  if (plan.target.files.empty()) plan.target.files.push_back({"memory", 0});
  plan.target.files[0].bytes = std::max(plan.target.files[0].bytes, bytes);
  entry.chunks.push_back({{Box::whole(shape)}, {}, {0, 0, bytes}});
  plan.target.entries.push_back(std::move(entry));
  plan.recipes.push_back(std::move(recipe));
}

TensorReader::TensorReader(TensorSource& source)
    : source_(source),
      target_(std::make_unique<Target>()),
      files_(source.plan_files, target_.get()),
      runner_(source.files, files_, nullptr, nullptr) {}
TensorReader::~TensorReader() = default;

void TensorReader::read(size_t entry, const Chunk& chunk, const Box& part,
                        std::span<std::byte> into) {
  const auto elements = static_cast<uint64_t>(element_count(part.size, "a part of a tensor"));
  if (elements == 0) return;
  const Dims strides = row_major_strides(chunk.box.size);
  uint64_t first = 0;
  Box box = part;
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    first += static_cast<uint64_t>(part.offset[axis] * strides[axis]);
    box.offset[axis] += chunk.box.offset[axis];
  }
  target_->set(chunk.extent.offset + first * (into.size() / elements), into);
  runner_.run(source_.compiler.compile(entry, box));
}

}  // namespace ferry
