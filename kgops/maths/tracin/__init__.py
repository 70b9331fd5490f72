"""TracIn: influence of training triples on test triples, exact and without one backward pass per triple."""
