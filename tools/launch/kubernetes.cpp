#include "tools/launch/kubernetes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/launch/header_values.h"
#include "tools/launch/scripts.h"
#include "tools/launch/yaml_text.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kScriptFolder = "/launch";
// Exit code of pod.sh when a pod was asked to end: Kubernetes shall start it again.
constexpr int kAskedToEnd = 85;

// A label of DNS, of which names of pods are made.
void check_label(const char* key, const std::string& text, size_t most) {
  const auto is_of_a_label = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  const bool is_good = !text.empty() && text.size() <= most &&
                       std::ranges::all_of(text, is_of_a_label) && text.front() != '-' &&
                       text.back() != '-' &&
                       std::isdigit(static_cast<unsigned char>(text.front())) == 0;
  if (is_good) return;
  fail(ErrorKind::invalid,
       "{}: '{}' cannot be a name in Kubernetes: up to {} lower-case letters, digits and -, a "
       "letter first",
       key, printable(text), most);
}

void check_for_kubernetes(const LaunchConfiguration& c) {
  check_label("name", c.name, 50);
  check_label("kubernetes.namespace", c.space, 63);
  check_qualified_name("kubernetes.gpu_resource", c.gpu_resource);
  if (!c.volume_claim.empty()) check_object_name("kubernetes.volume_claim", c.volume_claim);
  if (!c.service_account.empty())
    check_object_name("kubernetes.service_account", c.service_account);
  if (!c.priority_class.empty()) check_object_name("kubernetes.priority_class", c.priority_class);
  if (!c.shared_memory.empty()) check_quantity("kubernetes.shared_memory", c.shared_memory);
  if (!c.pod_memory.empty()) check_quantity("kubernetes.memory", c.pod_memory);
  for (const auto& [label, value] : c.node_selector) {
    check_qualified_name("kubernetes.node_selector", label);
    check_label_value("kubernetes.node_selector." + label, value);
  }
  if (c.image.empty()) fail(ErrorKind::invalid, "container.image: pods need an image");
  check_image("container.image", c.image);
  if (!c.volume_claim.empty() && c.volume_path.empty()) {
    fail(ErrorKind::invalid, "kubernetes.volume_path: where is {} mounted?", c.volume_claim);
  }
  if (!c.volume_path.empty() && !(c.folder + "/").starts_with(c.volume_path + "/")) {
    fail(ErrorKind::invalid,
         "folder: {} is not in kubernetes.volume_path, {}: what is written there goes with "
         "its pod",
         printable(c.folder), printable(c.volume_path));
  }
}

class Manifest {
 public:
  Manifest(const LaunchConfiguration& configuration, const std::vector<std::string>& words,
           int64_t last_iteration)
      : c_(configuration) {
    scripts_ = Json::object();
    scripts_["settings.sh"] = settings_text(c_, words, last_iteration);
    for (const char* name : {"chain.sh", "job.sh", "rank.sh", "ranks.sh", "pod.sh"}) {
      scripts_[name] = script(name).text;
    }
  }

  std::string text() const {
    std::string text = yaml_text(config_map());
    if (c_.kind == "pytorchjob") return text + "---\n" + yaml_text(pytorch_job());
    if (c_.kind == "jobset") return text + "---\n" + yaml_text(job_set());
    return text + "---\n" + yaml_text(service()) + "---\n" + yaml_text(job());
  }

 private:
  Json metadata(const std::string& name) const {
    return {{"name", name}, {"namespace", c_.space}, {"labels", labels()}};
  }
  Json labels() const { return {{"app.kubernetes.io/name", c_.name}}; }

  Json config_map() const {
    return {{"apiVersion", "v1"},
            {"kind", "ConfigMap"},
            {"metadata", metadata(c_.name + "-launch")},
            {"data", scripts_}};
  }

  Json resources() const {
    Json amounts = Json::object();
    if (c_.gpus_per_node > 0) amounts[c_.gpu_resource] = std::to_string(c_.gpus_per_node);
    if (c_.efa > 0) amounts["vpc.amazonaws.com/efa"] = std::to_string(c_.efa);
    if (c_.cpus_per_rank > 0) {
      amounts["cpu"] = std::to_string(c_.cpus_per_rank * c_.ranks_per_node);
    }
    if (!c_.pod_memory.empty()) amounts["memory"] = c_.pod_memory;
    if (amounts.empty()) return Json::object();
    return {{"requests", amounts}, {"limits", amounts}};
  }

  // `master`: the name of the first pod, where the operator does not set it.
  Json container(const std::string& master) const {
    Json container = {{"name", "pytorch"},  // the name that a PyTorchJob looks for
                      {"image", c_.image},
                      {"imagePullPolicy", c_.pull_policy},
                      {"command", {"bash", std::string(kScriptFolder) + "/pod.sh"}}};
    if (!c_.container_folder.empty()) container["workingDir"] = c_.container_folder;
    Json environment = Json::array();
    if (!master.empty()) {
      environment.push_back({{"name", "MASTER_ADDR"}, {"value", master}});
      environment.push_back({{"name", "MASTER_PORT"}, {"value", std::to_string(c_.master_port)}});
    }
    if (!environment.empty()) container["env"] = environment;
    container["ports"] = {{{"name", "pytorchjob-port"}, {"containerPort", c_.master_port}}};
    if (c_.kind != "pytorchjob") container["ports"][0]["name"] = "rendezvous";
    if (const Json all = resources(); !all.empty()) container["resources"] = all;
    Json mounts = {{{"name", "launch"}, {"mountPath", kScriptFolder}, {"readOnly", true}}};
    if (!c_.volume_claim.empty()) {
      mounts.push_back({{"name", "shared"}, {"mountPath", c_.volume_path}});
    }
    if (!c_.shared_memory.empty())
      mounts.push_back({{"name", "memory"}, {"mountPath", "/dev/shm"}});
    container["volumeMounts"] = mounts;
    return container;
  }

