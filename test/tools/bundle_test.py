#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/bundle.sh, the launcher and gpu_check.sh: with small programs in place of lockstep's, and a bundle of what was
built, unpacked elsewhere and run without this machine's libraries.

usage: bundle_test.py SOURCE BUILD [--bare-system]

--bare-system runs the bundle in the smallest Debian instead, which debootstrap downloads; it wants root and
debootstrap, and is skipped without them (exit code 77).
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SKIPPED = 77
SOURCE, BUILD = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
BARE = "--bare-system" in sys.argv[3:]
PATIENCE = 300  # seconds for anything; only a defect takes so long
MOST_MEGABYTES = 60  # compressed, without NVIDIA's libraries
SYSTEM = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent"}  # no more than any system has
JOB = ["train", "--model", "mlp", "--data", "random", "--batch", "8", "--steps", "3", "--eval", "0", "--json"]
MPIRUN = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]
GLIBC = re.compile(r"/(ld-linux[^/]*|lib(c|m|pthread|dl|rt|util|resolv|anl|mvec|nsl|nss_[^/]*))\.so[^/]*$")


def run(command, **more):
    return subprocess.run([str(word) for word in command], **{
        "capture_output": True, "text": True, "timeout": PATIENCE, "stdin": subprocess.DEVNULL, **more})


def put(path, text, mode=0o755):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="bundle test ")  # the space is meant
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name).resolve()

    def refused(self, done, code, *words):
        """One line that says so, the exit code, and nothing else."""
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)


class Packing(Case):
    """What bundle.sh makes of a build in which a small program is lockstep."""

    def setUp(self):
        super().setUp()
        for program in ("tools/lockstep", "test/test_ops", "bench/bench_device", "bench/bench_rpc"):
            (self.top / "build" / program).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(shutil.which("true"), self.top / "build" / program)
        self.output = self.top / "out"
        self.output.mkdir()
        self.cuda = self.top / "cuda/lib64"
        self.environment = {**os.environ, "CUDA_HOME": str(self.cuda.parent)}

    def pack(self, *arguments):
        return run([SOURCE / "tools/bundle.sh", "--build", self.top / "build", *arguments], env=self.environment)

    def test_unknown_options_and_places_that_are_taken_are_refused(self):
        self.refused(self.pack("--fast"), 2, "--fast", "--without-vendor")
        self.refused(self.pack("--output"), 2, "--output wants a value")
        self.refused(self.pack("--without-vendor", "--output", self.output), 2, "there already")

    def test_without_a_build_one_line_says_so(self):
        (self.top / "build/tools/lockstep").unlink()
        self.refused(self.pack("--without-vendor", "--output", self.output / "b"), 1, "build it first")

    def test_a_build_without_tests_makes_no_bundle(self):
        (self.top / "build/test/test_ops").unlink()
        self.refused(self.pack("--without-vendor", "--output", self.output / "b"), 1, "no tests", "-Dtests=enabled")
        self.assertEqual(list(self.output.iterdir()), [])

    def test_an_archive_replaces_an_older_one_and_holds_one_folder(self):
        archive = self.output / "b.tar.gz"
        archive.write_text("older")
        done = self.pack("--without-vendor", "--output", archive)
        self.assertEqual(done.returncode, 0, done.stderr)
        names = run(["tar", "-tzf", archive]).stdout.split()
        for name in ("bin/lockstep", "bin/bench_device", "tools/gpu_check.sh", "tools/gpu_report.py"):
            self.assertIn(f"lockstep-bundle/{name}", names)
        self.assertNotIn("lockstep-bundle/bin/bench_rpc", names, "of processors alone")
        self.assertEqual({name.split("/")[0] for name in names}, {"lockstep-bundle"})
        self.assertEqual(list(self.output.iterdir()), [archive])

    def test_a_library_that_is_nowhere_is_named_and_nothing_is_left(self):
        put(self.top / "bin/ldd", "#!/bin/sh\necho 'libabsent.so.1 => not found'\n")
        self.environment["PATH"] = f"{self.top}/bin:{os.environ['PATH']}"
        self.refused(self.pack("--without-vendor", "--output", self.output / "b"), 1, "libabsent.so.1")
        self.assertEqual(list(self.output.iterdir()), [])

    def test_a_signal_leaves_nothing(self):
        put(self.top / "bin/gzip", f"#!/bin/sh\ntouch '{self.top}/reached'\nexec sleep 3\n")
        packing = subprocess.Popen(
            [SOURCE / "tools/bundle.sh", "--without-vendor", "--build", self.top / "build", "--output",
             self.output / "b.tar.gz"], stdout=subprocess.DEVNULL,
            env={**self.environment, "PATH": f"{self.top}/bin:{os.environ['PATH']}"})
        while not (self.top / "reached").exists() and packing.poll() is None:
            time.sleep(0.05)
        packing.send_signal(signal.SIGTERM)
        self.assertEqual(packing.wait(PATIENCE), 143)
        self.assertEqual(list(self.output.iterdir()), [])

    def test_nvidias_libraries_are_inside_or_the_missing_one_is_named(self):
        names = ["libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libcudnn_ops.so.9", "libnccl.so.2",
                 "libnvrtc.so.13", "libnvrtc-builtins.so.13.0"]
        for name in names + ["libcudnn.so.9.19.0", "libcudnn.so", "libcudart.so.13"]:
            put(self.cuda / name, name)
        done = self.pack("--output", self.output / "b")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(path.name for path in (self.output / "b/lib").iterdir()), sorted(names))
        (self.cuda / "libnccl.so.2").unlink()
        self.refused(self.pack("--output", self.output / "c"), 1, "libnccl.so", "--without-vendor")
        self.assertFalse((self.output / "c").exists())


