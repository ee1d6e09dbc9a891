#include "tools/launch/configuration_keys.h"

#include "convert/model/mismatch.h"

namespace ferry::tool {
namespace {

using C = LaunchConfiguration;

const ConfigurationKey kKeys[] = {
    {"name", &C::name, "name of the experiment and its jobs"},
    {"folder", &C::folder,
     "the experiment's checkpoints, logs and triggers; the same path on all nodes"},

    {"program.kind", &C::program, "program that trains", "ferry megatron"},
    {"program.ferry", &C::ferry, "path of ferry on the nodes (default: this program)"},
    {"program.prefix", &C::prefix, "words before the program: numactl --membind=0-3"},
    {"program.python", &C::python, "Python that runs Megatron-LM"},
    {"program.code", &C::code, "folder of Megatron-LM"},
    {"program.script", &C::script, "script in that folder to run"},
    {"program.back_up_code", &C::back_up_code, "copy the code once, and run the copy"},
    {"program.words", &C::words, "further words of the command line, not checked"},

    {"ranks.nodes", &C::nodes, "number of machines", "1 65536"},
    {"ranks.per_node", &C::ranks_per_node, "processes per machine", "1 1024"},
    {"ranks.gpus_per_node", &C::gpus_per_node, "GPUs per machine", "0 1024"},
    {"ranks.cpus_per_rank", &C::cpus_per_rank, "cores per process; 0: not set", "0 65536"},
    {"ranks.master_port", &C::master_port, "port that rank 0 listens on", "1 65535"},

    {"chain.requeue", &C::requeue, "each job queues the next, until training is finished"},
    {"chain.most_failures", &C::most_failures,
     "end the chain after so many jobs in a row without a new checkpoint", "1 1000"},
    {"chain.signal_seconds", &C::signal_seconds,
     "seconds before a job's end to ask it to save and exit; 0: never", "0 65535"},
    {"chain.exit_signal", &C::exit_signal, "signal that asks for this", "SIGUSR1 SIGUSR2 SIGTERM"},
    {"chain.triggers", &C::triggers, "watch for the files save and exit in folder/triggers"},

    {"container.kind", &C::container, "what starts the program inside an image",
     "none pyxis apptainer"},
    {"container.image", &C::image, "image file or name; also for Kubernetes"},
    {"container.mounts", &C::mounts, "HOST:INSIDE; the experiment's folder is always mounted"},
    {"container.folder", &C::container_folder, "working folder of the program"},
    {"container.options", &C::container_options, "further options of apptainer exec"},

    {"slurm.account", &C::account, "sbatch --account"},
    {"slurm.partition", &C::partition, "sbatch --partition"},
    {"slurm.qos", &C::qos, "sbatch --qos"},
    {"slurm.reservation", &C::reservation, "sbatch --reservation"},
    {"slurm.constraint", &C::constraint, "sbatch --constraint"},
    {"slurm.time", &C::time, "sbatch --time"},
    {"slurm.memory", &C::memory, "sbatch --mem"},
    {"slurm.exclusive", &C::exclusive, "sbatch --exclusive"},
    {"slurm.gpu_option", &C::gpu_option, "how to request GPUs", "gpus-per-node gres none"},
    {"slurm.options", &C::slurm_options, "further lines of the header: --wait-all-nodes=1"},
    {"slurm.srun_options", &C::srun_options, "further options of srun"},

    {"kubernetes.kind", &C::kind, "what runs the pods", "pytorchjob jobset job"},
    {"kubernetes.namespace", &C::space, "namespace of all objects"},
    {"kubernetes.pull_policy", &C::pull_policy, "when to pull the image",
     "Always IfNotPresent Never"},
    {"kubernetes.volume_claim", &C::volume_claim, "shared volume (PersistentVolumeClaim)"},
    {"kubernetes.volume_path", &C::volume_path, "where to mount it; folder must be below"},
    {"kubernetes.gpu_resource", &C::gpu_resource, "resource name of a GPU"},
    {"kubernetes.efa", &C::efa, "EFA interfaces per pod", "0 1024"},
    {"kubernetes.shared_memory", &C::shared_memory, "size of /dev/shm: 64Gi"},
    {"kubernetes.memory", &C::pod_memory, "memory per pod"},
    {"kubernetes.service_account", &C::service_account, "service account of the pods"},
    {"kubernetes.priority_class", &C::priority_class, "priority class of the pods"},
    {"kubernetes.restarts", &C::restarts, "restarts of failed pods before the job fails",
     "0 100000"},
    {"kubernetes.node_selector", &C::node_selector, "labels that nodes must have"},

    {"debug.nccl", &C::nccl_logs, "NCCL's log of each rank, in folder/debug/JOB"},
    {"debug.nsys", &C::nsys, "nsys trace of each rank, for the steps of --profile"},
    {"debug.memory", &C::memory_logs, "memory of each node over time"},
    {"debug.memory_seconds", &C::memory_log_seconds, "seconds between two samples of it",
     "1 86400"},
    {"wandb.project", &C::wandb_project,
     "Weights & Biases project; needs WANDB_API_KEY (Megatron-LM)"},
    {"check.vocab_size", &C::vocab_size, "vocabulary size, if the tokenizer is not on this machine",
     "0 2147483647"},
    {"environment", &C::environment, "environment variables of the program: NAME: VALUE"},
};

// Whole sections, of keys or of what is not a key here.
std::vector<std::string_view> section_names() {
  std::vector<std::string_view> names = {"arguments", "preset"};
  for (const ConfigurationKey& key : kKeys) {
    const size_t dot = key.name.find('.');
    const std::string_view section = key.name.substr(0, dot);
    if (dot != std::string_view::npos && section != names.back()) names.push_back(section);
  }
  return names;
}

}  // namespace

std::span<const ConfigurationKey> configuration_keys() { return kKeys; }

const ConfigurationKey* find_key(std::string_view name) {
  for (const ConfigurationKey& key : kKeys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string nearest_key(std::string_view name) {
  name = name.substr(0, 100);
  std::string_view nearest;
  size_t least = name.size() / 2 + 1;
  for (const ConfigurationKey& key : kKeys) {
    // A key without its section counts as near.
    const bool is_last_part = key.name.ends_with("." + std::string(name));
    const size_t distance = is_last_part ? 0 : edit_distance(name, key.name, least);
    if (distance >= least) continue;
    least = distance;
    nearest = key.name;
  }
  for (const std::string_view section : section_names()) {
    const size_t distance = edit_distance(name, section, least);
    if (distance >= least) continue;
    least = distance;
    nearest = section;
  }
  return std::string(nearest);
}

}  // namespace ferry::tool
