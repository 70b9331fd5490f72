"""Models as plain torch modules, and the bridge to PyKEEN's weights."""
