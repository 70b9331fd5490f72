"""Jobs, options and events: what a console and a worker say to each other. Neither torch nor SQL here."""
