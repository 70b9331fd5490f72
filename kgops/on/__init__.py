"""Where a run is done other than here: what submits its worker, follows it, and tells of it as if it were here."""
