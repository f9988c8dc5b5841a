"""Prints the tensors of a file in the safetensors format, `NAME BYTES` each, from the format's description alone:
8 bytes with the length of the header, the header in JSON, the data."""

import json
import struct
import sys

ELEMENT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1}

with open(sys.argv[1], "rb") as file:
    content = file.read()
(length,) = struct.unpack("<Q", content[:8])
header = json.loads(content[8:8 + length])
data = content[8 + length:]
assert (8 + length) % 8 == 0, "the data is not aligned"
assert content[8:9] == b"{", "the header does not begin as the format says"
assert all(isinstance(value, str) for value in header.pop("__metadata__").values())

read = 0
lines = {}
for name, entry in header.items():
    begin, end = entry["data_offsets"]
    count = 1
    for extent in entry["shape"]:
        count *= extent
    assert end - begin == count * ELEMENT_BYTES[entry["dtype"]], name
    read += end - begin
    lines[name] = f"{name} {data[begin:end].hex()}"
assert read == len(data), "bytes that belong to no tensor"
for name in ["dense/weights", "steps", "samples", "loss", "average"]:
    print(lines.pop(name))
assert not lines, lines
