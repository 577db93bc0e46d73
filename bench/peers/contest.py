# SPDX-License-Identifier: MIT
"""Runs one contestant once: lockstep's bench_step, or a peer's script, on given cores.

Each function returns the JSON object of the run, with the images a second of all its processes together and
the most memory of its first process. A run that fails raises Failed with what it printed.
"""
import dataclasses
import os
import pathlib
import socket

import networks
from processes import Failed, launch, objects, outputs

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 300  # the most that one run may take

# Runs the rest of its arguments on the core that the list in $0 has for this process of the host.
PINNED = 'exec taskset -c "$(echo "$0" | cut -d, -f$((OMPI_COMM_WORLD_LOCAL_RANK + 1)))" "$@"'


@dataclasses.dataclass(frozen=True)
class Work:
    model: str
    dtype: str
    steps: int  # timed ones
    warm_up: int

    @property
    def rows(self):
        """Of a replica's batch."""
        return networks.INPUTS[self.model][2]

    def flags(self):
        """Those that bench_step and the peers have in common. bench_step's own dtype is float32."""
        dtype = [] if self.dtype == "float32" else ["--dtype", self.dtype]
        return ["--model", self.model, *dtype, "--warm-up", str(self.warm_up)]


def finish(started):
    """The last JSON object of each process that printed some, the first one's in front; all must end well."""
    found = [last for out in outputs(started, SECONDS) for last in objects(out)[-1:]]
    if not found:
        raise Failed("it printed no result")
    return found


def step_command(build, work, replicas=1, processes=1):
    # bench_step counts its steps of warming up.
    return [f"{build}/bench/bench_step", "--json", *work.flags(), "--steps", str(work.steps + work.warm_up),
            "--replicas", str(replicas), "--batch", str(work.rows * replicas * processes)]


def lockstep_one(build, work, cores, *flags):
    return finish([launch(["taskset", "-c", str(cores[-1]), *step_command(build, work), *flags])])[0]


def lockstep_mirrored(build, work, cores):
    """Two replicas, threads of one process."""
    pinned = ["taskset", "-c", f"{cores[0]},{cores[1]}"]
    return finish([launch(pinned + step_command(build, work, replicas=2))])[0]


def lockstep_processes(build, work, cores):
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2"]
    if os.geteuid() == 0:
        mpirun.append("--allow-run-as-root")
    command = step_command(build, work, processes=2) + ["--strategy", "collective_all_reduce"]
    return finish([launch([*mpirun, "sh", "-c", PINNED, f"{cores[0]},{cores[1]}", *command])])[0]


def lockstep_hosts(build, work, cores):
    """Two processes on virtual hosts of this machine, which share two cores, with links of 1 Gbit/s."""
    cluster = ["taskset", "-c", f"{cores[0]},{cores[1]}", str(HERE.parents[1] / "tools/virtual_cluster.sh"), "--hosts", "2",
               "--rate", "1gbit", "--"]
    command = step_command(build, work, processes=2) + ["--strategy", "collective_all_reduce"]
    return finish([launch(cluster + command)])[0]


def lockstep_apart(build, work, cores):
    """Two that know nothing of each other, side by side: what the machine gives two cores."""
    both = finish([launch(["taskset", "-c", str(core), *step_command(build, work)]) for core in cores[:2]])
    return {**both[0], "examples_per_second": sum(one["examples_per_second"] for one in both)}


def free_ports():
    """The first of two ports, side by side, that are free now."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
                return port
            except (OSError, OverflowError):
                continue


def peer(python, script, work, cores, processes, flags):
    command = [python, str(HERE / script), *work.flags(), "--steps", str(work.steps), *flags]
    if processes == 1:
        return finish([launch(["taskset", "-c", str(cores[-1]), *command])])[0]
    port = str(free_ports())
    return finish([
        launch(["taskset", "-c", str(cores[rank]), *command], RANK=str(rank), LOCAL_RANK=str(rank),
               WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        for rank in range(processes)])[0]
