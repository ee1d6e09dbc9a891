// Manifests for Kubernetes: a PyTorchJob (Kubeflow), a JobSet, or a plain indexed Job.
//
// Source: kubeflow/training-operator (kubeflow.org/v1 PyTorchJob), kubernetes-sigs/jobset
// (jobset.x-k8s.io/v1alpha2), Kubernetes' batch/v1 Job with completionMode Indexed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/launch/configuration.h"

namespace ferry::tool {

/// All objects, divided by ---: a ConfigMap of the scripts, and what runs the pods. invalid for
/// names that Kubernetes does not take, or where no image is named.
std::string kubernetes_manifest(const LaunchConfiguration& configuration,
                                const std::vector<std::string>& words, int64_t last_iteration);

}  // namespace ferry::tool
