"""One page of HTML on a dataset, with all that it shows in it."""
