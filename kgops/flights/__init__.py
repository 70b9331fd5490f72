"""Flights: frames of a camera, the sun's angles and a height for each; windows of frames out of their files."""
