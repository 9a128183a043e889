"""A GGUF file: the check of the counts and sizes that it declares, and its fields.

The library `gguf` believes what a file declares: an array of 2^60 elements in a file of 49 bytes is a loop of 2^60
steps, and arrays within arrays are a recursion. So the header is walked once first, without keeping anything.

    check_layout(Path("model.gguf"))  # raises ModelMissing if the file cannot hold what it declares
"""

import math
import struct
from pathlib import Path
from typing import Any, BinaryIO

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader

from quaere.errors import ModelMissing

MAX_ELEMENTS = 8_000_000  # of all arrays; a vocabulary of 262,144 tokens with scores, types and merges has 1.3 million
MAX_DIMENSIONS = 4  # of a tensor, as in ggml
MAX_NAME = 65_535  # bytes, as in the format's definition
_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes, by the number of a type


def check_layout(path: Path) -> None:
    """Raise `ModelMissing` if a count or size that the file declares is more than the file can hold."""
    try:
        with path.open("rb") as file:
            _Header(file, path.stat().st_size, path.name).walk()
    except OSError as error:
        raise ModelMissing(f"{path.name} cannot be read: {error.strerror}") from error


class _Header:
    def __init__(self, file: BinaryIO, size: int, name: str) -> None:
        self.file, self.size, self.name = file, size, name
        self.order, self.num_elements = "<", 0

    def walk(self) -> None:
        if self.file.read(4) != _MAGIC:
            raise self.refusal("it does not begin with GGUF")
        if self.number("I") & 65_535 == 0:  # a version such as 3 in the other byte order
            self.order = ">"
        num_tensors, num_fields = self.number("Q"), self.number("Q")
        self.check_left(num_tensors, 24, "tensors")
        self.check_left(num_fields, 13, "fields")
        for _ in range(num_fields):
            self.skip_string(MAX_NAME)
            self.skip_value(self.number("I"))
        self.check_left(num_tensors, 24, "tensors")
        left = self.size
        for _ in range(num_tensors):
            left -= self.tensor_bytes()
            if left < 0:
                raise self.refusal("its tensors are larger than the file")

    def skip_value(self, kind: int) -> None:
        count = 1
        if kind == _ARRAY:
            kind, count = self.number("I"), self.number("Q")
            if kind == _ARRAY:
                raise self.refusal("it has arrays within arrays")
            self.check_left(count, 8 if kind == _STRING else self.size_of(kind), "array elements")
            self.num_elements += count
            if self.num_elements > MAX_ELEMENTS:
                raise self.refusal(f"its arrays have more than {MAX_ELEMENTS:,} elements")
        if kind == _STRING:
            for _ in range(count):
                self.skip_string(self.size)
        else:
            self.skip(count * self.size_of(kind))

    def tensor_bytes(self) -> int:
        """Read the next tensor's description; returns its size in bytes by shape and type."""
        self.skip_string(MAX_NAME)
        num_dimensions = self.number("I")
        if num_dimensions > MAX_DIMENSIONS:
            raise self.refusal(f"a tensor has {num_dimensions} dimensions")
        num_elements = math.prod(self.number("Q") for _ in range(num_dimensions))
        kind = self.number("I")
        self.skip(8)  # the offset, which the library checks when it reads the tensor
        try:
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        except (ValueError, KeyError):
            raise self.refusal(f"a tensor has the unknown type {kind}") from None
        return num_elements * int(size) // int(block)

    def size_of(self, kind: int) -> int:
        if kind not in _SIZES:
            raise self.refusal(f"a field has the unknown type {kind}")
        return _SIZES[kind]

    def number(self, kind: str) -> int:
        size = struct.calcsize(f"<{kind}")
        data = self.file.read(size)
        if len(data) < size:
            raise self.refusal("it is cut off")
        return int(struct.unpack(self.order + kind, data)[0])

    def skip_string(self, limit: int) -> None:
        length = self.number("Q")
        if length > limit:
            raise self.refusal(f"it has a text of {length:,} bytes")
        self.skip(length)

    def skip(self, num_bytes: int) -> None:
        if num_bytes > self.size - self.file.tell():
            raise self.refusal("it is cut off")
        self.file.seek(num_bytes, 1)

    def check_left(self, count: int, size: int, what: str) -> None:
        """Raise `ModelMissing` if `count` things of at least `size` bytes each exceed the rest of the file."""
        if count * size > self.size - self.file.tell():
            raise self.refusal(f"it declares {count:,} {what}, more than the file can hold")

    def refusal(self, why: str) -> ModelMissing:
        return ModelMissing(f"{self.name} is not a readable GGUF file: {why}")


# --------------------------------------------------------------------------------------------------------------- fields

_REQUIRED = object()


def read_field(reader: GGUFReader, key: str, default: Any = _REQUIRED) -> Any:
    """The value of a field; `default` if the file lacks it, `ModelMissing` if there is no default."""
    field = reader.fields.get(key)
    if field is None and default is _REQUIRED:
        raise ModelMissing(f"the GGUF file lacks the field {key}")
    return default if field is None else field.contents()


def read_token_id(reader: GGUFReader, key: str) -> int | None:
    """The id of a special token such as `bos` or `eos`; None if the file has none."""
    token_id = read_field(reader, f"tokenizer.ggml.{key}_token_id", None)
    return None if token_id is None else int(token_id)


class Fields:
    """The fields of a GGUF file that are named after its architecture, and the names of its tensors."""

    def __init__(self, reader: GGUFReader, architecture: str) -> None:
        self.reader, self.architecture = reader, architecture

    def __call__(self, key: str, *default: Any) -> Any:
        """The value of a field, or the default."""
        return read_field(self.reader, f"{self.architecture}.{key}", *default)

    def number(self, key: str, *default: int) -> int:
        """A field that is one integer."""
        found = self(key, *default)
        if isinstance(found, list):
            raise ModelMissing(f"the GGUF file has a list as {self.architecture}.{key}, not one number")
        return int(found)

    def count(self, key: str, *default: int) -> int:
        """A field that is one positive integer."""
        if (found := self.number(key, *default)) < 1:
            raise ModelMissing(f"the GGUF file has {found} as {self.architecture}.{key}")
        return found

    def per_layer(self, key: str) -> list[int]:
        """A field with an integer for every layer."""
        found = self(key)
        if not isinstance(found, list) or len(found) != self.num_layers:
            raise ModelMissing(f"the GGUF file does not have one number per layer as {self.architecture}.{key}")
        return [int(number) for number in found]

    @property
    def num_layers(self) -> int:
        """Number of layers, without those for multi-token prediction."""
        return self.number("block_count") - self.number("nextn_predict_layers", 0)

    def has(self, part: str) -> bool:
        """True if some layer has this tensor."""
        return any(tensor.name.endswith(f".{part}") for tensor in self.reader.tensors)
