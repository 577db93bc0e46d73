#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Manifests for Kubernetes: what they hold, and that pods which do what they say train together.

usage: render_test.py LOCKSTEP [NAMES OF TESTS]

Pods are network namespaces whose names resolve one after another. Where they cannot be made, that part is left out.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

try:
    import yaml  # a reader that others wrote, where there is one
except ImportError:
    yaml = None

import program
from program import Case, PATIENCE, refused

SMALL = ["--model", "mlp", "--examples", "300", "--batch", "50", "--epochs", "2", "--threads", "1"]


def scalar(text):
    return json.loads(text) if re.match(r'["\[{\d]|true$|false$|null$', text) else text


def block(lines, indent):
    """The value of a block of lines, which are used up."""
    if lines[0][indent:].startswith("- "):
        found = []
        while lines and lines[0].startswith(" " * indent + "- "):
            lines[0] = lines[0].replace("- ", "  ", 1)
            one = lines[0].strip()
            if re.match(r'("[^"]*"|[\w./-]+):( |$)', one):
                found.append(block(lines, indent + 2))
            else:
                found.append(scalar(one))
                lines.pop(0)
        return found
    found = {}
    while lines and re.match(" " * indent + r"[^ -]", lines[0]):
        key, _, value = lines.pop(0).strip().partition(":")
        found[scalar(key)] = scalar(value.strip()) if value.strip() else block(lines, indent + 2)
    return found


def documents(text):
    """The documents of the YAML that lockstep writes."""
    parts = [part for part in re.split(r"^---\n", text, flags=re.MULTILINE) if not part.startswith("#") and part]
    return [block(part.splitlines(), 0) for part in parts]


