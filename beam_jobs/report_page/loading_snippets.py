"""Writes the code that loads a dataset, as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping

from recordmill.beam_jobs.report_page.page_parts import Snippet
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.decode.tf_code import loading_code, quoted


def loading_snippets(
    manifest: Manifest, names: Mapping[str, tuple[str, ...]], folder: str
) -> tuple[Snippet, ...]:
    """Returns programs that load a split of the dataset.

    Args:
      manifest: of the dataset.
      names: class names by feature.
      folder: of the dataset, a path or a URL.
    """
    split = next(iter(manifest.splits), "train")
    where = f"{quoted(folder)}, {quoted(split)}"
    snippets = []
    if manifest.compression == "none":
        snippets.append(Snippet("NumPy and PyTorch", _rows_by_number(where)))
    else:
        snippets.append(Snippet("NumPy", _rows_in_order(where)))
    if manifest.container == "tfrecord":  # tf.data reads no other
        snippets.append(Snippet("TensorFlow", loading_code(manifest, names, folder)))
    if _tfds_reads(manifest):
        code = _tfds if manifest.container == "tfrecord" else _tfds_data_source
        snippets.append(Snippet("TensorFlow Datasets", code(folder, split)))
    return tuple(snippets)


def _tfds_reads(manifest: Manifest) -> bool:
    plain = manifest.compression == "none" and manifest.payload == "example"
    return plain and not manifest.appended


def _rows_by_number(where: str) -> str:
    return (
        "from recordmill import open_dataset\n\n"
        f"data = open_dataset({where})  # for a PyTorch DataLoader, too\n"
        "print(len(data), data.class_names.keys())\n"
        "for batch in data.numpy_batches(32, seed=1, epoch=0):\n"
        "    print({name: values.shape for name, values in batch.items()})\n"
        "    break\n"
    )


def _rows_in_order(where: str) -> str:
    return (
        "from recordmill import read_batches\n\n"
        f"for batch in read_batches({where}):  # pyarrow.RecordBatch\n"
        "    print(batch.num_rows, batch.schema.names)\n"
        "    break\n"
    )


def _tfds(folder: str, split: str) -> str:
    return (
        "import tensorflow_datasets as tfds\n\n"
        f"builder = tfds.builder_from_directory({quoted(folder)})\n"
        f"dataset = builder.as_dataset(split={quoted(split)}, shuffle_files=True)\n"
        "for example in dataset.take(1):\n"
        "    print({name: value.shape for name, value in example.items()})\n"
    )


def _tfds_data_source(folder: str, split: str) -> str:
    return (
        "import tensorflow_datasets as tfds\n\n"
        f"builder = tfds.builder_from_directory({quoted(folder)})\n"
        f"source = builder.as_data_source(split={quoted(split)})  # for Grain, too\n"
        "print(len(source), source[0].keys())\n"
    )
