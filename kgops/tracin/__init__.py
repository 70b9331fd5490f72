"""TracIn: which training triples made the model say so, exactly and below the price of a backward pass."""
