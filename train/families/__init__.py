"""Data families: each module has make(rng, ...) -> Dialogue, a function of the random generator alone."""
