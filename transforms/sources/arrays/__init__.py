"""What all formats of arrays share: rows of equal size, side by side in several files."""
