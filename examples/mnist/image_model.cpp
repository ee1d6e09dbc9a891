#include "image_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ckpt/base/error.h"
#include "kernels/random.h"
#include "trainer/arguments/namespace.h"
#include "trainer/loop/loop_options.h"

namespace ferry::mnist {
namespace {

StateLayout layout_of(const TrainArguments& arguments, const NetworkShape& shape) {
  Draft draft;
  const Value args = write_namespace(arguments, {}, draft);
  const RunArguments run = read_run_arguments(std::move(draft).finish(args).value);
  return {ModelLayout::replicated(tensors_of(shape), run), {}};
}

uint64_t key_of(std::string_view name, int64_t seed) {
  auto key = static_cast<uint64_t>(seed);
  for (const char letter : name) key = kernels::mix_key(key, static_cast<unsigned char>(letter));
  return key;
}

// What a layer's weight is [out, in] of; its bias begins in the same range.
int64_t inputs_of(const ModelLayout& layout, const std::string& name) {
  const std::string weight = name.substr(0, name.rfind('.')) + ".weight";
  for (const ModelTensor& tensor : layout.tensors()) {
    if (tensor.name == weight) return tensor.shape[1];
  }
  fail(ErrorKind::internal, "{} has no weight next to it", name);
}

}  // namespace

ImageModel::ImageModel(const TrainArguments& arguments, const RankSetup& setup,
                       ImageModelOptions options)
    : arguments_(arguments),
      setup_(setup),
      options_(std::move(options)),
      layout_(layout_of(arguments, options_.shape)) {}

ImageModel::~ImageModel() = default;

std::unique_ptr<const Source> ImageModel::take_source() {
  return options_.open_source ? options_.open_source() : nullptr;
}

void ImageModel::build(RunLog& log) {
  device_ = setup_.device();
  kernels::Kernels& kernels = *device_->kernels;
  grid_.emplace(GridSizes(layout_.layout.run()), setup_.group->rank(), device_->make_communicator);
  state_.emplace(layout_.layout, layout_.choice, *grid_, kernels,
                 optimizer_state_options(arguments_));
  network_.emplace(options_.shape, state_->parameters(0), kernels,
                   arguments_.micro_batch_size.value_or(1));
  const auto& images = options_.images;
  log.write(fmt::format("samples: {} for training, {} for validation, {} for tests\n",
                        images.train.size(), images.valid.size(), images.test.size()));
}

void ImageModel::initialize() {
  for (const Region& region : state_->model_regions()) {
    const double bound = 1 / std::sqrt(static_cast<double>(inputs_of(layout_.layout, region.name)));
    const uint64_t key = key_of(region.name, arguments_.seed);
    std::vector<float> values(static_cast<size_t>(element_count(region.shape, region.name)));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(bound * (2 * kernels::uniform_at(key, i) - 1));
    }
    kernels::Kernels& kernels = *device_->kernels;
    const auto memory = kernels.allocate(values.size() * sizeof(float));
    kernels.upload(values.data(), memory.get(), values.size() * sizeof(float));
    kernels.run(kernels::Copy{.count = static_cast<int64_t>(values.size()),
                              .x = kernels::Array(memory.get(), kernels::Type::f32),
                              .y = {region.data, kernel_type(region.dtype, region.name)}});
    kernels.wait();  // for the memory goes
  }
}

std::string ImageModel::description() const {
  return fmt::format("model: {} of {} parameters\n",
                     options_.shape.task == Task::classifier ? "a classifier" : "an autoencoder",
                     state_->parameter_count());
}

