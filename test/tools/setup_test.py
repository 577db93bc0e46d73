#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/setup.sh on pretended machines: a folder of small programs stands in for dpkg-query, apt and sudo.

usage: setup_test.py SETUP_SH
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SETUP = str(pathlib.Path(sys.argv[1]).resolve())

# What the pretended machine's programs do; its state is files in $STATE: `installed` and `known` hold
# names of packages, `calls` what apt-get was asked for.
PROGRAMS = {
    "dpkg-query": """for package in "$@"; do
  grep -qxF -- "$package" $STATE/installed && echo "installed $package"
done; exit 1""",
    "apt-cache": """grep -qxF -- "$2" $STATE/known""",
    "apt-get": """echo "$*" >> $STATE/calls
case "$*" in
  *update*) cp $STATE/archive $STATE/known ;;
  *install*)
    for word in "$@"; do
      case $word in -* | DPkg* | install) continue ;; esac
      grep -qxF -- "$word" $STATE/known || { echo "E: Unable to locate package $word"; exit 100; }
      echo "$word" >> $STATE/installed
    done ;;
esac""",
    "id": "cat $STATE/uid",
    "meson": "cat $STATE/meson",
    "sudo": """echo sudo >> $STATE/calls; [ -e $STATE/password ] && exit 1
[ "$1" = -n ] && shift; exec "$@" """,
}
BORROWED = ["bash", "env", "sed", "grep", "sort", "head", "tail", "mktemp", "rm", "cp", "cat", "true"]


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.state = pathlib.Path(folder.name)
        self.bin = self.state / "bin"
        self.bin.mkdir()
        for name, body in PROGRAMS.items():
            self.program(name, body)
        for name in BORROWED:
            (self.bin / name).symlink_to(shutil.which(name))
        self.remove("sudo")
        self.put("uid", "0")
        self.put("meson", "1.0.1")
        self.put("installed", "")
        self.put("calls", "")
        (self.bin / "apt-get").rename(self.bin / "hidden")
        listed = self.setup()  # without apt, setup lists what it wants
        (self.bin / "hidden").rename(self.bin / "apt-get")
        self.wanted = listed.stderr.splitlines()[-1].split()
        self.put("archive", "\n".join(self.wanted))
        self.put("known", "\n".join(self.wanted))

    def program(self, name, body):
        (self.bin / name).write_text(f"#!{shutil.which('bash')}\n{body}\n")
        (self.bin / name).chmod(0o755)

    def remove(self, name):
        (self.bin / name).unlink()

    def put(self, name, text):
        (self.state / name).write_text(text + "\n")

    def calls(self):
        return (self.state / "calls").read_text().split("\n")[1:-1]

    def setup(self, *arguments):
        return subprocess.run([shutil.which("bash"), SETUP, *arguments], text=True, check=False,
                              capture_output=True, stdin=subprocess.DEVNULL,
                              env={"PATH": str(self.bin), "STATE": str(self.state), "TMPDIR": str(self.state)})

    def test_where_everything_is_there_nothing_is_done(self):
        self.put("installed", "\n".join(self.wanted))
        result = self.setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.calls(), [])
        self.assertEqual(len(result.stdout.splitlines()), 1)

    def test_only_what_is_missing_is_installed(self):
        self.put("installed", "\n".join(p for p in self.wanted if p not in ("meson", "libfmt-dev")))
        result = self.setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(self.calls()), 1)
        self.assertTrue(self.calls()[0].endswith(" meson libfmt-dev"), self.calls())
        self.assertEqual(self.setup().returncode, 0)
        self.assertEqual(len(self.calls()), 1, "a second run installs nothing")

    def test_minimal_leaves_out_what_only_tests_need(self):
        self.assertEqual(self.setup("--minimal").returncode, 0)
        words = self.calls()[-1].split()
        self.assertIn("libdnnl-dev", words)
        self.assertNotIn("libgtest-dev", words)

    def test_a_container_without_package_lists_gets_them_first(self):
        self.put("known", "")
        result = self.setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([("update" in c, "install" in c) for c in self.calls()], [(True, False), (False, True)])

    def test_old_lists_are_refreshed_when_an_installation_fails(self):
        self.put("known", "\n".join(p for p in self.wanted if p != "libdnnl-dev"))
        result = self.setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(["update" in c for c in self.calls()], [False, True, False])

    def test_a_release_without_an_optional_package_is_fine(self):
        rest = [p for p in self.wanted if p != "clang-format-14"]
        self.put("archive", "\n".join(rest))
        self.put("known", "")
        result = self.setup()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("no clang-format-14", result.stdout)
        before = self.calls()
        self.assertEqual(self.setup().returncode, 0)
        self.assertEqual(self.calls(), before, "a second run asks apt-get for nothing")

    def test_what_cannot_be_installed_is_an_error_that_shows_apts_words(self):
        self.put("archive", "g++")
        self.put("known", "g++")
        result = self.setup()
        self.assertEqual(result.returncode, 1)
        self.assertIn("Unable to locate package", result.stderr)

    def test_without_apt_the_missing_packages_are_listed(self):
        self.remove("apt-get")
        result = self.setup("--minimal")
        self.assertEqual(result.returncode, 1)
        self.assertIn("libopenmpi-dev", result.stderr)

    def test_without_root_and_sudo_one_line_says_what_to_do(self):
        self.put("uid", "1000")
        result = self.setup()
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(result.stderr.splitlines()), 1)
        self.assertIn("apt-get install g++", result.stderr)
        self.assertEqual(self.calls(), [])

    def test_sudo_is_used_where_it_asks_for_no_password(self):
        self.program("sudo", PROGRAMS["sudo"])
        self.put("uid", "1000")
        self.assertEqual(self.setup().returncode, 0)
        self.assertIn("sudo", self.calls())
        self.put("installed", "")
        self.put("password", "")
        result = self.setup()
        self.assertEqual(result.returncode, 1)
        self.assertIn("wants a password", result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1)

    def test_an_old_meson_is_named(self):
        self.put("installed", "\n".join(self.wanted))
        self.put("meson", "0.61.2")
        result = self.setup()
        self.assertEqual(result.returncode, 1)
        self.assertIn("meson 0.61.2 is too old", result.stderr)
        self.put("meson", "1.10.0")
        self.assertEqual(self.setup().returncode, 0)

    def test_an_unknown_option_is_refused(self):
        result = self.setup("--fast")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--fast", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
