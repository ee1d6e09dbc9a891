// Where ranks meet, as variables of the environment say it.
#include <gmock/gmock.h>

#include <map>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/group/tcp/mesh.h"
#include "tests/group/ranks.h"

namespace {

using namespace ferry;
using namespace ferry::test;
using testing::HasSubstr;

std::optional<MeetingPlace> place_of(const std::map<std::string, std::string>& variables) {
  return meeting_place([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// Each process would train the whole run by itself.
TEST(TcpMeeting, APartOfTheVariablesIsRefusedNamingTheRest) {
  const std::pair<const char*, const char*> all[] = {
      {"MASTER_ADDR", "h"}, {"MASTER_PORT", "6000"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}};
  for (unsigned chosen = 0; chosen < 15; ++chosen) {
    std::map<std::string, std::string> variables;
    for (size_t i = 0; i < 4; ++i) {
      if (chosen >> i & 1U) variables.insert(all[i]);
    }
    const bool is_none = variables.empty();
    // One that a script left empty, and what torchrun sets besides.
    variables[all[0].first];
    if (is_none) {
      EXPECT_FALSE(place_of(variables));
      variables["LOCAL_RANK"] = "0";
    }
    try {
      place_of(variables);
      ADD_FAILURE() << chosen;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid);
      const std::string text = text_of(error);
      const std::string missing = text.substr(text.find("but not"), text.find(": ranks"));
      for (size_t i = 0; i < 4; ++i) {
        const bool is_given = chosen >> i & 1U;
        EXPECT_EQ(text.find(std::string(" ") + all[i].first + "=") != std::string::npos, is_given);
        if (!is_given) {
          EXPECT_THAT(missing, HasSubstr(all[i].first));
        }
      }
    }
  }
}

TEST(TcpMeeting, AnMpiLauncherOfOneProcessLeavesTheVariablesAsTheyAre) {
  std::map<std::string, std::string> variables = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "6000"}};
  variables["PMIX_RANK"] = "0";
  EXPECT_FALSE(place_of(variables));  // of nobody knows how many
  variables["OMPI_COMM_WORLD_SIZE"] = "1";
  EXPECT_TRUE(place_of(variables));
  variables.erase("RANK");
  EXPECT_ANY_THROW(place_of(variables));
  variables["OMPI_COMM_WORLD_SIZE"] = "2";
  EXPECT_FALSE(place_of(variables));
}

// Its agent may have taken the port that it names.
TEST(TcpMeeting, TorchrunsRanksMeetDespiteItsAgent) {
  std::map<std::string, std::string> variables = {{"MASTER_ADDR", "h"},
                                                  {"MASTER_PORT", "6000"},
                                                  {"RANK", "1"},
                                                  {"WORLD_SIZE", "4"},
                                                  {"LOCAL_WORLD_SIZE", "4"},
                                                  {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                                                  {"TORCHELASTIC_RUN_ID", "none"},
                                                  {"SLURM_STEP_ID", "3"}};
  ASSERT_TRUE(place_of(variables));
  EXPECT_EQ(place_of(variables)->port, 6000);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  const auto first = place_of(variables);
  EXPECT_EQ(first->port, 6001);
  // Agents may be steps of their own, each under a launcher of one process.
  variables["SLURM_STEP_ID"] = "4";
  variables["PMI_SIZE"] = "1";
  EXPECT_EQ(place_of(variables)->job, first->job);
  variables["MASTER_PORT"] = "65535";
  EXPECT_EQ(place_of(variables)->port, 65534);
}

TEST(TcpMeeting, TheEnvironmentSaysWhere) {
  std::map<std::string, std::string> variables;
  const auto place = [&] { return place_of(variables); };
  EXPECT_FALSE(place());
  variables = {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "6000"}, {"RANK", "1"}, {"WORLD_SIZE", "4"}};
  ASSERT_TRUE(place());
  EXPECT_EQ(place()->host, "h");
  EXPECT_EQ(place()->rank, 1);
  EXPECT_EQ(place()->size, 4);
  EXPECT_EQ(place()->port, 6000);
  variables["OMPI_COMM_WORLD_SIZE"] = "4";
  EXPECT_FALSE(place());
  variables.erase("OMPI_COMM_WORLD_SIZE");
  variables["WORLD_SIZE"] = "1";
  EXPECT_ANY_THROW(place());  // of which rank 1 is none
  variables["RANK"] = "0";
  EXPECT_FALSE(place());
  variables["WORLD_SIZE"] = "2";
  for (const char* wrong : {"h:6000", "tcp://h", "10.0.0.1 172.17.0.1", "h\n", "a,b"}) {
    variables["MASTER_ADDR"] = wrong;
    EXPECT_ANY_THROW(place()) << wrong;
  }
  variables["MASTER_ADDR"] = "fe80::1";
  EXPECT_EQ(place()->host, "fe80::1");
  variables["MASTER_ADDR"] = "[::1]";
  EXPECT_EQ(place()->host, "::1");
  for (const char* wrong : {"-1", "x", "99999999999", "3.0"}) {
    variables["WORLD_SIZE"] = wrong;
    EXPECT_ANY_THROW(place()) << wrong;
  }
}

}  // namespace
