#!/usr/bin/env python3
"""Manifests of `ferry launch kubernetes` against the schemas that the operators publish.

    check_manifests.py FERRY TRAINING_OPERATOR JOBSET

The last two are checkouts of kubeflow/training-operator and kubernetes-sigs/jobset (or files of their
CRDs). A member that a schema does not know is an error, as the API server's strict validation has it.
The Job is held against the Job that the JobSet's schema contains. Needs PyYAML.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

HOSTILE = ["two words", "it's", '"q"', "$(x)", "a\nb", "a: b", "- a", "#c", "yes", "0123", "~", "é🙂",
           "a\ttab", " lead", "trail ", "{a}", "[b]", "&x", "*x", "!t", "%d", "|", ">", "\\", "null", "\x7f", "12:30:00"]


def problems(value, schema, where):
    """What of `value` a structural schema (OpenAPI v3, as CRDs have it) does not allow."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, (int, str)):
            yield f"{where}: neither number nor text"
        return
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "number": (int, float)}
    kind = kinds.get(schema.get("type"), object)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        yield f"{where}: {value!r} is no {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        yield f"{where}: {value!r} does not match {schema['pattern']}"
    if isinstance(value, int) and not isinstance(value, bool):
        if value < schema.get("minimum", value) or value > schema.get("maximum", value):
            yield f"{where}: {value} is out of range"
    if isinstance(value, dict):
        members, rest = schema.get("properties", {}), schema.get("additionalProperties")
        for name in schema.get("required", []):
            if name not in value:
                yield f"{where}: {name} is missing"
        for name, item in value.items():
            if name in members:
                yield from problems(item, members[name], f"{where}.{name}")
            elif isinstance(rest, dict):
                yield from problems(item, rest, f"{where}.{name}")
            elif not schema.get("x-kubernetes-preserve-unknown-fields") and members:
                yield f"{where}: {name} is unknown"
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from problems(item, schema.get("items", {}), f"{where}[{number}]")


def read_crd(place, name):
    """The schemas of a bare snapshot, a checkout or a file: {version: schema}."""
    place = pathlib.Path(place)
    if place.is_file():
        text = place.read_text()
    elif (place / "HEAD").exists():
        listed = subprocess.run(["git", "-C", place, "ls-tree", "-r", "--name-only", "HEAD"], check=True,
                                capture_output=True, text=True).stdout.split("\n")
        path = next(path for path in listed if path.endswith("/" + name))
        text = subprocess.run(["git", "-C", place, "show", "HEAD:" + path], check=True, capture_output=True,
                              text=True).stdout
    else:
        text = next(place.rglob(name)).read_text()
    crd = yaml.safe_load(text)
    return {version["name"]: version["schema"]["openAPIV3Schema"] for version in crd["spec"]["versions"]}


def main():
    ferry, operator, jobset = sys.argv[1:4]
    pytorch = read_crd(operator, "kubeflow.org_pytorchjobs.yaml")["v1"]
    sets = read_crd(jobset, "jobset.x-k8s.io_jobsets.yaml")["v1alpha2"]
    replicated = sets["properties"]["spec"]["properties"]["replicatedJobs"]["items"]["properties"]
    job_spec = replicated["template"]["properties"]["spec"]
    job = {"type": "object", "properties": {"apiVersion": {}, "kind": {}, "metadata": {}, "spec": job_spec}}
    schemas = {"PyTorchJob": pytorch, "JobSet": sets, "Job": job}
    found, checked = [], 0
    with tempfile.TemporaryDirectory() as folder:
        hostile = pathlib.Path(folder, "hostile.yaml")
        # A key "~" of YAML would be none: values alone are hostile.
        hostile.write_text(yaml.safe_dump({
            "environment": {f"HOSTILE_{number}": text for number, text in enumerate(HOSTILE)},
            "kubernetes": {"node_selector": {"pool": "yes", "zone": "0123"}, "memory": "64Gi",
                           "service_account": "trainer", "priority_class": "high"}}))
        for kind in ("pytorchjob", "jobset", "job"):
            for nodes in (1, 4):
                words = [ferry, "launch", "kubernetes", str(hostile), "--preset", "one-machine", "--set",
                         "folder=/shared/run", "container.image=registry.example/ferry:1", f"kubernetes.kind={kind}",
                         f"ranks.nodes={nodes}", "kubernetes.volume_claim=shared", "kubernetes.volume_path=/shared",
                         "kubernetes.shared_memory=16Gi", "ranks.gpus_per_node=1", "kubernetes.efa=4",
                         "arguments.global-batch-size=16"]
                done = subprocess.run(words, capture_output=True, text=True)
                if done.returncode:
                    found.append(f"{kind}: {done.stderr}")
                    continue
                documents = list(yaml.safe_load_all(done.stdout))
                for document in documents:
                    if document["kind"] in schemas:
                        checked += 1
                        found += problems(document, schemas[document["kind"]], f"{kind} {document['kind']}")
                settings = documents[0]["data"]["settings.sh"]
                script = settings + "\n" + "".join(f'printf "%s\\0" "$HOSTILE_{n}"\n' for n in range(len(HOSTILE)))
                values = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
                if values.split("\0")[:-1] != HOSTILE:
                    found.append(f"{kind}: values of the environment do not come through: {values!r}")
                pods = [document for document in documents if document["kind"] in schemas]
                if "'yes'" in str(pods) and "True" in str(pods).replace("'readOnly': True", "").replace(
                        "'enableDNSHostnames': True", ""):
                    found.append(f"{kind}: a text became a boolean")
    # The check itself can fail.
    wrong = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpec": {}}}
    if not list(problems(wrong, pytorch, "wrong")):
        found.append("a wrong manifest passes")
    for line in found:
        print("FAILED:", line)
    if not found:
        print(f"{checked} manifests fit their schemas")
    return 1 if found or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
