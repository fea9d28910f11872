"""A Dagster asset with a partition for each day: a dataset that recordmill makes.

recordmill is in an environment of its own, never in Dagster's: RECORDMILL is its path.
"""

import json
import subprocess
from typing import Any

from dagster import (
    AssetExecutionContext,
    DailyPartitionsDefinition,
    DataVersion,
    Definitions,
    Failure,
    MaterializeResult,
    RetryPolicy,
    TableColumn,
    TableSchema,
    asset,
)

RECORDMILL = "/opt/recordmill/bin/recordmill"
JOB_FILE = "/etc/recordmill/local.yaml"

# Exit statuses of usage, data and output refused (docs/options.md).
NEVER_AGAIN = (2, 65, 73)


@asset(
    partitions_def=DailyPartitionsDefinition(start_date="2026-11-01"),
    retry_policy=RetryPolicy(max_retries=3, delay=300),
    kinds={"tfrecord"},
)
def events(context: AssetExecutionContext) -> MaterializeResult:
    """The events of a day."""
    settings = f"date={context.partition_key}"
    facts = recordmill("run", JOB_FILE, "--set", settings, "--json")
    described = recordmill("inspect", facts["output"], "--json")
    columns = [
        TableColumn(each["name"], each["dtype"]) for each in described["features"]
    ]
    return MaterializeResult(
        # The same records have the same version, so what reads them is not run again.
        data_version=DataVersion(facts["fingerprint"]),
        metadata={
            "dagster/row_count": facts["records"],
            "dagster/column_schema": TableSchema(columns),
            "dagster/uri": facts["output"],
            **{
                name: facts[name]
                for name in ("status", "version", "rows_rejected", "bytes")
            },
            "records": {
                name: each["records"] for name, each in facts["splits"].items()
            },
        },
    )


def recordmill(*arguments: str) -> dict[str, Any]:
    """Runs the command; returns the JSON object that it prints."""
    ran = subprocess.run([RECORDMILL, *arguments], stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        raise Failure(
            f"recordmill ended with status {ran.returncode}",
            allow_retries=ran.returncode not in NEVER_AGAIN,
        )
    return json.loads(ran.stdout)


defs = Definitions(assets=[events])
