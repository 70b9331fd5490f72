"""One declaration per option and setting: type, default, flags, help, and effect on results."""
