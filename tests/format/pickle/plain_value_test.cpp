// Values without what only one program can unpickle.
#include "ckpt/format/pickle/values/plain_value.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/pickle/pickle.h"
#include "ckpt/format/pickle/pickle_writer.h"

namespace ferry {
namespace {

using namespace std::string_literals;

TEST(PlainValue, KeepsPythonsAndPyTorchsOwnTypes) {
  Draft draft;
  const Value args = draft.instance("argparse.Namespace");
  draft.put(args, "layers", draft.tuple({draft.integer(4), draft.real(0.5), draft.none()}));
  draft.put(args, "dtype", draft.dtype(DType::bf16));
  draft.put(args, "weight", draft.tensor(DType::u8, {2}, "ab"));
  const LoadedValue given = std::move(draft).finish(args);
  const LoadedValue plain = plain_value(given.value);
  EXPECT_EQ(to_json(plain.value), to_json(given.value));
  EXPECT_EQ(plain.value.get("layers").kind(), ValueKind::tuple);
  EXPECT_EQ(plain.value.get("dtype").kind(), ValueKind::global);
  const StoredTensor* tensor = plain.value.get("weight").tensor();
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(plain.document->storages.find(tensor->storage_key)->second, "ab");
}

TEST(PlainValue, ReplacesWhatIsForeign) {
  Draft draft;
  const Value dict = draft.dict();
  const Value backend = draft.global("megatron.core.transformer.enums", "AttnBackend");
  draft.put(dict, "backend", draft.call(backend, {draft.integer(5)}));
  draft.put(dict, "class", backend);
  draft.put(dict, "scheduler", draft.instance("megatron.core.Scheduler"));
  const LoadedValue given = std::move(draft).finish(dict);
  const LoadedValue plain = plain_value(given.value);
  EXPECT_EQ(plain.value.get("backend").kind(), ValueKind::integer);
  EXPECT_EQ(plain.value.get("backend").integer(), 5);
  EXPECT_EQ(plain.value.get("class").string(), "megatron.core.transformer.enums.AttnBackend");
  EXPECT_EQ(plain.value.get("scheduler").string(), "megatron.core.Scheduler");
}

// A tensor that was on a device names it, and PyTorch refuses to read it where there is none.
TEST(PlainValue, HasItsTensorsOnNoDevice) {
  const std::string pickle =
      "ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\n"
      "U\0010U\6cuda:0K\1tQK\0(K\1t(K\1t\x89NtR."s;
  auto document = std::make_shared<Document>(
      *parse_pickle(std::as_bytes(std::span(pickle)).first(pickle.size()), "test"));
  document->storages["0"] = "loss";
  const LoadedValue plain = plain_value(document->root());
  ASSERT_NE(plain.value.tensor(), nullptr);
  EXPECT_EQ(plain.document->storages.at(plain.value.tensor()->storage_key), "loss");
  const std::string written = write_pickle(plain.value);
  EXPECT_EQ(written.find("cuda"), std::string::npos);
  EXPECT_NE(written.find("cpu"), std::string::npos);
}

TEST(PlainValue, EndsInWhatNestsForever) {
  Draft draft;
  const Value list = draft.list();
  draft.append(list, list);
  const LoadedValue once = std::move(draft).finish(list);
  EXPECT_NO_THROW(plain_value(once.value));
  Draft wide;
  const Value twice = wide.list();
  wide.append(twice, twice);
  wide.append(twice, twice);
  const LoadedValue doubling = std::move(wide).finish(twice);
  EXPECT_THROW(plain_value(doubling.value), Error);
}

}  // namespace
}  // namespace ferry
