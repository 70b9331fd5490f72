"""Supervisor: launches, queues, supervises, records, recovers and resumes runs. Standard library and SQLite only."""
