// The text of a manifest, there and back, and what is refused.
#include "ckpt/integrity/manifest/manifest.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/integrity/manifest/plan_manifest.h"
#include "tests/integrity/written_folder.h"

namespace ferry {
namespace {

using testing::HasSubstr;

Manifest example() {
  Manifest manifest;
  manifest.files.push_back({"mp_rank_00/model.pt", 30, {}});
  manifest.files[0].items = {{0, 10, {1, 2}, {}, "args"}, {10, 20, {UINT64_MAX, 0}, {}, {}}};
  manifest.files[0].items[1].tensors = {{"a \"quoted\" name\n", {{0, 4}, {2, 8}}},
                                        {"scalar \u00e9", {{}, {}}}};
  manifest.add_file("config.json", "{}");
  manifest.add_file("empty", "");
  return manifest;
}

// The text with another end, whose digest fits.
std::string sealed(std::string text) {
  text = text.substr(0, text.find("\"digest\": \"") + 11);
  return text + to_hex(digest_of(std::as_bytes(std::span(text)))) + "\"\n}\n";
}

void expect_refused(const std::string& text, ErrorKind kind, const char* why) {
  try {
    parse_manifest(text, "folder/ferry.manifest.json");
    ADD_FAILURE() << "accepted: " << why;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << why << ": " << error.what();
    EXPECT_THAT(error.what(), HasSubstr("folder/ferry.manifest.json")) << why;
  }
}

TEST(Manifest, ComesBackFromItsText) {
  const Manifest manifest = example();
  EXPECT_EQ(parse_manifest(to_text(manifest), "m"), manifest);
  EXPECT_EQ(to_text(parse_manifest(to_text(manifest), "m")), to_text(manifest));
  EXPECT_EQ(manifest.bytes(), 32u);
  EXPECT_EQ(parse_manifest(to_text(Manifest{}), "m"), Manifest{});
}

TEST(Manifest, IsJsonWithOneItemALine) {
  const std::string text = to_text(example());
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("format"), "ferry.manifest");
  EXPECT_EQ(json.at("bytes"), 32);
  EXPECT_EQ(json.at("files").at(0).at("items").at(0).at("object"), "args");
  EXPECT_EQ(json.at("files").at(0).at("items").at(1).at("tensors").at(0).at("size").at(1), 8);
  EXPECT_THAT(text, HasSubstr("\n{\"offset\": 0, \"bytes\": 10, \"xxh3_128\": "
                              "\"00000000000000010000000000000002\", \"object\": \"args\"},\n"));
}

TEST(Manifest, SaysWhatAnItemHolds) {
  const Manifest manifest = example();
  EXPECT_EQ(describe(manifest.files[0].items[0]), "object args");
  EXPECT_EQ(describe(manifest.files[0].items[1]),
            "tensor a \"quoted\" name\n [0:2, 4:12] and 1 more");
  EXPECT_EQ(describe(manifest.files[1].items[0]), "");
}

TEST(Manifest, OfOtherBytesIsRefused) {
  const std::string text = to_text(example());
  expect_refused("", ErrorKind::corrupt, "empty");
  expect_refused("\"\n}\n", ErrorKind::corrupt, "only its end");
  expect_refused(text.substr(0, text.size() - 1), ErrorKind::corrupt, "cut");
  expect_refused(text + "\n", ErrorKind::corrupt, "longer");
  for (size_t i = 0; i < 8 * text.size(); ++i) {
    std::string flipped = text;
    flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ (1 << i % 8));
    ASSERT_THROW(parse_manifest(flipped, "m"), Error) << "bit " << i % 8 << " of byte " << i / 8;
  }
}

TEST(Manifest, ThatContradictsItselfIsRefused) {
  const auto refuse = [](const char* why, const std::function<void(Manifest&)>& change) {
    Manifest manifest = example();
    change(manifest);
    expect_refused(to_text(manifest), ErrorKind::corrupt, why);
  };
  refuse("gap", [](Manifest& m) { m.files[0].items[1].offset = 11; });
  refuse("overlap", [](Manifest& m) { m.files[0].items[0].bytes = 11; });
  refuse("does not reach the end", [](Manifest& m) { m.files[0].bytes = 31; });
  refuse("leaves the file", [](Manifest& m) { m.files[0].bytes = 29; });
  refuse("wraps", [](Manifest& m) { m.files[0].items[1].bytes = UINT64_MAX; });
  refuse("empty item", [](Manifest& m) { m.files[1].items.push_back({2, 0, {}, {}, {}}); });
  refuse("twice", [](Manifest& m) { m.files[2] = m.files[1]; });
  refuse("leaves the folder", [](Manifest& m) { m.files[1].path = "../config.json"; });
  refuse("absolute", [](Manifest& m) { m.files[1].path = "/etc/passwd"; });
}