// Samples follow each other in their order, again and again; what is left at an order's end for no
// full batch is left out.
void ImageModel::read(DataSplit split, const StepSamples& samples, int64_t number) {
  const OrderedImages& images = options_.images[split];
  const int64_t batch = samples.batch.running, usable = images.size() - images.size() % batch;
  if (usable == 0) {
    fail(ErrorKind::invalid,
         "a batch of {} samples is more than there are ({}): give a smaller --global-batch-size",
         batch, images.size());
  }
  SamplerOptions options;
  options.samples = images.size();
  options.micro_batch_size = arguments_.micro_batch_size.value_or(1);
  options.data_ranks = arguments_.data_parallel_size;
  Sampler(options).take(samples.consumed % usable, number, grid_->place().data, numbers_);
  batch_.pixels.clear();
  batch_.labels.clear();
  for (const int64_t sample : numbers_) {
    const Image image = images.file->read(images.order[static_cast<size_t>(sample)]);
    batch_.pixels.insert(batch_.pixels.end(), image.pixels.begin(), image.pixels.end());
    batch_.labels.push_back(image.label);
  }
}

void ImageModel::train(const StepSamples& samples, double loss_scale) {
  state_->wait_for_parameters();
  const double batches = static_cast<double>(samples.batch.micro_batches * grid_->sizes().data);
  for (int64_t number = 0; number < samples.batch.micro_batches; ++number) {
    read(DataSplit::train, samples, number);
    auto& [sum, count] = sums_.emplace_back(0, network_->loss_count(batch_.rows()));
    network_->forward(batch_, &sum);
    network_->backward(batch_, loss_scale / batches);
  }
}

std::vector<LossSum> ImageModel::losses() { return sum_up("reduced_train_loss"); }

std::vector<LossSum> ImageModel::evaluate(DataSplit split, const StepSamples& samples) {
  state_->wait_for_parameters();
  for (int64_t number = 0; number < samples.batch.micro_batches; ++number) {
    read(split, samples, number);
    auto& [sum, count] = sums_.emplace_back(0, network_->loss_count(batch_.rows()));
    const kernels::ConstArray outputs = network_->forward(batch_, &sum);
    if (split == DataSplit::test && options_.outputs != nullptr)
      keep_outputs(outputs, outputs.type);
  }
  return sum_up("val_loss");
}

void ImageModel::keep_outputs(kernels::ConstArray outputs, kernels::Type type) {
  kernels::Kernels& kernels = *device_->kernels;
  const auto width = static_cast<size_t>(options_.shape.outputs());
  std::vector<float> values(numbers_.size() * width);
  if (type == kernels::Type::f32) {
    kernels.download(outputs.data, values.data(), values.size() * sizeof(float));
    kernels.wait();
  } else {
    const auto memory = kernels.allocate(values.size() * sizeof(float));
    kernels.run(kernels::Copy{.count = static_cast<int64_t>(values.size()),
                              .x = outputs,
                              .y = kernels::Array(memory.get(), kernels::Type::f32)});
    kernels.download(memory.get(), values.data(), values.size() * sizeof(float));
    kernels.wait();
  }
  for (size_t i = 0; i < numbers_.size(); ++i) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                options_.outputs->values.begin() + numbers_[i] * static_cast<int64_t>(width));
  }
}

// Each micro-batch counts the same, as in the tutorial's reduction of losses.
std::vector<LossSum> ImageModel::sum_up(const char* name) {
  device_->kernels->wait();
  double sums[] = {0, 0};
  for (const auto& [sum, count] : sums_) {
    sums[0] += sum / static_cast<double>(count);
    sums[1] += 1;
  }
  sums_.clear();
  grid_->world().add_numbers(sums);
  return {{name, sums[0], sums[1]}};
}

// A multiplication and an addition for each weight, in the forward pass and twice in the backward
// pass.
double ImageModel::operations(int64_t samples) const {
  double weights = 0;
  for (const ModelTensor& tensor : layout_.layout.tensors()) {
    if (tensor.shape.size() == 2) {
      weights += static_cast<double>(element_count(tensor.shape, tensor.name));
    }
  }
  return 6 * weights * static_cast<double>(samples);
}

}  // namespace ferry::mnist
