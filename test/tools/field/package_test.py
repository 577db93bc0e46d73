#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Debian package in a bare root of the release that runs here: it installs, trains, compiles a C++ program with its
-dev package, and leaves nothing when it is removed. The steps of the Containerfile run in such roots, too. Needs root
and the network.

usage: package_test.py SOURCE FOLDER [NAMES OF TESTS]
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

SOURCE, FOLDER = pathlib.Path(), pathlib.Path()
PATIENCE = 2400  # seconds; a root builds everything
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root", "LANG": "C.UTF-8"}


def run(*command, **more):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE, check=False, **more)


def release():
    about = pathlib.Path("/etc/os-release").read_text(encoding="utf-8")
    return re.search(r"^VERSION_CODENAME=(\S+)$", about, re.MULTILINE)[1]


class Root:
    """A bare root, a copy of one that debootstrap makes once."""

    def __init__(self, name):
        bare = FOLDER / "bare"
        if not (bare / "done").exists():
            shutil.rmtree(bare, ignore_errors=True)
            made = run("debootstrap", "--variant=minbase", release(), bare)
            if made.returncode != 0:
                raise RuntimeError(made.stdout + made.stderr)
            (bare / "done").touch()
        self.path = FOLDER / name
        shutil.rmtree(self.path, ignore_errors=True)
        run("cp", "-a", "--reflink=auto", bare, self.path)

    def run(self, command, where="/"):
        """A shell's command in the root, which has a /proc, and a /dev of this machine."""
        script = f'mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" sh -c \'cd "$1" && eval "$2"\' sh "$1" "$2"'
        return run("unshare", "--mount", "sh", "-c", script, self.path, where, command, env=ENVIRONMENT)

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


class InRoot(unittest.TestCase):
    def setUp(self):
        self.root = Root("root")
        self.addCleanup(self.root.remove)

    def good(self, command, where="/", root=None):
        done = (root or self.root).run(command, where)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.stdout


class Package(InRoot):
    def test_it_installs_trains_and_is_removed(self):
        built = run(SOURCE / "tools/package.sh", "deb", "--output", FOLDER / "packages")
        self.assertEqual(built.returncode, 0, built.stdout + built.stderr)
        names = re.findall(r"^package: wrote (\S+)$", built.stdout, re.MULTILINE)
        self.assertEqual([pathlib.Path(name).name.split("_")[0] for name in names], ["lockstep", "lockstep-dev"])
        for name in names:
            shutil.copy(name, self.root.path / "tmp")
        self.good("apt-get update -q")
        before = set(self.good("find / -xdev -path /var -prune -o -path /proc -prune -o -name '*lockstep*' -print").split())
        begin = time.monotonic()
        self.good("apt-get install -q -y --no-install-recommends /tmp/lockstep_*.deb")
        print(f"installed in {time.monotonic() - begin:.1f} s", file=sys.stderr)
        begin = time.monotonic()
        said = self.good("lockstep train --model mnist_cnn --epochs 2 --replicas 2 --json")
        seconds = time.monotonic() - begin
        print(f"trained in {seconds:.1f} s: {said}", file=sys.stderr)
        self.assertLess(seconds, 20)
        self.assertGreater(float(re.search(r'"test_accuracy":([\d.]+)', said)[1]), 0.95)
        self.assertIn("MIT License", self.good("cat /usr/share/doc/lockstep/copyright"))
        self.good("apt-get install -q -y --no-install-recommends /tmp/lockstep-dev_*.deb g++ pkg-config")
        program = SOURCE / "test/face/collective_all_reduce.cpp"
        shutil.copy(program, self.root.path / "tmp/program.cpp")
        self.good("c++ -std=c++20 -O1 program.cpp -o program $(pkg-config --cflags --libs lockstep) && ./program", "/tmp")
        self.good("apt-get purge -q -y lockstep lockstep-dev && rm -r /tmp/*")
        after = set(self.good("find / -xdev -path /var -prune -o -path /proc -prune -o -name '*lockstep*' -print").split())
        self.assertEqual(after - before, {path for path in after if path.startswith("/root/.cache/lockstep")})


class Containerfile(InRoot):
    def test_its_steps_make_an_image_that_trains(self):
        """ARG, FROM, COPY, WORKDIR, RUN and ENTRYPOINT, of which the last stage is the image."""
        stages, roots, where, entry = {}, [], "/", None
        self.addCleanup(lambda: [root.remove() for root in roots])
        text = (SOURCE / "tools/Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
        for line in text.splitlines():
            word, _, rest = line.partition(" ")
            if word == "FROM":
                roots.append(Root(f"stage{len(roots)}"))
                stages[rest.partition(" AS ")[2]], where = roots[-1], "/"
            elif word == "COPY" and rest.startswith("--from="):
                stage, source, target = re.fullmatch(r"--from=(\S+) (\S+) (\S+)", rest).groups()
                shutil.copytree(stages[stage].path / source.lstrip("/"), roots[-1].path / target.lstrip("/"))
            elif word == "COPY":
                self.assertEqual(rest.split()[0], ".")
                copied = roots[-1].path / rest.split()[1].lstrip("/")
                run("git", "clone", "-q", SOURCE, copied)
            elif word == "WORKDIR":
                where = rest
            elif word == "RUN":
                self.good("PACKAGE=lockstep; " + rest, where, roots[-1])
            elif word == "ENTRYPOINT":
                entry = re.fullmatch(r'\["(\S+)"\]', rest)[1]
            else:
                self.assertIn(word, ("ARG", "#", ""), line)
        self.assertIn("accuracy", self.good(f"{entry} train --model mlp --epochs 1 -q", "/", roots[-1]))
        self.assertFalse((roots[-1].path / "packages").exists())


def main():
    global SOURCE, FOLDER
    SOURCE, FOLDER = (pathlib.Path(path).absolute() for path in sys.argv[1:3])
    FOLDER.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        sys.exit("package_test.py needs root")
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[3:]])


if __name__ == "__main__":
    main()
