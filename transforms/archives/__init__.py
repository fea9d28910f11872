"""Archives in place of folders: what their members are called, and where they lie."""
