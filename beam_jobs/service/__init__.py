"""One run, from resolved options to an outcome; no Beam graph is built here."""
