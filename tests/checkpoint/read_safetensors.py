"""Prints the tensors of a file in the safetensors format, `NAME BYTES` each, or those of a checkpoint, which is a
folder. Knows the formats from their description alone: a file is 8 bytes with the length of the header, the header in
JSON, the data. Where Python's own safetensors is installed, it must read the same."""

import json
import pathlib
import struct
import sys

try:
    import safetensors
except ImportError:
    safetensors = None

ELEMENT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1}


def read_file(path):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    data = content[8 + length:]
    assert (8 + length) % 8 == 0, "the data is not aligned"
    assert content[8:9] == b"{", "the header does not begin as the format says"
    assert all(isinstance(value, str) for value in header.pop("__metadata__").values())

    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        count = 1
        for extent in entry["shape"]:
            count *= extent
        assert end - begin == count * ELEMENT_BYTES[entry["dtype"]], name
        tensors[name] = data[begin:end]
    assert sum(map(len, tensors.values())) == len(data), "bytes that belong to no tensor"
    if safetensors:
        theirs = {name: bytes(entry["data"]) for name, entry in safetensors.deserialize(content)}
        assert theirs == tensors, "Python's safetensors reads something else"
    return tensors


def read_checkpoint(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    assert folder.name == f"step-{manifest['step']}"
    assert {path.name for path in folder.iterdir()} == {"manifest.json", *manifest["files"]}
    tensors = {}
    for name, described in manifest["files"].items():
        assert (folder / name).stat().st_size == described["bytes"]
        of_file = read_file(folder / name)
        assert of_file.keys() == described["digests"].keys()
        tensors |= of_file
    return tensors


given = pathlib.Path(sys.argv[1])
lines = read_checkpoint(given) if given.is_dir() else read_file(given)
for name in ["dense/weights", "steps", "samples", "loss", "average"]:
    print(name, lines.pop(name).hex())
assert not lines, lines