def environment(container, index):
    """The variables of a container, as Kubernetes sets them in a pod with an index."""
    found = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    for one in container.get("env", []):
        if "value" in one:
            found[one["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], one["value"])
        elif "fieldRef" in one["valueFrom"]:
            assert one["valueFrom"]["fieldRef"]["fieldPath"] == \
                "metadata.annotations['batch.kubernetes.io/job-completion-index']"
            found[one["name"]] = str(index)
        else:
            assert one["valueFrom"]["secretKeyRef"] == {"name": "lockstep-secret", "key": "secret"}
            found[one["name"]] = "0123456789abcdef0123456789abcdef"
    return found


class Render(Case):
    def manifests(self, *arguments):
        text = self.good("render", *arguments).stdout
        self.assertEqual(text, self.good("render", *arguments).stdout)
        if yaml:
            self.assertEqual(list(yaml.safe_load_all(text)), documents(text))
        return documents(text), text

    def test_an_indexed_job_finds_itself_by_a_headless_service(self):
        odd = ["--log", "yes: #no '$(HOME)' - \u00e9", "--batch-norm", "synchronised"]
        (service, job), text = self.manifests("--workers", "3", "--gpus", "2", "--", "--lr", "0.1", *odd)
        self.assertEqual((service["kind"], service["metadata"]["name"]), ("Service", "lockstep"))
        self.assertEqual(service["spec"], {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "lockstep"}})
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        self.assertEqual((job["kind"], spec["completionMode"], spec["completions"], spec["parallelism"]), ("Job", "Indexed", 3, 3))
        self.assertEqual((pod["restartPolicy"], pod["subdomain"]), ("Never", "lockstep"))
        self.assertEqual(job["spec"]["template"]["metadata"]["labels"], service["spec"]["selector"])
        codes = {rule["action"]: rule["onExitCodes"]["values"] for rule in spec["podFailurePolicy"]["rules"] if "onExitCodes" in rule}
        self.assertEqual(codes, {"Ignore": [75, 143], "FailJob": [64, 65]})
        container, = pod["containers"]
        self.assertEqual(container["command"], ["lockstep", "train", "--lr", "0.1", "--log", odd[1].replace("$", "$$"), *odd[2:]])
        self.assertEqual(container["resources"], {"limits": {"nvidia.com/gpu": 2}})
        mine = environment(container, 1)
        self.assertEqual([mine[name] for name in ("LOCKSTEP_RANK", "LOCKSTEP_RANKS", "LOCKSTEP_RENDEZVOUS")],
                         ["1", "3", "lockstep-0.lockstep:29500"])
        self.assertIn("kubectl create secret generic lockstep-secret", text)
        self.assertEqual(spec["successPolicy"], {"rules": [{"succeededIndexes": "0"}]})
        self.assertNotRegex(text, r"secret=[0-9a-f]")

    def test_one_worker_needs_no_secret(self):
        _, text = self.manifests("--workers", "1")
        self.assertNotIn("secret", text)

    def test_tasks_with_servers_have_one_cluster_and_indices_of_their_own(self):
        documents, _ = self.manifests("--workers", "3", "--servers", "2", "--name", "a-b", "--", "--model", "mlp")
        configs = []
        for job, pods in zip(documents[1:], (3, 2)):
            self.assertEqual(job["spec"]["completions"], pods)
            container, = job["spec"]["template"]["spec"]["containers"]
            configs += [json.loads(environment(container, index)["TF_CONFIG"]) for index in range(pods)]
            self.assertEqual(container["command"][-3:], ["--strategy", "parameter_server", "--insecure"])
        self.assertEqual([config["task"] for config in configs],
                         [{"type": "worker", "index": i} for i in range(3)] + [{"type": "ps", "index": i} for i in range(2)])
        for config in configs:
            self.assertEqual(config["cluster"], {"worker": [f"a-b-worker-{i}.a-b:29500" for i in range(3)],
                                                 "ps": [f"a-b-ps-{i}.a-b:29500" for i in range(2)]})

    def test_evaluator_and_tensorboard_share_the_volume(self):
        flags = ["--workers", "2", "--evaluator", "--tensorboard", "--volume", "runs:/runs"]
        trains = ["--", "--checkpoints", "/runs/a", "--summary=/runs/s"]
        documents, _ = self.manifests(*flags, *trains)
        kinds = {one["metadata"]["name"]: one for one in documents}
        self.assertEqual(set(kinds), {"lockstep", "lockstep-evaluator", "lockstep-tensorboard"})
        for one in documents[1:]:
            pod = one["spec"]["template"]["spec"]
            self.assertEqual(pod["volumes"], [{"name": "volume", "persistentVolumeClaim": {"claimName": "runs"}}])
            self.assertEqual(pod["containers"][0]["volumeMounts"], [{"name": "volume", "mountPath": "/runs"}])
        self.assertEqual(kinds["lockstep-evaluator"]["spec"]["template"]["spec"]["containers"][0]["command"],
                         ["lockstep", "train", *trains[1:], "--task", "evaluator"])
        self.assertEqual(kinds["lockstep-tensorboard"]["spec"]["template"]["spec"]["containers"][0]["command"],
                         ["tensorboard", "--bind_all", "--logdir", "/runs/s"])

    def test_an_mpi_job_starts_its_ranks_by_mpirun(self):
        (job,), text = self.manifests("--workers", "4", "--form", "mpijob", "--", "--model", "mlp")
        self.assertEqual((job["apiVersion"], job["kind"]), ("kubeflow.org/v2beta1", "MPIJob"))
        launcher, worker = job["spec"]["mpiReplicaSpecs"]["Launcher"], job["spec"]["mpiReplicaSpecs"]["Worker"]
        self.assertEqual((launcher["replicas"], worker["replicas"]), (1, 4))
        self.assertEqual(launcher["template"]["spec"]["containers"][0]["command"],
                         ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", "4", "lockstep", "train", "--model", "mlp"])
        self.assertNotIn("secret", text)
        for replica in (launcher, worker):
            self.assertEqual(replica["restartPolicy"], "Never")
            self.assertNotIn("restartPolicy", replica["template"]["spec"])

    def test_mistakes_are_refused(self):
        for arguments, words in (
                (["--workers", "0"], ["--workers"]),
                ([], ["--workers is required"]),
                (["--workers", "2", "--name", "1a"], ["--name '1a'", "the first a letter"]),
                (["--workers", "2", "--", "--checkpoints", "/runs/a"], ["--checkpoints needs", "--volume"]),
                (["--workers", "2", "--volume", "runs:/runs", "--", "--checkpoints", "/rungs"], ["--checkpoints needs"]),
                (["--workers", "2", "--volume", "runs"], ["--volume 'runs'", "CLAIM:PATH"]),
                (["--workers", "2", "--evaluator"], ["--evaluator needs", "--checkpoints"]),
                (["--workers", "2", "--tensorboard"], ["--tensorboard needs", "--summary"]),
                (["--workers", "2", "--servers", "1", "--form", "mpijob"], ["--form mpijob", "--servers"]),
                (["--workers", "2", "--", "--modle", "mlp"], ["after --", "no flag '--modle'; did you mean --model?"]),
                (["--workers", "0", "--", "--model", "mlp"], ["--workers", "1 to 4096"]),
                (["--workers", "2", "--", "--model", "mpl"], ["'mpl'", "did you mean mlp?"]),
                (["--workers", "2", "--", "--epochs", "x"], ["after --", "--epochs"])):
            refused(self, ["render", *arguments], 64, words)


class Pods:
    """Network namespaces with a bridge between them; a pod's names resolve from the time on when they are told."""

    def __init__(self, count):
        self.names = [f"lockstep-render-{os.getpid()}-{i}" for i in range(count)]
        self.bridge = f"ls-{os.getpid() % 10 ** 9}"
        self.hosts = [pathlib.Path(f"/etc/netns/{name}/hosts") for name in self.names]

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    def __enter__(self):
        try:
            self.ip("netns", "add", self.bridge)
            self.ip("-n", self.bridge, "link", "add", "bridge", "type", "bridge")
            self.ip("-n", self.bridge, "link", "set", "bridge", "up")
            for i, name in enumerate(self.names):
                self.ip("netns", "add", name)
                self.ip("-n", self.bridge, "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
                self.ip("-n", self.bridge, "link", "set", f"port{i}", "master", "bridge", "up")
                self.ip("-n", name, "address", "add", f"10.78.0.{i + 1}/24", "dev", "eth0")
                self.ip("-n", name, "link", "set", "eth0", "up")
                self.ip("-n", name, "link", "set", "lo", "up")
                self.hosts[i].parent.mkdir(parents=True)
                self.hosts[i].write_text("127.0.0.1 localhost\n")
        except (subprocess.CalledProcessError, OSError) as error:
            self.__exit__()
            raise unittest.SkipTest(f"no network namespaces can be made here: {error}") from error
        return self

    def __exit__(self, *_):
        for name in (*self.names, self.bridge):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        for hosts in self.hosts:
            hosts.unlink(missing_ok=True)
            if hosts.parent.exists():
                hosts.parent.rmdir()

    def tell(self, pod, *names):
        """From now on all pods find this one by its names."""
        for hosts in self.hosts:
            with hosts.open("a") as file:
                file.write(f"10.78.0.{pod + 1} {' '.join(names)}\n")

    def start(self, pod, command, variables, hostname):
        words = ["ip", "netns", "exec", self.names[pod], "unshare", "--uts", "--ipc", "--mount", "--pid", "--fork",
                 "--kill-child", "--mount-proc", "sh", "-c", 'hostname "$0" && mount -t tmpfs tmpfs /tmp && exec "$@"', hostname, program.LOCKSTEP, *command[1:]]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, **variables})


@unittest.skipUnless(os.geteuid() == 0, "pods are network namespaces, which root makes")
class Rendered(Case):
    def train(self, *arguments):
        """Starts the pods of the rendered jobs, whose names resolve later, one after another; what each printed."""
        jobs = [one for one in documents(self.good("render", *arguments).stdout) if one["kind"] == "Job"]
        tasks = []
        for job in jobs:
            spec = job["spec"]
            container, = spec["template"]["spec"]["containers"]
            for index in range(spec["completions"]):
                name = f"{job['metadata']['name']}-{index}"
                tasks.append((container, index, name, f"{name}.{spec['template']['spec']['subdomain']}"))
        with Pods(len(tasks)) as pods:
            running = [pods.start(pod, container["command"], environment(container, index), name)
                       for pod, (container, index, name, _) in enumerate(tasks)]
            try:
                for pod in reversed(range(len(tasks))):
                    time.sleep(0.5)
                    pods.tell(pod, tasks[pod][2], tasks[pod][3])
                outputs = [job.communicate(timeout=PATIENCE) for job in running]
            finally:
                for job in running:
                    job.kill()
                    job.wait()
            self.assertEqual([job.returncode for job in running], [0] * len(tasks), outputs)
            return outputs

    def test_pods_train_as_mpirun_does(self):
        outputs = self.train("--workers", "3", "--", *SMALL, "--json")
        found = json.loads(outputs[0][0])
        self.assertEqual((found["replicas"], found["strategy"]), (3, "collective_all_reduce"))
        self.assertEqual([out for out, _ in outputs[1:]], ["", ""])
        self.assertIn("3 ranks in 3 processes on 3 hosts", outputs[0][1])
        alone = self.result(*SMALL, "--replicas", "3")
        self.assertAlmostEqual(found["test_loss"], alone["test_loss"], places=4)

    def test_pods_of_servers_train(self):
        outputs = self.train("--workers", "2", "--servers", "1", "--", *SMALL, "--json")
        found = json.loads(outputs[0][0])
        self.assertEqual((found["replicas"], found["strategy"]), (2, "parameter_server"))


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
