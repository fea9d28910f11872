"""The Beam graphs. Read convert.py first."""
