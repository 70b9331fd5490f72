"""Views: the data that the command line and the screens both show, as frozen values."""
