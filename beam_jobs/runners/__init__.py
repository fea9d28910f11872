"""Adapters that start, watch and stop a pipeline on each of Beam's runners."""
