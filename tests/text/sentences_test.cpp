// Sentences as NLTK's Punkt divides them (tests/interop/text/make_sentence_fixtures.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tests/support.h"
#include "text/sentences/python_characters.h"
#include "text/sentences/sentence_splitter.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

PunktParameters made_up_parameters() {
  return read_punkt_parameters(*posix_file_system(), test::fixture("punkt/made_up"));
}

std::vector<std::string> sentences_of_text(const SentenceSplitter& splitter,
                                           std::string_view text) {
  std::vector<std::string_view> parts;
  splitter.split(text, parts);
  return {parts.begin(), parts.end()};
}

TEST(Sentences, AreThePeers) {
  const SentenceSplitter plain(made_up_parameters(), false), kept(made_up_parameters(), true);
  const auto cases = nlohmann::json::parse(std::ifstream(test::fixture("punkt/cases.json")));
  ASSERT_GE(cases.size(), 300u);
  for (const nlohmann::json& one : cases) {
    const auto text = one[0].get<std::string>();
    ASSERT_EQ(sentences_of_text(plain, text), one[1].get<std::vector<std::string>>()) << text;
    ASSERT_EQ(sentences_of_text(kept, text), one[2].get<std::vector<std::string>>()) << text;
  }
}

TEST(Sentences, FollowFromWhatWasLearned) {
  PunktParameters parameters;
  const std::string text = "He met Dr. Who. (It rained.) \"Really?\" Yes.";
  EXPECT_THAT(sentences_of_text({parameters, false}, text),
              ElementsAre("He met Dr.", "Who.", "(It rained.)", "\"Really?\"", "Yes."));
  parameters.abbreviations.insert(U"dr");
  EXPECT_THAT(sentences_of_text({parameters, false}, text),
              ElementsAre("He met Dr. Who.", "(It rained.)", "\"Really?\"", "Yes."));
  EXPECT_THAT(sentences_of_text({parameters, true}, "One.\n\nTwo.\n"),
              ElementsAre("One.\n\n", "Two."));
  EXPECT_THAT(sentences_of_text({parameters, false}, " \n "), ElementsAre());
  EXPECT_THAT(sentences_of_text({parameters, false}, ""), ElementsAre());
}

TEST(Sentences, ALongTextIsCutEveryMillionCharacters) {
  std::string text(1'999'998, 'a');
  text += "\u00e9. B";
  const auto sentences = sentences_of_text({PunktParameters(), false}, text);
  ASSERT_EQ(sentences.size(), 3u);
  EXPECT_EQ(sentences[0].size(), 1'000'000u);
  EXPECT_EQ(sentences[1].size(), 1'000'001u);  // the accented letter has two bytes
  EXPECT_EQ(sentences[2], " B");
}

// With a splitter that goes back again and again these would take longer than ctest waits.
TEST(Sentences, NoTextTakesLong) {
  for (const std::string unit :
       {"!", ". ", ".", "a.", ".\"", "a. ", "-", ". \n", ".) ", "\"", "?a"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    for (const bool keep : {false, true}) {
      std::string joined;
      for (const std::string& one : sentences_of_text({PunktParameters(), keep}, text))
        joined += one;
      EXPECT_LE(joined.size(), text.size());
    }
  }
}

TEST(Sentences, LettersAreInLowerCaseAsInPython) {
  EXPECT_EQ(python::lower(U"\u0130\u03A3A\u03A3"), U"i\u0307\u03C3a\u03C2");
  EXPECT_EQ(python::lower(U"A\u03A3. \u01C5"), U"a\u03C2. \u01C6");
  EXPECT_TRUE(python::is_upper(U'\u2160') && python::is_lower(U'\u00AA'));
  EXPECT_FALSE(python::is_upper(U'\u01C5') || python::is_lower(U'\u01C5'));
}

TEST(Sentences, DamagedParametersAreNamed) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "ferry-punkt-test";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(test::fixture("punkt/made_up"), folder);
  const auto damaged = [&](const char* name, const std::string& content) -> std::string {
    std::ofstream(folder / name) << content;
    try {
      read_punkt_parameters(*posix_file_system(), folder.string());
    } catch (const Error& error) {
      std::filesystem::copy(test::fixture("punkt/made_up"), folder,
                            std::filesystem::copy_options::overwrite_existing);
      return error.what();
    }
    return "nothing is wrong";
  };
  EXPECT_THAT(damaged("ortho_context.tab", "word\t1\nword\n"),
              HasSubstr("ortho_context.tab, line 2: it has not two fields"));
  EXPECT_THAT(damaged("ortho_context.tab", "word\tmany"), HasSubstr("'many' is no whole number"));
  EXPECT_THAT(damaged("collocations.tab", "a\tb\tc"), HasSubstr("line 1"));
  EXPECT_THAT(damaged("abbrev_types.txt", "\xff"), HasSubstr("is not UTF-8"));
  std::filesystem::remove(folder / "abbrev_types.txt");
  EXPECT_THROW(read_punkt_parameters(*posix_file_system(), folder.string()), Error);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ferry
