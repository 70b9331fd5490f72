"""Entry points of worker processes: from a job to events and files. Nothing here knows the database."""
