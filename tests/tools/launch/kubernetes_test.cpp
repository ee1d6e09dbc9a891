// Manifests for Kubernetes, read back by a real parser of YAML. tests/launch/check_manifests.py
// holds them against the schemas that Kubernetes' own projects publish.
#include <algorithm>

#include "ckpt/megatron/config/yaml.h"
#include "tests/tools/launch/launch_files.h"
#include "tools/launch/yaml_text.h"

namespace {

using namespace ferry;
using namespace ferry::test;
using nlohmann::ordered_json;
using testing::HasSubstr;

nlohmann::json parsed(const std::string& yaml) { return to_json(parse_yaml(yaml, "test")->root()); }

TEST(YamlText, EveryTextComesBack) {
  const std::vector<std::string> texts{
      "",         "plain",        "two words", "yes",     "No",
      "on",       "null",         "~",         "0123",    "1e3",
      "12:30",    "- a",          "a: b",      "#c",      "c #d",
      "'",        "\"",           "\\",        "a\nb",    "a\nb\n",
      "a\nb\n\n", "\na\n",        " a\nb\n",   "a \nb\n", "a\tb\n",
      "\x01\x7f", "é日本🙂", "[a]",       "{a: b}",  "&a",
      "*a",       "!a",           "%a",        "|",       ">",
      "@a",       "`a",           "-",         "---\n",   "...\n",
      "/path",    "true",         "a\r\n",     "\n",      "#!/bin/bash\nx=1\n\n  y\n"};
  ordered_json value = ordered_json::object();
  value["list"] = texts;
  for (size_t i = 0; i < texts.size(); ++i) value["map"]["k" + std::to_string(i)] = texts[i];
  value["nested"] = {{{"a", {1, 2, {{"b", true}}}}, {"c", ordered_json::array()}}};
  for (const std::string& text : texts) {
    if (!text.empty()) value["keys"][text] = 1;
  }
  const nlohmann::json back = parsed(ferry::tool::yaml_text(value));
  EXPECT_EQ(back, nlohmann::json(value)) << ferry::tool::yaml_text(value);
}

TEST(YamlText, WhatIsNoTextIsRefused) {
  for (const std::string bad :
       {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82"}) {
    EXPECT_ANY_THROW(ferry::tool::yaml_text({{"a", "x " + bad}})) << bad.size();
  }
}

struct Manifests : Launching {
  Outcome manifest(const std::string& more) const {
    return ferry(
        "launch kubernetes --preset one-machine --set folder=/shared/run "
        "arguments.global-batch-size=24 " +
        more);
  }
  // By kind.
  std::map<std::string, nlohmann::json> objects(const std::string& more) const {
    const Outcome outcome = manifest("container.image=registry.example/ferry:1 " + more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::map<std::string, nlohmann::json> objects;
    for (size_t at = 0; at < outcome.out.size();) {
      const size_t end = std::min(outcome.out.find("\n---\n", at), outcome.out.size());
      const nlohmann::json object = parsed(outcome.out.substr(at, end - at + 1));
      objects[object["kind"]] = object;
      at = end + 5;
    }
    return objects;
  }
};

TEST_F(Manifests, APyTorchJobHasAMasterAndWorkers) {
  const auto all = objects(
      "ranks.nodes=3 ranks.gpus_per_node=8 ranks.per_node=1 kubernetes.efa=32 "
      "kubernetes.volume_claim=fsx kubernetes.volume_path=/shared kubernetes.shared_memory=64Gi");
  const auto& replicas = all.at("PyTorchJob")["spec"]["pytorchReplicaSpecs"];
  EXPECT_EQ(replicas["Master"]["replicas"], 1);
  EXPECT_EQ(replicas["Worker"]["replicas"], 2);
  const auto& pod = replicas["Worker"]["template"]["spec"];
  EXPECT_EQ(pod["containers"][0]["name"], "pytorch");
  EXPECT_EQ(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "8");
  EXPECT_EQ(pod["containers"][0]["resources"]["limits"]["vpc.amazonaws.com/efa"], "32");
  EXPECT_EQ(pod["volumes"][1]["persistentVolumeClaim"]["claimName"], "fsx");
  EXPECT_EQ(pod["volumes"][2]["emptyDir"]["sizeLimit"], "64Gi");
  EXPECT_EQ(pod["terminationGracePeriodSeconds"], 600);
  EXPECT_EQ(pod["volumes"][0]["configMap"]["name"], all.at("ConfigMap")["metadata"]["name"]);
  EXPECT_THAT(std::string(all.at("ConfigMap")["data"]["settings.sh"]), HasSubstr("NODES=3\n"));
}

TEST_F(Manifests, AJobAndAJobSetNumberTheirPods) {
  const auto job = objects("kubernetes.kind=job ranks.nodes=2");
  const auto& spec = job.at("Job")["spec"];
  EXPECT_EQ(spec["completionMode"], "Indexed");
  EXPECT_EQ(spec["completions"], 2);
  EXPECT_EQ(spec["template"]["spec"]["subdomain"], job.at("Service")["metadata"]["name"]);
  EXPECT_EQ(spec["template"]["spec"]["containers"][0]["env"][0]["value"],
            "one-machine-0.one-machine");
  const auto set = objects("kubernetes.kind=jobset ranks.nodes=2");
  const auto& replicated = set.at("JobSet")["spec"]["replicatedJobs"][0];
  EXPECT_EQ(replicated["template"]["spec"]["parallelism"], 2);
  EXPECT_EQ(replicated["template"]["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"],
            "one-machine-ranks-0-0.one-machine");
}

TEST_F(Manifests, WhatKubernetesDoesNotTakeIsRefused) {
  const auto refusal = [&](const std::string& more) {
    const Outcome outcome = manifest(more);
    EXPECT_EQ(outcome.code, 2) << more;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_THAT(refusal(""), HasSubstr("container.image: pods need an image"));
  EXPECT_THAT(refusal("'container.image=x y'"),
              HasSubstr("container.image: 'x y' is not an image"));
  EXPECT_THAT(refusal("container.image=x name=Big"), HasSubstr("cannot be a name in Kubernetes"));
  EXPECT_THAT(refusal("container.image=x kubernetes.namespace=a_b"), HasSubstr("namespace"));
  for (const char* each :
       {"shared_memory=64GB", "memory=lots", "volume_claim=My_Claim", "service_account=a/b",
        "gpu_resource=nvidia/com/gpu", "node_selector={gpu: \"a,b\"}"}) {
    const std::string setting = std::string("kubernetes.") + each;
    EXPECT_THAT(refusal("container.image=x '" + setting + "'"),
                HasSubstr("error: " + setting.substr(0, setting.find('='))));
  }
  EXPECT_THAT(refusal("container.image=x kubernetes.volume_claim=c"), HasSubstr("volume_path"));
  EXPECT_THAT(refusal("container.image=x kubernetes.volume_claim=c kubernetes.volume_path=/fsx"),
              HasSubstr("is not in kubernetes.volume_path"));
  EXPECT_THAT(refusal("container.image=x kubernetes.kind=pod"), HasSubstr("is none of"));
}

}  // namespace
