// Values that go into the header of a job or into a manifest, where a scheduler would refuse them
// once the job is submitted, or read something else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ferry::tool {

/// Values of sbatch --time: "90" (minutes), "1:30:00", "2-12", "2-12:30:00"; "UNLIMITED" and "0"
/// are no limit. Seconds; nothing where there is no limit. invalid, naming `key`, for anything
/// else.
std::optional<int64_t> check_slurm_time(std::string_view key, const std::string& text);
/// Values of sbatch --mem: "64G", "500000". invalid for anything else.
void check_slurm_memory(std::string_view key, const std::string& text);
/// Names of accounts, partitions and the like, or several between commas. invalid for anything
/// else.
void check_slurm_names(std::string_view key, const std::string& text);
/// Values of sbatch --constraint: features with & | * [ ] ( ). invalid for anything else.
void check_slurm_constraint(std::string_view key, const std::string& text);
/// "--NAME" or "--NAME=VALUE" of slurm.options: invalid for what is none, for a value that the
/// checks above refuse, and for an option that has a key of its own on which the scripts rely.
void check_slurm_option(const std::string& option);

/// Amounts in Kubernetes: "64Gi", "1.5G", "500m".
void check_quantity(std::string_view key, const std::string& text);
/// Names of objects in Kubernetes: lower-case letters, digits, - and . (a DNS subdomain).
void check_object_name(std::string_view key, const std::string& text);
/// Names of labels and resources: "nvidia.com/gpu", "node.kubernetes.io/instance-type".
void check_qualified_name(std::string_view key, const std::string& text);
/// Up to 63 letters, digits, and - _ . between them; may be empty.
void check_label_value(std::string_view key, const std::string& text);

}  // namespace ferry::tool
