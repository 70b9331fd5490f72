"""Other machines with kgops, reached by the user's own SSH: what they show, read as text that nobody vouches for."""