TEST(Manifest, OfAnotherFormIsRefused) {
  const std::string text = to_text(example());
  const auto changed = [&](std::string_view what, const std::string& with) {
    std::string other = text;
    return sealed(other.replace(other.find(what), what.size(), with));
  };
  expect_refused(changed("\"version\": 1", "\"version\": 2"), ErrorKind::unsupported, "version");
  expect_refused(changed("ferry.manifest", "zip"), ErrorKind::corrupt, "format");
  expect_refused(changed("\"bytes\": 32", "\"bytes\": 33"), ErrorKind::corrupt, "sum");
  expect_refused(changed("\"bytes\": 32", "\"bytes\": -1"), ErrorKind::corrupt, "negative");
  expect_refused(changed("\"bytes\": 32", "\"bytes\": [[[]]]"), ErrorKind::corrupt, "array");
  expect_refused(changed("\"xxh3_128\"", "\"xxh3_64\""), ErrorKind::corrupt, "without digest");
  expect_refused(changed("00000000000000010", "0000000000000001F"), ErrorKind::corrupt,
                 "upper case");
  expect_refused(changed("00000000000000010", "0000000000000001"), ErrorKind::corrupt, "short");
  expect_refused(changed("[0, 4]", "[0, 18446744073709551615]"), ErrorKind::corrupt, "extent");
  EXPECT_EQ(parse_manifest(changed("\"version\": 1", "\"later\": [{}, 5], \"version\": 1"), "m"),
            example());
}

TEST(Manifest, NeedsNamesThatLeadToFiles) {
  Manifest manifest;
  manifest.add_file("\xff.bin", "a");
  EXPECT_THROW(to_text(manifest), Error);
}

TEST(PlanManifest, TilesEveryFileAndNamesEveryTensor) {
  const test::WrittenFolder written;
  const std::string text = written.memory->get(written.path(kManifestName));
  const Manifest manifest = parse_manifest(text, "m");  // which checks that items tile
  std::vector<std::string> held;
  for (const ManifestFile& file : manifest.files) {
    const std::string content = written.memory->get(written.path(file.path));
    ASSERT_EQ(content.size(), file.bytes);
    for (const ManifestItem& item : file.items) {
      const auto bytes = std::as_bytes(std::span(content)).subspan(item.offset, item.bytes);
      EXPECT_EQ(item.digest, digest_of(bytes)) << file.path << " at " << item.offset;
      if (!item.tensors.empty()) held.push_back(file.path + ": " + describe(item));
    }
  }
  EXPECT_THAT(held, testing::ElementsAre(
                        "model-00001-of-00002.safetensors: tensor layer.1.weight [0:1, 0:8]",
                        "model-00001-of-00002.safetensors: tensor layer.9.weight [0:9, 0:8]",
                        "model-00002-of-00002.safetensors: tensor layer.40.weight [0:40, 0:8]"));
  EXPECT_EQ(manifest.files.size() + 1, written.memory->list(written.kFolder).size());
}

TEST(PlanManifest, FillsTheGapsBetweenItems) {
  Plan plan;
  plan.target.files = {{"a", 100}, {"empty", 0}, {"b", 10}};
  plan.target.entries.push_back({"x", DType::u8, {30}, {}, Role::model});
  plan.target.entries[0].chunks = {{{{{0}, {10}}}, {}, {0, 20, 10}},
                                   {{{{10}, {10}}}, {}, {0, 30, 10}},
                                   {{{{20}, {10}}}, {}, {0, 65, 10}}};
  plan.target.objects = {{"o", {2, 0, 4}, {}}, {"inside", {0, 62, 1}, {}}};
  plan.items = {{0, 60, 20, {{65, 10, {75}}}}};
  complete_items(plan);
  std::vector<std::string> tiles;
  std::vector<Digest> digests(plan.items.size());
  for (const ManifestFile& file : manifest_of(plan, digests).files) {
    for (const ManifestItem& item : file.items) {
      tiles.push_back(
          fmt::format("{} {}+{} {}", file.path, item.offset, item.bytes, describe(item)));
    }
  }
  EXPECT_THAT(
      tiles, testing::ElementsAre("a 0+20 ", "a 20+10 tensor x [0:10]", "a 30+10 tensor x [10:20]",
                                  "a 40+20 ", "a 60+20 object inside", "a 80+20 ", "b 0+4 object o",
                                  "b 4+6 "));
  EXPECT_EQ(plan.items[0].payloads.size(), 1u);
}

}  // namespace
}  // namespace ferry
