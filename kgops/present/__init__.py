"""What command line, screens and HTML pages show, as frozen values."""