class Launcher(Case):
    """bin/NAME starts programs/NAME, here a script that says what it got."""

    def setUp(self):
        super().setUp()
        self.bundle = self.top / "bundle"
        put(self.bundle / "glibc_needed", "2.17\n")
        put(self.bundle / "bin/say", (SOURCE / "tools/bundle_launch.sh").read_text(encoding="utf-8"))
        put(self.bundle / "programs/say", '#!/bin/sh\necho "$LD_LIBRARY_PATH"\necho "$*"\necho "${OMPI_MCA_plm-}"\n')

    def say(self, path=None, **environment):
        return run([path or self.bundle / "bin/say", "a b", "c"], env={**SYSTEM, **environment})

    def folders(self, **environment):
        done = self.say(**environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[1], "a b c")
        return done.stdout.splitlines()[0].split(":")

    def test_the_bundles_libraries_come_first_and_the_callers_behind(self):
        self.assertEqual(self.folders(LD_LIBRARY_PATH="/one:/two")[:3], [f"{self.bundle}/lib", "/one", "/two"])

    def test_mpirun_is_told_where_there_is_no_way_to_other_hosts(self):
        (self.top / "bin").mkdir()
        for name in ("sh", "readlink", "getconf"):
            (self.top / "bin" / name).symlink_to(shutil.which(name))
        self.assertEqual(self.say(PATH=str(self.top / "bin")).stdout.splitlines()[2], "isolated")
        put(self.top / "bin/ssh", "")
        self.assertEqual(self.say(PATH=str(self.top / "bin")).stdout.splitlines()[2], "")

    def test_a_link_to_it_starts_it(self):
        (self.top / "link").symlink_to(self.bundle / "bin/say")
        self.assertEqual(self.say(self.top / "link").stdout, self.say().stdout)

    def test_what_it_starts_inherits_the_search(self):
        nested = self.folders(LOCKSTEP_BUNDLE=str(self.bundle), LD_LIBRARY_PATH="/as/it/was")
        self.assertEqual(nested, ["/as/it/was"])
        other = self.folders(LOCKSTEP_BUNDLE="/another/bundle", LD_LIBRARY_PATH="/another/bundle/lib")
        self.assertEqual(other[0], f"{self.bundle}/lib")

    def test_nvidias_pip_packages_are_found_unless_the_bundle_has_them(self):
        packages = [self.top / "site/nvidia" / part / "lib" for part in ("cudnn", "cu13")]
        for folder in packages:
            folder.mkdir(parents=True)
        found = self.folders(PYTHONPATH=str(self.top / "site"))
        self.assertEqual(found[1:3], [str(folder) for folder in packages])
        put(self.bundle / "lib/libcudnn.so.9", "")
        self.assertEqual(self.folders(PYTHONPATH=str(self.top / "site")), [f"{self.bundle}/lib"])

    def test_an_older_glibc_is_one_line_that_says_what_is_needed(self):
        for needed, fits in (("2.0", True), ("1.99", True), ("2.999", False), ("3.0", False)):
            put(self.bundle / "glibc_needed", needed + "\n")
            if fits:
                self.assertEqual(self.say().returncode, 0, needed)
            else:
                self.refused(self.say(), 74, f"glibc {needed} or newer")

    def test_another_c_library_is_one_line(self):
        put(self.top / "bin/getconf", "#!/bin/sh\necho 'getconf: unknown variable' >&2; exit 1\n")
        self.refused(self.say(PATH=f"{self.top}/bin:{SYSTEM['PATH']}"), 74, "no glibc")


