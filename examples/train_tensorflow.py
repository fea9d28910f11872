"""Trains a small Keras model on the shards of a dataset.

recordmill convert csv tests/samples/iris/iris.csv out/flowers --schema examples/iris.yaml
python examples/train_tensorflow.py out/flowers

It needs TensorFlow alone: the shards are ordinary TFRecord files.
"""

import json
import sys
from pathlib import Path

import tensorflow as tf

COLUMNS = ("sepal_length_cm", "sepal_width_cm", "petal_length_cm", "petal_width_cm")
FEATURES = {name: tf.io.FixedLenFeature([], tf.float32) for name in COLUMNS}
FEATURES["species"] = tf.io.FixedLenFeature([], tf.int64)


def parse(records):
    """Returns inputs and labels of a batch of records."""
    columns = tf.io.parse_example(records, FEATURES)
    labels = columns.pop("species")
    return tf.stack([columns[name] for name in COLUMNS], axis=1), labels


def read(folder, split):
    """Returns a tf.data pipeline over the shards that the manifest names."""
    manifest = json.loads((folder / "manifest.json").read_text())
    files = [
        str(folder / shard["file"]) for shard in manifest["splits"][split]["shards"]
    ]
    return (
        tf.data.Dataset.from_tensor_slices(files)
        .interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)
        .shuffle(1000, seed=0)
        .batch(16)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def main():
    tf.keras.utils.set_random_seed(0)
    train = read(Path(sys.argv[1]), "train")
    model = tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(3)])
    model.compile(
        optimizer=tf.keras.optimizers.Adam(0.1),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(train, epochs=20, verbose=0)
    print(f"accuracy {history.history['accuracy'][-1]:.2f}")


if __name__ == "__main__":
    main()
