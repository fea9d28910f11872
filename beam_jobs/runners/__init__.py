"""Beam's runners: how a pipeline is started, watched and stopped on each."""
