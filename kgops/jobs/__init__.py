"""Jobs, options and events: the data exchanged between console and worker, without torch or SQL."""
