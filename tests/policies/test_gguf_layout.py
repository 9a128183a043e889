"""Counts that a GGUF file declares are compared with its size before the file is read."""

import struct

import gguf
import numpy
import pytest

from quaere.errors import ModelMissing
from quaere.policies import gguf_file
from quaere.policies.gguf import convert_gguf
from quaere.policies.gguf_file import check_layout

UINT8, UINT32, STRING, ARRAY = 0, 4, 8, 9


def text(value):
    return struct.pack("<Q", len(value)) + value


def header(num_tensors=0, num_fields=0):
    return b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_fields)


def array(kind, count, name=b"a"):
    return text(name) + struct.pack("<IIQ", ARRAY, kind, count)


def tensor(*shape, kind=0, name=b"t"):
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)


NESTED = header(0, 1) + array(ARRAY, 1) + struct.pack("<IQ", ARRAY, 1) * 2000 + struct.pack("<IQB", UINT8, 1, 7)
HOSTILE = {
    "an array of 2^60 numbers": (header(0, 1) + array(UINT8, 1 << 60), "1,152,921,504,606,846,976 array elements"),
    "an array of 2^60 texts": (header(0, 1) + array(STRING, 1 << 60), "array elements"),
    "arrays within arrays": (NESTED, "arrays within arrays"),
    "2^60 fields": (header(0, 1 << 60) + bytes(64), "fields"),
    "2^60 tensors": (header(1 << 60, 0) + bytes(64), "tensors"),
    "a text of 2^60 bytes": (header(0, 1) + text(b"a") + struct.pack("<IQ", STRING, 1 << 60) + bytes(8), "a text of"),
    "a name of 2^60 bytes": (header(0, 1) + struct.pack("<Q", 1 << 60) + bytes(8), "a text of"),
    "a tensor of 2^60 numbers": (header(1, 0) + tensor(1 << 60), "larger than the file"),
    "a shape that overflows": (header(1, 0) + tensor(1 << 32, 1 << 32), "larger than the file"),
    "many tensors in the same bytes": (
        header(40, 0) + b"".join(tensor(200, name=b"%d" % number) for number in range(40)),
        "larger than the file",
    ),
    "a tensor of 2^31 dimensions": (header(1, 0) + text(b"t") + struct.pack("<I", 1 << 31) + bytes(64), "dimensions"),
    "a tensor of an unknown type": (header(1, 0) + tensor(1, kind=99), "unknown type 99"),
    "a field of an unknown type": (header(0, 1) + text(b"a") + struct.pack("<I", 77) + bytes(8), "unknown type 77"),
    "a file that ends early": (header(0, 1)[:14], "cut off"),
    "another kind of file": (b"PK\3\4" + bytes(60), "does not begin with GGUF"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_cannot_hold_what_it_declares_is_never_given_to_the_library(name, tmp_path, monkeypatch):
    def read(*_):
        pytest.fail("the library was asked to read the file")

    monkeypatch.setattr(gguf, "GGUFReader", read)
    content, reason = HOSTILE[name]
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(ModelMissing, match=reason) as caught:
        convert_gguf(tmp_path / "x.gguf", tmp_path / "out")
    assert "\n" not in str(caught.value) and "x.gguf" in str(caught.value)


def write(path, **fields):
    writer = gguf.GGUFWriter(path, arch="llama", endianess=fields.get("endianess", gguf.GGUFEndian.LITTLE))
    writer.add_block_count(fields.get("layers", 1))
    writer.add_token_list(["a", "b", ""])
    writer.add_token_scores([0.0, 1.0, 2.0])
    writer.add_tensor("token_embd.weight", numpy.ones((3, 4), dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("order", [gguf.GGUFEndian.LITTLE, gguf.GGUFEndian.BIG])
def test_a_sound_file_is_accepted_in_both_byte_orders(order, tmp_path):
    check_layout(write(tmp_path / "sound.gguf", endianess=order))


def test_elements_are_bounded_even_where_the_file_holds_them(tmp_path, monkeypatch):
    path = write(tmp_path / "sound.gguf")
    monkeypatch.setattr(gguf_file, "MAX_ELEMENTS", 6)  # three tokens and three scores
    check_layout(path)
    monkeypatch.setattr(gguf_file, "MAX_ELEMENTS", 5)
    with pytest.raises(ModelMissing, match="more than 5 elements"):
        check_layout(path)


@pytest.mark.parametrize("layers", [0, 2, 10_000_000])
def test_a_layer_needs_a_tensor(layers, tmp_path):
    with pytest.raises(ModelMissing, match="layers and has 1 tensors"):
        convert_gguf(write(tmp_path / "x.gguf", layers=layers), tmp_path / "out")


def test_a_missing_file_gives_one_line(tmp_path):
    with pytest.raises(ModelMissing, match="cannot be read"):
        check_layout(tmp_path / "none.gguf")
