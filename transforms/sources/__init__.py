"""Sources: the input formats. `base` says what each of them offers, `registry` finds them."""
