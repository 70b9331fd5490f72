"""Views: what the command line and the screens both show. Frozen values, no drawing."""
