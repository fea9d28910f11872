"""Defines MapFunction, a person's own function on batches, with the text of its module.

A job names it as FILE.py:FUNCTION or MODULE:FUNCTION. The text travels with the job:
workers run the text of a file, and compare that of a module with their own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from recordmill.schemas.errors import UsageError

_FORMS = "FILE.py:FUNCTION or MODULE:FUNCTION"


class MapFunction(BaseModel):
    """A function that a job calls for each batch of rows.

    Attributes:
      function: its name.
      text: of the module that it stands in; its checksum stands for it in fingerprints.
      file: name of the module's file, for messages; "" if it is imported by its name.
      module: the name by which workers import the module; "" if they run the text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    function: str
    text: Annotated[str, Field(repr=False)]
    file: str = ""
    module: str = ""

    @property
    def label(self) -> str:
        """Returns how messages name it."""
        return f"{self.file or self.module}:{self.function}"

    @property
    def checksum(self) -> str:
        """Returns a checksum of the text, in hexadecimal digits."""
        return blake2b(self.text.encode(), digest_size=16).hexdigest()


def split_name(given: str) -> tuple[str, str]:
    """Returns the module, or its file, and the function that a job names.

    >>> split_name("gs://bucket/my_map.py:tokenise")
    ('gs://bucket/my_map.py', 'tokenise')

    Raises:
      UsageError: it names none.
    """
    place, colon, function = given.rpartition(":")
    names = [function] if is_file(place) else [*place.split("."), function]
    if not colon or not all(name.isidentifier() for name in names):
        raise UsageError(f"`map`: expected {_FORMS}, found {given!r}")
    return place, function


def is_file(place: str) -> bool:
    """Tells whether a file is named, not a module.

    >>> is_file("maps/my_map.py"), is_file("maps.my_map")
    (True, False)
    """
    return place.endswith(".py")


def load_map(given: str, read: Callable[[str], bytes]) -> MapFunction:
    """Reads the text of the module that a job names; runs nothing of a file.

    Args:
      given: as the job names it.
      read: reads a file by its URI.

    Raises:
      UsageError: there is no such module, or it is not Python.
      RecordmillError: the file cannot be read.
    """
    place, function = split_name(given)
    if is_file(place):
        text = _decoded(read(place), place)
        try:
            compile(text, place, "exec")
        except (SyntaxError, ValueError) as error:
            raise UsageError(f"`map` {place}: is not valid Python: {error}") from error
        file = place.replace("\\", "/").rpartition("/")[2]
        return MapFunction(function=function, text=text, file=file)
    origin = module_file(place)
    return MapFunction(
        function=function, text=_decoded(origin.read_bytes(), place), module=place
    )


def module_file(module: str) -> Path:
    """Finds the file of a module that can be imported here.

    Raises:
      UsageError: there is no such module, or it has no text.
    """
    try:
        found = importlib.util.find_spec(module)
    except Exception as error:  # whatever the packages that it lies in raise
        raise UsageError(
            f"`map`: module {module!r} cannot be imported here: "
            f"{type(error).__name__}: {error}. {_way_out(module)}"
        ) from error
    if found is None:
        raise UsageError(
            f"`map`: there is no module {module!r} among those that can be imported "
            f"here. {_way_out(module)}"
        )
    if not found.origin or not found.origin.endswith(".py"):
        raise UsageError(
            f"`map`: module {module!r} has no text (.py) from which the dataset's "
            f"fingerprint could be made. {_way_out(module)}"
        )
    return Path(found.origin)


def _way_out(module: str) -> str:
    file = f"{module.replace('.', '/')}.py"
    named = f"./{file}" if Path(file).is_file() else "FILE.py"
    return (
        f"Install it, or put its folder on PYTHONPATH, on each worker too; or name its "
        f"file: {named}:FUNCTION"
    )


def _decoded(data: bytes, place: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"`map` {place}: is not text in UTF-8 (byte {error.start}). Save it as UTF-8"
        ) from error
