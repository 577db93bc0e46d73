// SPDX-License-Identifier: MIT
// This file is empty: check_headers.py takes the flags with which it is compiled.
