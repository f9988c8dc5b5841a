"""The files by which the tests exchange tensors with the programs of this folder."""
import ctypes
import json
import struct

import torch

TYPES = {"F64": torch.float64, "I64": torch.int64}


def bytes_of(tensor):
    held = tensor.detach().contiguous()
    return ctypes.string_at(held.data_ptr(), held.numel() * held.element_size())


def write_safetensors(path, tensors):
    header, data = {}, b""
    names = {kind: name for name, kind in TYPES.items()}
    for name, tensor in tensors.items():
        content = bytes_of(tensor)
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8:8 + length]), content[8 + length:]
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = torch.frombuffer(bytearray(data[begin:end]), dtype=TYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors
