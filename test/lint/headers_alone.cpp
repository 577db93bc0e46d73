// SPDX-License-Identifier: MIT
// Nothing: check_headers.py takes the flags by which this is compiled.
