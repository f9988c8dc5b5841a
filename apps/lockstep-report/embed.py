"""Writes a C++ source with the text of files: embed.py OUTPUT NAME=FILE…; an empty FILE is an empty text, and of
LICENCE:FILE, the licence goes before as a comment of JavaScript."""

import pathlib
import sys

output, *texts = sys.argv[1:]
lines = ['#include "apps/lockstep-report/page_files.hpp"', "", "namespace lockstep::report::page_files {", ""]
for name, file in (text.split("=", 1) for text in texts):
    licence, _, file = file.rpartition(":")
    content = pathlib.Path(file).read_bytes() if file else b""
    if licence:
        content = b"/*!\n" + pathlib.Path(licence).read_bytes() + b"*/\n" + content
    # Octal, so that the next character cannot belong to it; a question mark could begin a trigraph.
    escaped = ["".join(chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in line)
               for line in content.splitlines(keepends=True)]
    lines += [f"extern const std::string_view {name};", f"const std::string_view {name}{{"]
    lines += [f'    "{line}"' for line in escaped] or ['    ""']
    lines += [f"    , {len(content)}}};", ""]
lines += ["}  // namespace lockstep::report::page_files", ""]
pathlib.Path(output).write_text("\n".join(lines), encoding="ascii")
