#include "trainer/data/samples/gpt_dataset.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "trainer/data/samples/index_cache.h"
#include "trainer/data/samples/random_order.h"

namespace ferry {

namespace {

constexpr int64_t kGoldfishTable = 1000003;
constexpr uint64_t kGoldfishSeed = 2971215073;

}  // namespace

SampleMasks::SampleMasks(const MaskOptions& options) : options_(options) {
  if (!options.goldfish_loss) return;
  if (options.goldfish_k < 1 || options.goldfish_h < 1) {
    fail(ErrorKind::invalid,
         "the goldfish loss needs k and h of at least 1, but they are {} and {}",
         options.goldfish_k, options.goldfish_h);
  }
  uniform_ = torch_uniform(kGoldfishTable, kGoldfishSeed);
}

void SampleMasks::apply(std::span<const int32_t> text, Sample& sample) const {
  const size_t length = text.size() - 1;
  sample.tokens.assign(text.begin(), text.end() - 1);
  sample.labels.assign(text.begin() + 1, text.end());
  sample.loss_mask.assign(length, 1.0f);
  sample.position_ids.resize(length);
  std::iota(sample.position_ids.begin(), sample.position_ids.end(), 0);
  sample.document_starts.assign(1, 0);
  reset_at_documents(text.first(length), sample);
  for (size_t i = 0; i < length; ++i) {
    if (sample.tokens[i] == options_.padding) sample.tokens[i] = 0;
    if (sample.labels[i] != options_.padding) continue;
    sample.labels[i] = 0;
    sample.loss_mask[i] = 0.0f;
  }
  if (options_.goldfish_loss) drop_goldfish_labels(sample);
}

void SampleMasks::reset_at_documents(std::span<const int32_t> tokens, Sample& sample) const {
  if (!options_.eod_mask_loss && !options_.reset_position_ids && !options_.reset_attention_mask) {
    return;
  }
  size_t start = 0;  // of the document that token i is in
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (options_.reset_position_ids) sample.position_ids[i] = static_cast<int32_t>(i - start);
    if (tokens[i] != options_.end_of_document) continue;
    if (options_.eod_mask_loss) sample.loss_mask[i] = 0.0f;
    start = i + 1;
    if (options_.reset_attention_mask && start < tokens.size()) {
      sample.document_starts.push_back(static_cast<int32_t>(start));
    }
  }
}

// A label is dropped by a hash of itself and the h - 1 before it: their product modulo 2^64.
void SampleMasks::drop_goldfish_labels(Sample& sample) const {
  const auto h = static_cast<size_t>(options_.goldfish_h);
  const float share = static_cast<float>(1.0 / static_cast<double>(options_.goldfish_k));
  for (size_t last = h - 1; last < sample.labels.size(); ++last) {
    uint64_t product = 1;
    for (size_t i = last + 1 - h; i <= last; ++i) {
      product *= static_cast<uint64_t>(static_cast<int64_t>(sample.labels[i]));
    }
    int64_t place = static_cast<int64_t>(product) % kGoldfishTable;
    if (place < 0) place += kGoldfishTable;
    if (uniform_[static_cast<size_t>(place)] < share) sample.loss_mask[last] = 0.0f;
  }
}

namespace {

constexpr const char* kDocumentIndex = "document_index";
constexpr const char* kSampleIndex = "sample_index";
constexpr const char* kShuffleIndex = "shuffle_index";

std::string class_name(const GptPart& part) {
  return part.dataset_path ? "GPTDataset" : "MockGPTDataset";
}

std::string describe(const GptPart& part, const DataOptions& options) {
  Description text;
  text.add("class", ferry::quoted(class_name(part)));
  text.add("dataset_path", part.dataset_path ? ferry::quoted(*part.dataset_path) : "null");
  text.add("num_samples", part.samples ? std::to_string(*part.samples) : "null");
  text.add("index_split", quoted(name(part.split)));
  text.add("random_seed", std::to_string(options.seed));
  text.add("sequence_length", std::to_string(options.sequence_length));
  text.add("split", part.shares ? ferry::quoted(part.shares->text) : "null");
  text.add("split_matrix", part.shares ? split_matrix(*part.shares) : "null");
  text.add("tokenizer", json_of_tokenizer(options.tokenizer));
  return text.text();
}

std::string cache_folder(const GptPart& part, const DataOptions& options) {
  if (!options.cache_path.empty() || !part.dataset_path) return options.cache_path;
  return *part.dataset_path + "/cache/GPTDataset_indices";
}

// From this size on the sample index has 64-bit numbers.
bool is_wide(int64_t documents) { return documents > INT32_MAX; }

}  // namespace

