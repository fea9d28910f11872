"""Sources of the input formats: `base` defines their interface, `registry` loads them."""
