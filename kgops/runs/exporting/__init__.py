"""Runs written out for other programs: whole ones to be imported again, curves and figures for what draws them."""
