// JSON as Python writes it: with words for numbers that JSON lacks.
#include <gmock/gmock.h>

#include <cmath>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

nlohmann::json python(std::string_view text) { return parse_python_json(text, "config.json"); }

TEST(PythonJson, WordsForNumbersAreNumbers) {
  const auto tree = python(R"({"a": NaN, "b": [0.0, Infinity, {"c": -Infinity}], "d": "NaN"})");
  EXPECT_TRUE(std::isnan(tree["a"].get<double>()));
  EXPECT_EQ(tree["b"][1].get<double>(), HUGE_VAL);
  EXPECT_EQ(tree["b"][2]["c"].get<double>(), -HUGE_VAL);
  EXPECT_EQ(tree["d"], "NaN");
  EXPECT_TRUE(std::isnan(python("NaN").get<double>()));
}

TEST(PythonJson, StringsStayAsTheyAre) {
  const auto tree =
      python(R"({"a": "x\\", "b": NaN, "c": "\"NaN", "number:NaN": "number:NaN", "Infinity": 1})");
  EXPECT_EQ(tree["a"], "x\\");
  EXPECT_TRUE(tree["b"].is_number());
  EXPECT_EQ(tree["c"], "\"NaN");
  EXPECT_EQ(tree["number:NaN"], "number:NaN");
  EXPECT_EQ(tree["Infinity"], 1);
}

TEST(PythonJson, NothingElseIsTaken) {
  for (const char* text : {"{NaN: 1}", "[NaNNaN]", "[+Infinity]", "[nan]", "[- Infinity]", "[-NaN]",
                           "[NaN1]", "[1NaN]", "[Infinity", "[\"NaN]"}) {
    EXPECT_THROW(python(text), Error) << text;
  }
  EXPECT_THROW(parse_json("[NaN]", "strict"), Error);
}

TEST(PythonJson, AModelsConfigurationMayHoldThem) {
  const auto files = std::make_shared<MemoryFileSystem>();
  files->put("hf/config.json", R"({"model_type": "llama", "time_step_limit": [0.0, Infinity]})");
  const auto config = read_hugging_face_config(*files, "hf");
  ASSERT_NE(config, nullptr);
  EXPECT_EQ((*config)["time_step_limit"][1].get<double>(), HUGE_VAL);
}

}  // namespace
}  // namespace ferry