DOCTOR = {"CUDA": {"found": True, "text": "driver 13.0"}, "device cpu:0": {"found": True, "text": "a processor"},
          "device cuda:0": {"found": True, "text": "a GPU"}}
NO_GPU = {"CUDA": {"found": False, "text": "libcuda.so.1 could not be opened"},
          "device cpu:0": {"found": True, "text": ""}}
OPS = """#!/bin/sh
cat <<'TEXT'
[ RUN      ] Conformance.Dense
[       OK ] Conformance.Dense (3 ms)
[ RUN      ] Conformance.Pools/0
1 is not 2
[  FAILED  ] Conformance.Pools/0, where GetParam() = 7 (3 ms)
[ RUN      ] Cpu.Other
[  SKIPPED ] Cpu.Other (0 ms)
[ RUN      ] Cpu.Last
[  FAILED  ] Conformance.Pools/0, where GetParam() = 7
TEXT
"""


PROGRAMS = ["bench_device", "bench_step", "test_ops", "test_cuda_graphs", "test_gpu_train"]


class GpuCheck(Case):
    """gpu_check.sh in a bundle whose programs are scripts."""

    def setUp(self):
        super().setUp()
        put(self.top / "glibc_needed", "2.17\n")
        put(self.top / "version", "lockstep 1\n")
        for script in ("gpu_check.sh", "gpu_report.py"):
            put(self.top / "tools" / script, (SOURCE / "tools" / script).read_text(encoding="utf-8"))
        put(self.top / "bench/peers/torch_resnet50.py", "print('skipped: no PyTorch')\nraise SystemExit(77)\n")
        for name in PROGRAMS:
            put(self.top / "bin" / name, "#!/bin/sh\necho '[ RUN      ] A.B'\necho '[       OK ] A.B (1 ms)'\n")
        put(self.top / "bin/bench_step", "#!/bin/sh\necho '{\"examples_per_second\": 12.5, \"roofline\": "
            "{\"examples_per_second\": 25, \"share\": 0.5, \"copy_gb_s\": 4300, \"product_tflop_s\": 1}}'\n")
        put(self.top / "bin/mpirun", "#!/bin/sh\necho '{\"started\": 2}'\n")
        self.lockstep(DOCTOR)
        self.output = self.top / "out.json"

    def lockstep(self, doctor):
        put(self.top / "bin/lockstep", f"""#!/bin/sh
if [ "$1" = doctor ]; then echo '{json.dumps(doctor, separators=(",", ":"))}'; exit; fi
echo 'a word'
echo '{{"examples_per_second":12.5}}'
""")

    def check(self, *arguments):
        return run([self.top / "tools/gpu_check.sh", "--output", self.output, *arguments])

    def test_without_a_gpu_it_is_skipped_in_one_line(self):
        self.lockstep(NO_GPU)
        done = self.check()
        self.assertEqual((done.returncode, done.stderr), (SKIPPED, ""))
        self.assertEqual(len(done.stdout.splitlines()), 1, done.stdout)
        self.assertIn("libcuda.so.1 could not be opened", done.stdout)
        self.assertFalse(self.output.exists())

    def test_results_and_figures_are_in_the_json(self):
        put(self.top / "bin/test_ops", OPS)
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        got = json.loads(self.output.read_text(encoding="utf-8"))
        self.assertEqual(got["devices"], {"cpu:0": "a processor", "cuda:0": "a GPU"})
        self.assertEqual((got["doctor"], got["version"]), (DOCTOR, "lockstep 1"))
        ops = got["tests"]["ops"]
        self.assertEqual(ops["cases"], {"Conformance.Dense": "passed", "Conformance.Pools/0": "failed",
                                        "Cpu.Other": "skipped", "Cpu.Last": "not ended"})
        self.assertEqual(ops["failures"], {"Conformance.Pools/0": "1 is not 2"})
        self.assertEqual(ops["result"], "passed", "the program's end decides")
        digits = got["benches"]["train_digits"]
        self.assertEqual(digits["figures"], [{"examples_per_second": 12.5}])
        self.assertIn("--device cuda:0", digits["command"])
        self.assertEqual(got["benches"]["train_digits_2_processes"]["figures"], [{"started": 2}])
        self.assertNotIn("train_digits_nccl", got["benches"], "there is one GPU")
        self.assertEqual(got["benches"]["torch"]["result"], "skipped")
        self.assertEqual(got["tests"]["cuda_graphs"]["result"], "passed")
        self.assertFalse([path for path in self.top.iterdir() if path.suffix == ".part"])
        # The table, of which these programs measure nothing but images a second, and PyTorch is missing.
        demands = got["demands"]
        self.assertEqual((demands["resnet50_256_over_pytorch"]["met"], demands["resnet50_256_aim"]["met"]), (None, False))
        self.assertIn("no PyTorch", demands["resnet50_256_over_pytorch"]["reason"])
        self.assertTrue(demands["seconds"]["met"])
        self.assertIn(demands["resnet50_256_aim"]["demand"], done.stdout)
        self.assertIn("demands met,", done.stdout)

    def test_where_there_are_two_gpus_nccl_adds(self):
        self.lockstep({**DOCTOR, "device cuda:1": {"found": True, "text": "another GPU"}})
        self.assertEqual(self.check().returncode, 0)
        got = json.loads(self.output.read_text(encoding="utf-8"))
        self.assertIn("--algorithm nccl", got["benches"]["train_digits_nccl"]["command"])

    def test_a_test_that_is_not_there_is_a_failure(self):
        (self.top / "bin/test_gpu_train").unlink()
        done = self.check()
        self.assertEqual(done.returncode, 1)
        self.assertIn("failed: gpu_train (failed: not built)", done.stderr)

    def test_what_fails_is_named_and_the_rest_is_run(self):
        put(self.top / "bin/test_ops", "#!/bin/sh\necho words\nexit 3\n")
        done = self.check()
        self.assertEqual(done.returncode, 1)
        self.assertIn("failed: ops (failed)", done.stderr)
        got = json.loads(self.output.read_text(encoding="utf-8"))
        self.assertEqual((got["tests"]["ops"]["exit_code"], got["tests"]["ops"]["last_words"]), (3, ["words"]))
        self.assertEqual(got["benches"]["train_digits"]["result"], "passed")

    def test_it_keeps_to_its_time(self):
        put(self.top / "bin/test_ops", "#!/bin/sh\nexec sleep 100\n")
        began = time.monotonic()
        done = self.check("--seconds", "6", "--jobs", "1")
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(done.returncode, 1)
        got = json.loads(self.output.read_text(encoding="utf-8"))
        self.assertEqual(got["tests"]["ops"]["result"], "timed out")
        self.assertEqual(got["benches"]["train_digits"]["result"], "skipped: no time left")

    def test_bad_options_are_refused(self):
        self.refused(self.check("--fast"), 2, "--fast", "--seconds")
        self.refused(self.check("--seconds", "soon"), 2, "soon")
        self.refused(self.check("--only", "colour"), 2, "correctness", "speed", "colour")
        self.refused(self.check("--jobs", "0"), 2, "--jobs")

    def test_each_part_runs_alone(self):
        parts = {}
        for part in ("correctness", "speed"):
            self.assertEqual(self.check("--only", part).returncode, 0)
            got = json.loads(self.output.read_text(encoding="utf-8"))
            parts[part] = set(got["demands"])
            self.assertEqual("step_resnet50_256" in got["benches"], part == "speed")
            self.assertEqual("ops" in got["tests"], part == "correctness")
        self.assertEqual(parts["correctness"] & parts["speed"], {"seconds"})

    def test_what_was_found_goes_to_the_cache_that_is_named(self):
        put(self.top / "bin/bench_step", "#!/bin/sh\nmkdir -p \"$XDG_CACHE_HOME/lockstep\"\n"
            "echo plan >\"$XDG_CACHE_HOME/lockstep/kernels\"\n")
        self.check("--only", "speed", "--cache", self.top / "found")
        self.assertEqual((self.top / "found/lockstep/kernels").read_text(encoding="utf-8"), "plan\n")

    def test_shards_together_are_all_tests(self):
        put(self.top / "bin/test_ops", "#!/bin/sh\n[ $# = 0 ] || exit 0\n"
            "echo \"[ RUN      ] A.$GTEST_SHARD_INDEX\"\necho \"[       OK ] A.$GTEST_SHARD_INDEX (1 ms)\"\n"
            "[ $GTEST_TOTAL_SHARDS = 8 ]\n")
        self.assertEqual(self.check("--only", "correctness", "--jobs", "3").returncode, 0)
        got = json.loads(self.output.read_text(encoding="utf-8"))
        self.assertEqual(got["tests"]["ops"]["cases"], {f"A.{i}": "passed" for i in range(8)})

    def test_a_signal_ends_what_runs(self):
        put(self.top / "bin/test_ops", f"#!/bin/sh\necho $$ >>'{self.top}/started'\nexec sleep 100\n")
        (self.top / "tmp").mkdir()
        check = subprocess.Popen([self.top / "tools/gpu_check.sh", "--output", self.output, "--jobs", "2"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 env={**os.environ, "TMPDIR": str(self.top / "tmp")})
        started = self.top / "started"
        end = time.monotonic() + PATIENCE
        while not started.exists() or len(started.read_text().split()) < 2:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        check.send_signal(signal.SIGTERM)
        self.assertEqual(check.wait(PATIENCE), 143)
        self.assertEqual(len(started.read_text().split()), 2, "no more run side by side than --jobs")
        self.assertEqual(list((self.top / "tmp").iterdir()), [])
        for number in started.read_text().split():
            end = time.monotonic() + 20
            while pathlib.Path(f"/proc/{number}").exists() and time.monotonic() < end:
                time.sleep(0.05)
            self.assertFalse(pathlib.Path(f"/proc/{number}").exists())


def packed(folder):
    """The bundle of what was built, unpacked in the folder; and how many bytes its archive has."""
    archive = pathlib.Path(folder) / "bundle.tar.gz"
    done = run([SOURCE / "tools/bundle.sh", "--without-vendor", "--build", BUILD, "--output", archive])
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    size = archive.stat().st_size
    run(["tar", "-C", folder, "-xzf", archive], check=True)
    archive.unlink()
    return pathlib.Path(folder) / "lockstep-bundle", size


class Bundle(unittest.TestCase):
    """The bundle on this machine, with nothing in its environment."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="bundle test ")
        cls.addClassCleanup(folder.cleanup)
        cls.top = pathlib.Path(folder.name).resolve()
        cls.bundle, cls.size = packed(cls.top)

    def run_there(self, command, **environment):
        return run(command, cwd=self.top, env={**SYSTEM, **environment})

    def result(self, command, **environment):
        done = self.run_there(command, **environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def loaded(self, command):
        """What the command prints, and of each of its processes that runs a program of the bundle the program's name
        and the libraries that it loaded, those by dlopen too."""
        with tempfile.TemporaryDirectory(dir=self.top) as folder:
            result = self.result(command, LD_DEBUG="files", LD_DEBUG_OUTPUT=f"{folder}/of")
            logs = [log.read_text(errors="replace") for log in pathlib.Path(folder).iterdir()]
        found = []
        for log in logs:
            # A launcher becomes its program in the same process, and the log goes on: text, program, text, ...
            parts = re.split(r"transferring control: (.*)\n", log)
            if len(parts) > 1 and parts[-2].startswith(f"{self.bundle}/programs/"):
                libraries = re.findall(r"calling init: (.*)", parts[-3] + parts[-1])
                found.append((pathlib.Path(parts[-2]).name, libraries))
        return result, found

    def test_it_is_small_enough_to_be_carried(self):
        self.assertLess(self.size / 1e6, MOST_MEGABYTES)

    def test_all_libraries_but_glibc_are_its_own(self):
        jobs = [([], ["--replicas", "2"], ["lockstep"])]
        if (self.bundle / "bin/mpirun").exists():
            jobs.append(([self.bundle / "bin/mpirun", *MPIRUN], ["--strategy", "collective_all_reduce"],
                         ["lockstep", "lockstep", "mpirun"]))
        for prefix, flags, programs in jobs:
            result, found = self.loaded([*prefix, self.bundle / "bin/lockstep", *JOB, *flags])
            self.assertEqual(result["replicas"], 2)
            self.assertEqual(sorted(name for name, _ in found), programs)
            for name, libraries in found:
                own = [library for library in libraries if library.startswith(f"{self.bundle}/")]
                self.assertGreater(len(own), 3, "the dynamic linker told what it loads")
                self.assertEqual([library for library in libraries if library not in own and not GLIBC.search(library)],
                                 [], name)

    def test_its_tests_run(self):
        done = self.run_there([self.bundle / "bin/test_ops", "--gtest_filter=KnownAnswers.*"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("[  PASSED  ]", done.stdout)

    def test_gpu_check_finds_no_gpu_or_is_not_tried(self):
        doctor = json.loads(self.run_there([self.bundle / "bin/lockstep", "doctor", "--json"]).stdout)
        if any(name.startswith("device cuda:") for name in doctor):
            self.skipTest("this machine has a GPU")
        done = self.run_there([self.bundle / "tools/gpu_check.sh"])
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (SKIPPED, 1), done.stdout + done.stderr)


class BareSystem(unittest.TestCase):
    """The bundle in the smallest Debian: no package of ours, no python3, no mpirun."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.system = pathlib.Path(folder.name).resolve() / "system"
        done = run(["debootstrap", "--variant=minbase", "bookworm", cls.system])
        if done.returncode != 0:
            raise RuntimeError(done.stdout[-2000:] + done.stderr)
        packed(cls.system / "opt")

    def run_there(self, *command):
        # Mounts end with their namespace.
        inside = f"""mount -t proc proc '{self.system}/proc' && mount --rbind /dev '{self.system}/dev' &&
mount --rbind /sys '{self.system}/sys' && exec chroot '{self.system}' "$@" """
        return run(["unshare", "--mount", "sh", "-c", inside, "sh", *command], env=SYSTEM)

    def test_the_doctor_says_in_one_line_that_there_is_no_driver(self):
        done = self.run_there("/opt/lockstep-bundle/bin/lockstep", "doctor")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        about = [line for line in done.stdout.splitlines() if line.startswith("absent CUDA ")]
        self.assertEqual(len(about), 1, done.stdout)
        self.assertIn("libcuda.so.1 could not be opened", about[0])

    def test_two_replicas_train(self):
        for command in (["bin/lockstep", *JOB, "--replicas", "2"],
                        ["bin/mpirun", *MPIRUN, "/opt/lockstep-bundle/bin/lockstep", *JOB,
                         "--strategy", "collective_all_reduce"]):
            done = self.run_there("/opt/lockstep-bundle/" + command[0], *command[1:])
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(json.loads(done.stdout.splitlines()[-1])["replicas"], 2)

    def test_gpu_check_is_skipped_in_one_line(self):
        done = self.run_there("/opt/lockstep-bundle/tools/gpu_check.sh")
        self.assertEqual((done.returncode, done.stderr), (SKIPPED, ""))
        self.assertEqual(len(done.stdout.splitlines()), 1, done.stdout)
        self.assertIn("libcuda.so.1", done.stdout)


def load_tests(loader, tests, pattern):
    cases = [BareSystem] if BARE else [Packing, Launcher, GpuCheck, Bundle]
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)


if __name__ == "__main__":
    if BARE and (os.geteuid() != 0 or shutil.which("debootstrap") is None):
        print("skipped: --bare-system wants root and debootstrap")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
