"""Writes croissant.json, by which search engines and tools find a dataset and its files.

It is JSON-LD in the vocabulary of Croissant 1.0: the description, and each shard with its
size and SHA-256. The record sets are the splits and the names of classes, whose records
are in the file itself. The features of the dataset's records are left out: mlcroissant
cannot read TFRecord, and returns no records, without an error, for fields extracted from
one.

`datePublished`, which Croissant recommends, is left out, so that the same run writes the
same bytes.

Source: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.0.html; checked with
mlcroissant 1.1.
"""

from __future__ import annotations

import re
from typing import Any

from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.text import format_count, format_json

_Json = dict[str, Any]

# Terms of Croissant; all others are terms of schema.org.
_TERMS = (
    *("citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty"),
    *("fileObject", "fileSet", "format", "includes", "isLiveDataset", "jsonPath"),
    *("key", "md5", "parentField", "path", "recordSet", "references", "regex"),
    *("repeated", "replace", "samplingRate", "separator", "source", "subField"),
    "transform",
)
_CONTEXT: _Json = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in _TERMS},
}


def croissant_card(manifest: Manifest, schema: Schema) -> bytes:
    """Returns the file's bytes.

    All shards in the manifest must have a SHA-256, and the schema the class names.
    """
    about = manifest.about
    license_ = about.get("license", "")
    if re.fullmatch(r"(?!LicenseRef-)[\w.+-]+", license_):  # Croissant wants a URL
        license_ = f"https://spdx.org/licenses/{license_}"
    card: _Json = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": manifest.name,
        "version": manifest.version,
    }
    texts = {
        "description": about.get("description"),
        "license": license_,
        "citeAs": about.get("citation"),
        "url": about.get("homepage"),
    }
    card |= {key: text for key, text in texts.items() if text}
    if contact := about.get("contact"):
        card["maintainer"] = {"@type": "sc:Organization", "name": contact}
    formats = [f"application/x-{manifest.container.replace('_', '-')}"]
    if manifest.compression == "gzip":
        formats.append("application/gzip")
    card["distribution"] = [
        {
            "@type": "cr:FileObject",
            "@id": shard.file,
            "name": shard.file,
            "description": f"{name}: {format_count(shard.records, 'record')}",
            "contentUrl": shard.file,
            "contentSize": f"{shard.bytes} B",
            "encodingFormat": formats,
            "sha256": shard.sha256,
        }
        for name, split in manifest.splits.items()
        for shard in split.shards
    ]
    splits = [(name, split.records) for name, split in manifest.splits.items()]
    card["recordSet"] = [
        _record_set("splits", "cr:Split", ("name", "records"), splits),
        *(
            _record_set(
                f"{spec.name}/classes",
                "sc:Enumeration",
                ("name", "value"),
                [
                    (name, class_index)
                    for class_index, name in enumerate(spec.class_names)
                ],
            )
            for spec in schema.features
            if spec.class_names
        ),
    ]
    return format_json(card)


def _record_set(
    name: str, kind: str, fields: tuple[str, str], rows: list[tuple[str, int]]
) -> _Json:
    """Returns a record set of (text, integer) records; the text is the key."""
    ids = [f"{name}/{field}" for field in fields]
    types = ("sc:Text", "sc:Integer")
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "dataType": kind,
        "key": {"@id": ids[0]},
        "field": [
            {
                "@type": "cr:Field",
                "@id": field_id,
                "name": field_id,
                "dataType": data_type,
            }
            for field_id, data_type in zip(ids, types, strict=True)
        ],
        "data": [dict(zip(ids, row, strict=True)) for row in rows],
    }
