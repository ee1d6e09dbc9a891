#include "ckpt/base/dtype.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(DType, IsReadAsPeopleWriteIt) {
  for (const char* text : {"bf16", "BF16", "bfloat16"}) {
    EXPECT_EQ(dtype_from_text(text), DType::bf16) << text;
  }
  for (const char* text : {"fp16", "f16", "half", "float16", "F16"}) {
    EXPECT_EQ(dtype_from_text(text), DType::f16) << text;
  }
  EXPECT_EQ(dtype_from_text("float8_e4m3fn"), DType::f8_e4m3);
  EXPECT_EQ(dtype_from_text("bf"), std::nullopt);
  EXPECT_EQ(dtype_from_text(""), std::nullopt);
}

}  // namespace
}  // namespace ferry