GptDataset::GptDataset(const std::shared_ptr<const FileSystem>& file_system,
                       std::shared_ptr<const TokenSource> source, const GptPart& part,
                       const DataOptions& options)
    : source_(std::move(source)),
      description_(describe(part, options)),
      range_(part.range),
      sequence_length_(options.sequence_length),
      token_limit_(options.token_limit),
      padding_(options.masks.padding),
      masks_(options.masks) {
  const bool drop_last =
      part.split != DataSplit::valid || options.drop_last_partial_validation_sequence;
  const int64_t tokens = count_tokens(*source_, range_);
  if (tokens < 1 && part.samples.value_or(0) > 0) {
    fail(ErrorKind::invalid,
         "the {} split of {} has {} sequences without tokens, but {} samples are needed; give it a "
         "larger share with --split, or request none of its samples",
         name(part.split), source_->name(), range_.count(), *part.samples);
  }
  plan_ = plan_epochs(tokens, sequence_length_, part.samples, drop_last);
  const std::string folder = cache_folder(part, options);
  std::optional<IndexCache> cache;
  if (!folder.empty()) {
    cache.emplace(file_system, folder, class_name(part) + "-" + std::string(name(part.split)),
                  description_);
  }
  if (cache && load(*cache)) return;
  has_replaced_order_ = cache && cache->is_there();
  build(static_cast<uint32_t>(options.seed));
  if (cache) store(*cache);
}

template <typename T>
bool GptDataset::load_rows(const IndexCache& cache) {
  auto rows = cache.load<T>(kSampleIndex, std::array{plan_.samples + 1, int64_t{2}});
  if (!rows || !is_sample_index(rows->values(), *source_, documents_.values(), sequence_length_)) {
    return false;
  }
  rows_ = std::move(*rows);
  return true;
}

// All three arrays are validated completely, so they can be trusted afterwards; a pass over them
// costs less than shuffling.
bool GptDataset::load(const IndexCache& cache) {
  if (!cache.is_there()) return false;
  const int64_t count = checked_multiply(range_.count(), plan_.epochs, "sequences of all epochs");
  auto documents = cache.load<int32_t>(kDocumentIndex, std::array{count});
  auto order = cache.load<uint32_t>(kShuffleIndex, std::array{plan_.samples});
  if (!documents || !is_document_index(documents->values(), range_, plan_) || !order ||
      !is_shuffle_index(order->values(), plan_)) {
    return false;
  }
  documents_ = std::move(*documents);
  order_ = std::move(*order);
  return is_wide(count) ? load_rows<int64_t>(cache) : load_rows<int32_t>(cache);
}

void GptDataset::build(uint32_t seed) {
  NumpyRandomState random(seed);
  documents_ = IndexArray(build_document_index(range_, plan_, random));
  const std::span<const int32_t> documents = documents_.values();
  if (is_wide(std::ssize(documents))) {
    rows_ = IndexArray(
        build_sample_index<int64_t>(*source_, documents, sequence_length_, plan_.samples));
  } else {
    rows_ = IndexArray(
        build_sample_index<int32_t>(*source_, documents, sequence_length_, plan_.samples));
  }
  order_ = IndexArray(build_shuffle_index(plan_, random));
}

void GptDataset::store(const IndexCache& cache) const {
  const auto rows = std::visit(
      [this](const auto& array) {
        return IndexCache::file(kSampleIndex, std::array{plan_.samples + 1, int64_t{2}}, array);
      },
      rows_);
  cache.store(
      {IndexCache::file(kDocumentIndex, std::array{std::ssize(documents_.values())}, documents_),
       rows, IndexCache::file(kShuffleIndex, std::array{plan_.samples}, order_)});
}

std::pair<int64_t, int64_t> GptDataset::row(int64_t sample) const {
  return std::visit(
      [sample](const auto& array) {
        const auto pair = array.values().subspan(2 * static_cast<size_t>(sample), 2);
        return std::pair<int64_t, int64_t>(pair[0], pair[1]);
      },
      rows_);
}

void GptDataset::read(int64_t index, Sample& sample) const {
  if (index < 0 || index >= size()) {
    fail(ErrorKind::invalid, "{} has {} samples, no sample {}", source_->name(), size(), index);
  }
  const int64_t number = order_.values()[static_cast<size_t>(index)];
  const auto [first, first_token] = row(number);
  const auto [last, last_token] = row(number + 1);
  // Includes the last label, the next sample's first token.
  std::vector<int32_t> text(static_cast<size_t>(sequence_length_) + 1, padding_);
  std::span<int32_t> rest(text);
  for (int64_t place = first; place <= last; ++place) {
    const int32_t sequence = documents_.values()[static_cast<size_t>(place)];
    const int64_t begin = place == first ? first_token : 0;
    const int64_t end = place == last ? last_token + 1 : source_->length(sequence);
    if (end <= begin) continue;
    const std::span<int32_t> into =
        rest.first(std::min(rest.size(), static_cast<size_t>(end - begin)));
    source_->read(sequence, begin, into);
    for (const int32_t token : into) {
      if (token == padding_ && token >= 0) continue;
      if (token < 0 || token >= token_limit_) {
        fail(ErrorKind::corrupt,
             "{}: sequence {} has the token {}, but the model has tokens 0 to {}: the file was "
             "written with another tokenizer or is damaged",
             source_->name(), sequence, token, token_limit_ - 1);
      }
    }
    rest = rest.subspan(into.size());
  }
  masks_.apply(text, sample);
}

}  // namespace ferry
