# SPDX-License-Identifier: MIT
"""A cluster of Slurm on this machine: a controller, and nodes that are network namespaces with processes, names and
temporary files of their own. Needs root and the packages munge and slurm-wlm."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

NODES = 4
NETWORK = "10.66.0"
PACKAGES = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "unshare", "nsenter")

CONFIGURATION = """ClusterName=lockstep
SlurmctldHost={host}({network}.254)
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerParameters=requeue_delay=1,sched_interval=2
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd.%n.pid
SlurmdSpoolDir={base}/spool.%n
StateSaveLocation={base}/controller
SlurmctldLogFile={base}/controller.log
SlurmdLogFile={base}/slurmd.%n.log
SlurmctldPort=16817
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
KillWait=5
MessageTimeout=10
SlurmdTimeout=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=8
PartitionName=high Nodes=ALL Default=NO MaxTime=INFINITE State=UP PriorityTier=10
"""


def missing():
    """What this machine lacks for a cluster, or nothing."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    absent = [name for name in PACKAGES if shutil.which(name, path=path) is None]
    if absent:
        return f"{', '.join(absent)} (packages munge and slurm-wlm)"
    return "" if os.geteuid() == 0 else "root"


class SlurmCluster:
    def __init__(self):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-slurm-"))
        self.daemons = []
        self.bridge = f"ls{os.getpid() % 10 ** 7}"  # names of interfaces are short
        self.environment = {**os.environ, "SLURM_CONF": str(self.base / "slurm.conf"),
                            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}

    def _do(self, *words, check=True):
        return subprocess.run(words, check=check, capture_output=True, text=True, env=self.environment, timeout=60)

    def _start(self, *words):
        log = open(self.base / f"daemon{len(self.daemons)}.out", "w", encoding="utf-8")
        self.daemons.append(subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment))
        log.close()

    def _network(self):
        self._do("ip", "link", "add", self.bridge, "type", "bridge")
        self._do("ip", "address", "add", f"{NETWORK}.254/24", "dev", self.bridge)
        self._do("ip", "link", "set", self.bridge, "up")
        for i in range(1, NODES + 1):
            name = f"{self.bridge}n{i}"
            self._do("ip", "netns", "add", name)
            self._do("ip", "link", "add", f"{self.bridge}p{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            self._do("ip", "link", "set", f"{self.bridge}p{i}", "master", self.bridge, "up")
            self._do("ip", "-n", name, "address", "add", f"{NETWORK}.{i}/24", "dev", "eth0")
            self._do("ip", "-n", name, "link", "set", "eth0", "up")
            self._do("ip", "-n", name, "link", "set", "lo", "up")

    def node(self, number):
        """The network namespace of a node."""
        return f"{self.bridge}n{number}"

    def __enter__(self):
        try:
            self._network()
            host = os.uname().nodename
            nodes = "".join(f"NodeName=n{i} NodeHostname=n{i} NodeAddr={NETWORK}.{i} Port=16820 CPUs=2 RealMemory=2000 "
                            "State=UNKNOWN\n" for i in range(1, NODES + 1))
            (self.base / "slurm.conf").write_text(CONFIGURATION.format(host=host, base=self.base, network=NETWORK) + nodes)
            hosts = "".join(f"{NETWORK}.{i} n{i}\n" for i in range(1, NODES + 1))
            (self.base / "hosts").write_text(pathlib.Path("/etc/hosts").read_text() + hosts)
            for folder in ("/run/munge", "/var/log/munge", "/var/lib/munge"):
                pathlib.Path(folder).mkdir(exist_ok=True)
                shutil.chown(folder, "munge")
            if not pathlib.Path("/run/munge/munge.socket.2").exists() or self._do("munge", "-n", check=False).returncode:
                self._do("runuser", "-u", "munge", "--", "munged", "--force")
            self._start("slurmctld", "-D", "-f", str(self.base / "slurm.conf"))
            for i in range(1, NODES + 1):
                self._start("nsenter", f"--net=/run/netns/{self.bridge}n{i}", "unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "sh", "-c",
                            f"hostname n{i} && mount --make-rprivate / && mount -t proc proc /proc && mount --bind {self.base}/hosts /etc/hosts && "
                            f"mkdir -p /run/lockstep-slurm && mount --bind {self.base} /run/lockstep-slurm && "
                            "mount -t tmpfs tmpfs /tmp && chmod 1777 /tmp && "
                            f"mkdir -p {self.base} && mount --bind /run/lockstep-slurm {self.base} && "
                            f"exec slurmd -D -N n{i} -f {self.base}/slurm.conf")
            end = time.monotonic() + 60
            while self._do("sinfo", "-h", "-o", "%D %t", check=False).stdout.strip() not in (f"{NODES} idle",
                                                                                            f"{NODES} idle\n{NODES} idle"):
                if time.monotonic() > end:
                    logs = "".join(file.read_text()[-2000:] for file in self.base.glob("*.log"))
                    raise RuntimeError("the nodes of Slurm do not come up: " + self._do("sinfo", check=False).stdout + logs)
                time.sleep(0.2)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _remove(self):
        for i in range(1, NODES + 1):
            pids = self._do("ip", "netns", "pids", f"{self.bridge}n{i}", check=False).stdout.split()
            if pids:
                self._do("kill", "-9", *pids, check=False)
            self._do("ip", "netns", "del", f"{self.bridge}n{i}", check=False)
        self._do("ip", "link", "del", self.bridge, check=False)

    def __exit__(self, *_):
        for daemon in self.daemons:
            daemon.terminate()
        self._remove()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.base, ignore_errors=True)

    def run(self, *words, timeout=300, **variables):
        return subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False,
                              env={**self.environment, **variables})