  Json volumes() const {
    Json volumes = {{{"name", "launch"}, {"configMap", {{"name", c_.name + "-launch"}}}}};
    if (!c_.volume_claim.empty()) {
      volumes.push_back(
          {{"name", "shared"}, {"persistentVolumeClaim", {{"claimName", c_.volume_claim}}}});
    }
    if (!c_.shared_memory.empty()) {
      volumes.push_back({{"name", "memory"},
                         {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", c_.shared_memory}}}});
    }
    return volumes;
  }

  Json pod(const std::string& restart, const std::string& master,
           const std::string& subdomain) const {
    Json spec = Json::object();
    if (!restart.empty()) spec["restartPolicy"] = restart;
    if (!subdomain.empty()) spec["subdomain"] = subdomain;
    // Time to save, once the pod is asked to end.
    spec["terminationGracePeriodSeconds"] = std::max<int64_t>(30, c_.signal_seconds);
    if (!c_.service_account.empty()) spec["serviceAccountName"] = c_.service_account;
    if (!c_.priority_class.empty()) spec["priorityClassName"] = c_.priority_class;
    if (!c_.node_selector.empty()) {
      Json selector = Json::object();
      for (const auto& [label, value] : c_.node_selector) selector[label] = value;
      spec["nodeSelector"] = selector;
    }
    spec["containers"] = Json::array({container(master)});
    spec["volumes"] = volumes();
    return {{"metadata", {{"labels", labels()}}}, {"spec", spec}};
  }

  // The operator calls the first pod Master, and gives all of them its address and their ranks.
  Json pytorch_job() const {
    Json replicas = {
        {"Master",
         {{"replicas", 1}, {"restartPolicy", "OnFailure"}, {"template", pod("", "", "")}}}};
    if (c_.nodes > 1) {
      replicas["Worker"] = {{"replicas", c_.nodes - 1},
                            {"restartPolicy", "OnFailure"},
                            {"template", pod("", "", "")}};
    }
    return {{"apiVersion", "kubeflow.org/v1"},
            {"kind", "PyTorchJob"},
            {"metadata", metadata(c_.name)},
            {"spec",
             {{"runPolicy", {{"backoffLimit", c_.restarts}, {"cleanPodPolicy", "None"}}},
              {"pytorchReplicaSpecs", replicas}}}};
  }

  // One pod a node, each with its number. All begin again where one fails: they train together.
  Json job_spec(const std::string& master, const std::string& subdomain, bool fails_at_once) const {
    return {{"parallelism", c_.nodes},
            {"completions", c_.nodes},
            {"completionMode", "Indexed"},
            {"backoffLimit", fails_at_once ? 0 : c_.restarts * c_.nodes},
            {"podFailurePolicy", failure_policy()},
            {"template", pod("Never", master, subdomain)}};
  }

  // A configuration that is wrong stays wrong. Pods that were asked to end cost no attempt.
  Json failure_policy() const {
    const auto rule = [](const char* action, std::vector<int> codes) {
      return Json{
          {"action", action},
          {"onExitCodes", {{"containerName", "pytorch"}, {"operator", "In"}, {"values", codes}}}};
    };
    Json rules = Json::array();
    if (c_.program == "ferry") rules.push_back(rule("FailJob", {2, 5}));
    if (c_.kind == "job") rules.push_back(rule("Ignore", {kAskedToEnd}));
    if (rules.empty()) rules.push_back(rule("Count", {kAskedToEnd}));
    return {{"rules", rules}};
  }

  Json job_set() const {
    // Pods are NAME-REPLICATED-JOB-POD, in the subdomain of the set.
    const std::string master = fmt::format("{}-ranks-0-0.{}", c_.name, c_.name);
    return {{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
            {"kind", "JobSet"},
            {"metadata", metadata(c_.name)},
            {"spec",
             {{"failurePolicy", {{"maxRestarts", c_.restarts}}},
              {"network", {{"enableDNSHostnames", true}, {"subdomain", c_.name}}},
              {"replicatedJobs",
               Json::array({{{"name", "ranks"},
                             {"replicas", 1},
                             {"template", {{"spec", job_spec(master, "", true)}}}}})}}}};
  }

  Json service() const {
    return {{"apiVersion", "v1"},
            {"kind", "Service"},
            {"metadata", metadata(c_.name)},
            {"spec",
             {{"clusterIP", "None"},
              {"publishNotReadyAddresses", true},
              {"selector", {{"batch.kubernetes.io/job-name", c_.name}}},
              {"ports", Json::array({{{"name", "rendezvous"}, {"port", c_.master_port}}})}}}};
  }

  Json job() const {
    const std::string master = fmt::format("{}-0.{}", c_.name, c_.name);
    return {{"apiVersion", "batch/v1"},
            {"kind", "Job"},
            {"metadata", metadata(c_.name)},
            {"spec", job_spec(master, c_.name, false)}};
  }

  const LaunchConfiguration& c_;
  Json scripts_;
};

}  // namespace

std::string kubernetes_manifest(const LaunchConfiguration& c, const std::vector<std::string>& words,
                                int64_t last_iteration) {
  check_for_kubernetes(c);
  return Manifest(c, words, last_iteration).text();
}

}  // namespace ferry::tool
