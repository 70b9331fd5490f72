"""Knowledge graphs: triples and vocabularies from files, and filters by neighbourhood."""
