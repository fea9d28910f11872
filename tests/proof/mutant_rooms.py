"""Which modules are changed, and which tests are to notice it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MutantRoom:
    """Modules that do one thing, and their tests, the nearest ones first.

    Attributes:
      modules: files below the project's root.
      tests: test files; of these, those run that reach the changed line.
      share: part of the mutants that is drawn where none is asked for.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    share: float


def _in(folder: str, names: str, ending: str = ".py") -> tuple[str, ...]:
    return tuple(f"{folder}/{name}{ending}" for name in names.split())


ROOMS = {
    "wire": MutantRoom(
        ("transforms/encode/wire.py", "transforms/arrow.py"),
        _in("tests/unit/encode", "test_wire test_encode_examples"),
        share=0.15,
    ),
    "keys": MutantRoom(
        ("transforms/exchange/keys.py",),
        (
            *_in("tests/unit/exchange", "test_keys test_sorted_runs"),
            "tests/unit/sources/test_csv_source.py",
        ),
        share=0.25,
    ),
    "plan": MutantRoom(
        (
            *_in("transforms/exchange", "plan exact_splits rank_sketch"),
            "schemas/shards.py",
        ),
        (
            *_in("tests/unit/exchange", "test_plan test_exact_splits"),
            "tests/unit/schemas/test_feature.py",
            "tests/unit/layout/test_docstring_examples.py",
            "tests/jobs/test_exact_split_jobs.py",
        ),
        share=0.25,
    ),
    "pieces": MutantRoom(
        (
            *_in("transforms/exchange", "messages piece"),
            "transforms/encode/packed_values.py",
        ),
        (
            "tests/unit/exchange/test_messages.py",
            "tests/unit/encode/test_packed_values.py",
            "tests/unit/rows/test_encode_rows.py",
        ),
        share=0.5,
    ),
    "tfrecord": MutantRoom(
        _in("transforms", "tfrecord find_frames combine_crcs"),
        (
            *_in("tests/unit/encode", "test_tfrecord test_tfrecord_damage"),
            *_in("tests/unit/encode", "test_payloads"),
            "tests/unit/sources/test_tfrecord_frames.py",
            "tests/unit/sources/test_file_content.py",
            "tests/unit/tasks/test_index_file.py",
        ),
        share=0.15,
    ),
    "commit": MutantRoom(
        _in(
            "transforms/commit",
            "build_manifest check_output cleanup commit converted_inputs damage"
            " dataset_changes detached duplicates finish input_check input_log"
            " kept_inputs name_limits option_changes records recovery same_content"
            " staged_files staging unfinished_versions versions",
        ),
        (
            *_in(
                "tests/unit/commit",
                "test_staged_files test_build_manifest test_told_changes test_rivals"
                " test_staging test_adversary test_input_log test_same_content"
                " test_commit_steps test_earlier_journals test_kept_inputs"
                " test_name_limits test_staging_steps test_what_is_left",
            ),
            *_in(
                "tests/jobs",
                "test_commit test_append_commit test_append test_cleanup test_versions"
                " test_another_dataset test_same_content_jobs test_duplicates"
                " test_replaced_inputs test_detached test_kept_rejects test_kept_files"
                " test_stored_checksums test_long_names test_repair"
                " test_earlier_datasets",
            ),
        ),
        share=0.25,
    ),
}
