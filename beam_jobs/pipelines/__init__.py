"""The Beam pipelines. Read convert.py first."""
