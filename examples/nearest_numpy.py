"""Classifies the rows of a dataset by the nearest class mean, with NumPy.

recordmill convert csv tests/samples/iris/iris.csv out/flowers --schema examples/iris.yaml
python examples/nearest_numpy.py out/flowers
"""

import sys

import numpy as np

from recordmill import read_batches

COLUMNS = ("sepal_length_cm", "sepal_width_cm", "petal_length_cm", "petal_width_cm")


def load(dataset, split):
    """Returns the inputs (rows x columns) and the labels of a split."""
    batches = list(read_batches(dataset, split))
    inputs = [np.stack([batch[c].to_numpy() for c in COLUMNS], 1) for batch in batches]
    labels = [batch["species"].to_numpy() for batch in batches]
    return np.concatenate(inputs), np.concatenate(labels)


def main():
    inputs, labels = load(sys.argv[1], "train")
    means = np.stack([inputs[labels == label].mean(0) for label in np.unique(labels)])
    distances = np.linalg.norm(inputs[:, None] - means[None], axis=2)
    print(f"accuracy {(distances.argmin(1) == labels).mean():.2f}")


if __name__ == "__main__":
    main()
