"""Beam's runners: starts, watches and stops a pipeline on each."""
