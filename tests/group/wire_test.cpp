// Messages of other ranks: what was written is read, anything else is refused.
#include "ckpt/group/wire.h"

#include <gmock/gmock.h>

#include <functional>

namespace ferry {
namespace {

using testing::HasSubstr;

std::string problem_of(const std::string& bytes, const std::function<void(Unpacker&)>& read) {
  try {
    Unpacker unpacker(bytes);
    read(unpacker);
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    return error.what();
  }
}

TEST(Wire, ReadsWhatWasWritten) {
  const std::string bytes = Packer()
                                .number(UINT64_MAX)
                                .text("text")
                                .text("")
                                .choice(ErrorKind::cancelled)
                                .number(2)
                                .text("a")
                                .text("b")
                                .digest({UINT64_MAX, 5})
                                .take();
  Unpacker unpacker(bytes);
  EXPECT_EQ(unpacker.number(), UINT64_MAX);
  EXPECT_EQ(unpacker.text(), "text");
  EXPECT_EQ(unpacker.text(), "");
  EXPECT_EQ(unpacker.error_kind(), ErrorKind::cancelled);
  EXPECT_EQ(unpacker.count(2), 2U);
  EXPECT_EQ(unpacker.text(), "a");
  EXPECT_EQ(unpacker.text(), "b");
  EXPECT_EQ(unpacker.digest(), (Digest{UINT64_MAX, 5}));
  unpacker.finish();
}

TEST(Wire, ANumberTakesAsManyBytesAsItNeeds) {
  size_t bytes = 1;
  for (int bits = 0; bits <= 64; ++bits) {
    const uint64_t largest = bits == 64 ? UINT64_MAX : (uint64_t{1} << bits) - 1;
    if (bits > 7 && bits % 7 == 1) ++bytes;
    const std::string packed = Packer().number(largest).take();
    EXPECT_EQ(packed.size(), bytes) << bits;
    EXPECT_EQ(Unpacker(packed).number(), largest);
  }
}

TEST(Wire, BytesThatAreNoNumber) {
  const std::string nine(9, '\xFF');
  EXPECT_EQ(problem_of(nine + '\1', [](Unpacker& unpacker) { unpacker.number(); }), "");
  for (const std::string& bytes : {nine + '\2', nine + "\x81\1", nine + '\xFF' + '\0',
                                   std::string("\x80\0", 2), std::string("\xFF\x80\0", 3)}) {
    EXPECT_THAT(problem_of(bytes, [](Unpacker& unpacker) { unpacker.number(); }),
                HasSubstr("another rank's message has a bad number"));
  }
}

TEST(Wire, AnyEndThatIsTooEarly) {
  const std::string bytes = Packer().number(777).text("some text").take();
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THAT(problem_of(bytes.substr(0, length),
                           [](Unpacker& unpacker) { unpacker.number(), unpacker.text(); }),
                HasSubstr("another rank's message ends early"));
  }
}

TEST(Wire, ATextThatIsLongerThanAll) {
  for (const uint64_t length : {uint64_t{5}, uint64_t{1} << 63, UINT64_MAX}) {
    const std::string bytes = Packer().number(length).take() + "1234";
    EXPECT_NE(problem_of(bytes, [](Unpacker& unpacker) { unpacker.text(); }), "");
  }
}

// Memory is taken for no more things than the bytes can hold.
TEST(Wire, MoreThingsThanBytes) {
  const auto with_rest = [](uint64_t count) {
    return Packer().number(count).take() + std::string(32, '\0');
  };
  EXPECT_EQ(problem_of(with_rest(32), [](Unpacker& unpacker) { unpacker.count(); }), "");
  EXPECT_NE(problem_of(with_rest(33), [](Unpacker& unpacker) { unpacker.count(); }), "");
  EXPECT_EQ(problem_of(with_rest(4), [](Unpacker& unpacker) { unpacker.count(8); }), "");
  EXPECT_NE(problem_of(with_rest(5), [](Unpacker& unpacker) { unpacker.count(8); }), "");
  EXPECT_NE(problem_of(with_rest(UINT64_MAX), [](Unpacker& unpacker) { unpacker.count(8); }), "");
}

TEST(Wire, AnEnumsValueThatIsNone) {
  // Every kind has a name of its own, what follows the last one has none.
  const auto last = static_cast<uint64_t>(ErrorKind::cancelled);
  EXPECT_EQ(name(static_cast<ErrorKind>(last + 1)), name(ErrorKind::internal));
  for (uint64_t value = 0; value <= last; ++value) {
    EXPECT_EQ(problem_of(Packer().number(value).take(),
                         [](Unpacker& unpacker) { unpacker.error_kind(); }),
              "");
  }
  for (const uint64_t value : {last + 1, uint64_t{256}, uint64_t{1} << 32, UINT64_MAX}) {
    EXPECT_THAT(problem_of(Packer().number(value).take(),
                           [](Unpacker& unpacker) { unpacker.error_kind(); }),
                HasSubstr("another rank's message has a bad value"));
  }
}

TEST(Wire, MoreThanIsRead) {
  EXPECT_THAT(problem_of(Packer().number(1).take() + "x",
                         [](Unpacker& unpacker) { unpacker.number(), unpacker.finish(); }),
              HasSubstr("goes on after its end"));
}

}  // namespace
}  // namespace ferry
