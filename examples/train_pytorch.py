"""Trains a linear model on a dataset, with PyTorch.

recordmill convert csv tests/samples/iris/iris.csv out/flowers --schema examples/iris.yaml
python examples/train_pytorch.py out/flowers

It needs PyTorch and recordmill in one environment.
"""

import sys

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from recordmill import read_batches

COLUMNS = ("sepal_length_cm", "sepal_width_cm", "petal_length_cm", "petal_width_cm")


class Flowers(IterableDataset):
    """The batches of a split; each worker reads shards of its own."""

    def __init__(self, dataset, split):
        self.dataset = dataset
        self.split = split

    def __iter__(self):
        worker = get_worker_info()
        index, count = (worker.id, worker.num_workers) if worker else (0, 1)
        for batch in read_batches(
            self.dataset, self.split, reader_index=index, num_readers=count
        ):
            inputs = np.stack([batch[name].to_numpy() for name in COLUMNS], axis=1)
            yield torch.tensor(inputs), torch.tensor(batch["species"].to_numpy())


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    for _ in range(100):
        # batch_size=None: the dataset gives batches already.
        for inputs, labels in DataLoader(
            Flowers(sys.argv[1], "train"), batch_size=None
        ):
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    right = total = 0
    for inputs, labels in DataLoader(Flowers(sys.argv[1], "train"), batch_size=None):
        right += int((model(inputs).argmax(1) == labels).sum())
        total += len(labels)
    print(f"accuracy {right / total:.2f}")


if __name__ == "__main__":
    main()
