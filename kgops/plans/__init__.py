"""Plans: profiles resolved for a job. Torch-free."""
