#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""doctor_test.py LOCKSTEP: `lockstep doctor` has one line for each library that GPUs need, found with its version or
missing with the reason, whether there is a driver or not."""
import json
import sys

import program
from program import Case

LIBRARIES = ("cuBLASLt", "cuDNN", "NVML")


class Doctor(Case):
    def test_each_library_of_gpus_has_a_line(self):
        parts = json.loads(self.good("doctor", "--json").stdout)
        lines = self.good("doctor").stdout.splitlines()
        self.assertEqual(len(lines), len(parts))
        if "left out of this build" in parts["CUDA"]["text"]:
            self.assertFalse(parts["CUDA"]["found"])
            self.assertFalse(set(LIBRARIES) & set(parts))
            return
        self.assertIn("driver", parts["CUDA"]["text"])
        for name in (*LIBRARIES, "NCCL"):
            found, text = parts[name]["found"], parts[name]["text"]
            self.assertEqual([line.split()[0] for line in lines if line.split()[1] == name], ["found" if found else "absent"])
            if found:
                self.assertRegex(text, rf"^{name} \d+\.\d+|^NVML, which cannot be started")
            else:
                self.assertRegex(text, "could not be opened|too old|built without")
        self.assertEqual("GPUs" in parts, parts["CUDA"]["found"])


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
